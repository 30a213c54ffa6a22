"""Input that must be refused: one maker a kind of fault in the contract, each with the words its message must hold.

A maker takes a ``random.Random``: hypothesis hands it one that shrinks, a bulk test a plain one with a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from verification.cases.batches import batch_case
from verification.cases.case import Case
from verification.cases.command_line import line
from verification.cases.components import KEYS, gdpo_case
from verification.cases.group_signal import gdpo_signal
from verification.cases.malformed_rewards import MALFORMED_REWARDS, NOT_A_MAPPING, NOT_A_REWARD, Maker, Malformed
from verification.cases.samples import component_rewards

NOT_A_SIZE: tuple[Any, ...] = (-1, 1.0, 2.5, None, "2", True, float("nan"), [1])


def valid_groups(rng: Random, size: int, count: int, components: int = 2) -> list[list[dict[str, Any]]]:
    """``count`` groups of ``size`` samples with whole and halved rewards."""
    return [
        component_rewards({key: [rng.randrange(9) / 2 for _ in range(size)] for key in KEYS[:components]})
        for _ in range(count)
    ]


def _planted(rng: Random, plant: Callable[[dict[str, Any], str], Any]) -> tuple[list[list[Any]], list[int], str, int]:
    """Valid groups with one reward replaced by ``plant(reward, key)``: groups, labels, the key, the position."""
    size, count = rng.randrange(2, 5), rng.randrange(1, 4)
    groups: list[list[Any]] = valid_groups(rng, size, count, components=3)
    labels = [100 + 7 * index for index in range(count)]
    position, key = rng.randrange(size * count), rng.choice(KEYS[:3])
    group, member = divmod(position, size)
    groups[group][member] = plant(groups[group][member], key)
    return groups, labels, key, position


def _component(name: str) -> Maker:
    def make(rng: Random) -> Malformed:
        value = NOT_A_REWARD[name](rng)
        groups, labels, key, position = _planted(rng, lambda reward, key: {**reward, key: value})
        words = (key, f"sample {position}", str(labels[position // len(groups[0])]))
        return gdpo_case(f"drawn-{name}", groups, weights=[1.0, 0.5, 2.0], labels=labels, error=words), words

    return make


def missing_key(rng: Random) -> Malformed:
    """One sample without one of the components."""
    groups, labels, key, position = _planted(rng, lambda reward, key: {k: v for k, v in reward.items() if k != key})
    words = (key, f"sample {position}", str(labels[position // len(groups[0])]))
    return gdpo_case("drawn-missing-key", groups, weights=[1.0, 1.0, 1.0], labels=labels, error=words), words


def no_mapping(rng: Random) -> Malformed:
    """One sample whose reward is no mapping."""
    value = rng.choice(NOT_A_MAPPING)
    groups, labels, _, position = _planted(rng, lambda reward, key: value)
    words = (f"sample {position}", str(labels[position // len(groups[0])]))
    return gdpo_case("drawn-no-mapping", groups, weights=[1.0, 1.0, 1.0], labels=labels, error=words), words


def no_group(rng: Random) -> Malformed:
    """One sample without a group."""
    case = _valid_case(rng)
    samples = list(case.inputs["samples"])
    position = rng.randrange(len(samples))
    samples[position] = {**samples[position], "group_index": None}
    words = ("group_index", f"sample {position}")
    return replace(case, inputs={"samples": tuple(samples)}, error=words), words


def group_size(rng: Random) -> Malformed:
    """A sample too few, or one too many, in one group."""
    case = _valid_case(rng)
    samples = list(case.inputs["samples"])
    position = rng.randrange(len(samples))
    label, size = samples[position]["group_index"], case.options["n_samples_per_prompt"]
    if rng.choice((True, False)):
        samples.append(samples[position])
        found = size + 1
    else:
        del samples[position]
        found = size - 1
    words = (f"group {label}", str(found), str(size))
    return replace(case, inputs={"samples": tuple(samples)}, error=words), words


def _valid_case(rng: Random) -> Case:
    size, count = rng.randrange(2, 5), rng.randrange(1, 4)
    groups = valid_groups(rng, size, count)
    return gdpo_case("drawn", groups, weights=[1.0, 0.5], labels=[50 + 3 * index for index in range(count)])


def _options(rng: Random, words: Sequence[str], **options: Any) -> Malformed:
    case = _valid_case(rng)
    return replace(case, options={**case.options, **options}, error=tuple(words)), tuple(words)


NOT_KEYS: tuple[Any, ...] = (
    None, [], ["correct"], ["correct", "correct"], ["correct", "format", "correct"], ["correct", None], [["a"], ["b"]],
    "ab", 5,
)  # fmt: skip

NOT_WEIGHTS: tuple[Any, ...] = (
    [], [1.0], [1.0] * 3, [1.0, float("nan")], [float("-inf"), 1.0], [0.0, 0.0], [0.0, -0.0], [None, "x"], [1.0, True],
    [1j, 1.0], [10**400, 1.0], "12", 5,
)  # fmt: skip


def keys(rng: Random) -> Malformed:
    """No key, one key, one twice, one that is no text, or no list at all."""
    return _options(rng, ["keys"], gdpo_reward_keys=rng.choice(NOT_KEYS), gdpo_reward_weights=None)


def weights(rng: Random) -> Malformed:
    """Another number of weights than keys, one that is no finite number, zeros alone, or no list at all."""
    return _options(rng, ["weights"], gdpo_reward_weights=rng.choice(NOT_WEIGHTS))


def overflow(rng: Random) -> Malformed:
    """A weight under which the combined value leaves float32; the component that dominates is named."""
    size = rng.randrange(2, 6)
    column = [0.0] * (size - 1) + [float(rng.randrange(1, 100))]
    heavy = rng.randrange(2)
    group = component_rewards({KEYS[0]: column, KEYS[1]: column[::-1]})
    words = (KEYS[heavy],)
    factor = rng.choice((1e39, -1e300, 1.7e308))
    case = gdpo_case("drawn-overflow", [group], weights=[1.0 if k != heavy else factor for k in range(2)], error=words)
    return case, words


def signal(rng: Random) -> Malformed:
    """One bad component of a group that is asked for its signal."""
    size = rng.randrange(2, 6)
    columns: dict[str, list[Any]] = {key: [float(rng.randrange(3)) for _ in range(size)] for key in KEYS[:2]}
    key, position = rng.choice(KEYS[:2]), rng.randrange(size)
    columns[key][position] = NOT_A_REWARD[rng.choice(tuple(NOT_A_REWARD))](rng)
    words = (key, f"sample {position}")
    return gdpo_signal("drawn-signal", columns, [1.0, 1.0], error=words), words


def _scores(rng: Random) -> list[Any]:
    return [rng.randrange(-8, 9) / 4 for _ in range(rng.randrange(1, 7))]


def plan(rng: Random) -> Malformed:
    """A segment plan that is missing, does not add up, or holds something that is no count."""
    scores = _scores(rng)
    fault = rng.randrange(3)
    position = rng.randrange(3)
    words: tuple[str, ...] = ("mini_batch_sizes",)
    sizes: Any = None
    if fault == 1:
        sizes = [0] * position + [len(scores) + rng.choice((-1, 1, 1000))]
        words = (*words, str(sizes[-1]), str(len(scores))) if sizes[-1] >= 0 else words
    elif fault == 2:
        sizes = [0] * position + [rng.choice(NOT_A_SIZE), len(scores)]
        words = (f"mini_batch_sizes[{position}]",)
    return batch_case("drawn-plan", scores, sizes, error=words), words


def score(rng: Random) -> Malformed:
    """A score that is no finite float32 at step 3."""
    scores = _scores(rng)
    position = rng.randrange(len(scores))
    scores[position] = rng.choice((float("nan"), float("inf"), float("-inf"), 1e39, -1e300))
    words = (f"value {position}",)
    return batch_case("drawn-score", scores, [len(scores)], error=words), words


def lists(rng: Random) -> Malformed:
    """As many scores as responses, but for one."""
    scores = _scores(rng)
    responses = len(scores) + rng.choice((-1, 1))
    words = (str(len(scores)), str(responses))
    return batch_case("drawn-lists", scores, [len(scores)], lengths=[1] * responses, error=words), words


# Options that gdpo's command line refuses, with what the message must name.
REFUSED_OPTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("--gdpo-reward-weights 1 1 1", ("--gdpo-reward-weights", "--gdpo-reward-keys")),
    ("--gdpo-reward-weights 0 0", ("--gdpo-reward-weights",)),
    ("--gdpo-reward-weights nan 1", ("--gdpo-reward-weights", "nan")),
    ("--gdpo-reward-keys only", ("--gdpo-reward-keys", "only")),
    ("--gdpo-reward-keys twice other twice", ("--gdpo-reward-keys", "twice")),
    ("--normalize-advantages", ("gdpo", "--normalize-advantages")),
    ("--disable-rewards-normalization", ("gdpo", "--disable-rewards-normalization")),
    ("--custom-reward-post-process-path a.b", ("gdpo", "--custom-reward-post-process-path")),
    ("--agentic-custom-advantage-path a.b", ("gdpo", "--agentic-custom-advantage-path")),
    ("--n-samples-per-prompt 1", ("gdpo", "--n-samples-per-prompt")),
    ("--n-samples-per-prompt 0", ("--n-samples-per-prompt", "0")),
    ("--gamma 1.5", ("--gamma", "1.5")),
    ("--kl-coef nan", ("--kl-coef", "nan")),
    ("--eps-clip -1", ("--eps-clip", "-1")),
    ("--eps-clip-c 1", ("--eps-clip-c",)),
    ("--tis-clip 0.1 --tis-clip-low 0.5", ("--tis-clip", "--tis-clip-low")),
    ("--hybrid --fully-async", ("--hybrid", "--fully-async")),
    ("--advantage-estimator gpdo", ("--advantage-estimator", "gpdo")),
    ("--no-such-option 3", ("--no-such-option",)),
    ("--seed x", ("--seed", "x")),
    (f"--seed {2**63}", ("--seed", str(2**63))),
)

HARMLESS = ("--seed 3", "--use-opsm", "--num-rollout 2", "--save out", "--kl-loss-type k3", "--qkv-format bshd")


def command_line(rng: Random) -> Malformed:
    """One refused option among harmless ones."""
    refused, words = rng.choice(REFUSED_OPTIONS)
    before, behind = rng.choice(HARMLESS), rng.choice(HARMLESS)
    if before.split()[0] in refused:
        before = ""
    return line("gdpo", "drawn", f"{before} {refused} {behind if '--seed' not in refused else ''}", error=words), words


MALFORMED: dict[str, Maker] = {
    **{f"component-{name}": _component(name) for name in NOT_A_REWARD},
    "missing-key": missing_key,
    "no-mapping": no_mapping,
    "no-group": no_group,
    "group-size": group_size,
    "keys": keys,
    "weights": weights,
    "overflow": overflow,
    "signal": signal,
    "plan": plan,
    "score": score,
    "lists": lists,
    "command-line": command_line,
    **MALFORMED_REWARDS,
}


def malformed_input(kind: str, rng: Random) -> Malformed:
    """One input of ``kind`` (a key of ``MALFORMED``), and the words that the message of its error must hold."""
    return MALFORMED[kind](rng)
