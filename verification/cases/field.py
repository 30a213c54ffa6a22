"""Field cases: faults that users of other systems met, each as an input with a known right outcome.

The outcomes are in ``tests/verification/test_field_cases.py``, by number. A case's id ends in ``field-<id>``, with a
word more where one fault has several faces.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from verification.cases.advantage import advantage_case
from verification.cases.batches import as_float32, batch_case
from verification.cases.case import Case
from verification.cases.command_line import line
from verification.cases.components import gdpo_case
from verification.cases.families import ALL, BROADCAST, GROUPED
from verification.cases.group_signal import gdpo_signal
from verification.cases.reduce import reduce_case
from verification.cases.roles import MODES
from verification.cases.samples import component_rewards, normalize_case, samples_of

# Faults that only several ranks can show; the distributed suite holds their cases.
RANK_CASES = {
    "cp-whitening": "token normalisation under context parallelism: one value for every layout of ranks",
    "empty-slice": "a rank whose context-parallel slice holds no response token joins every collective",
    "early-return": "a rank with nothing to do joins every collective",
    "hidden-origin": "an exception on one rank before step 3 fails every rank, with that rank and its message named",
}

KEYS = ("correctness", "format")


def field_cases() -> Iterator[Case]:
    """All that one rank can show."""
    yield from missing_values()
    yield from leave_one_out()
    yield from flat_groups()
    yield from weights()
    yield from responses()
    yield from groups()
    yield from filters()
    yield from registry()


def missing_values() -> Iterator[Case]:
    """``none-component``, ``all-none``, ``large-finite``: refused by name, never filled in, never a flat batch."""
    good = [{"correctness": float(k % 2), "format": k / 8} for k in range(8)]
    for name, reward, words in (
        ("field-none-component", {"correctness": 1.0, "format": None}, ("format",)),
        ("field-all-none", {"correctness": None, "format": None}, ("correctness",)),
        ("field-large-finite-component", {"correctness": 1.0, "format": 1e300}, ("format",)),
    ):
        group = [*good[:5], reward, *good[6:]]
        yield gdpo_case(
            name, [good, group], weights=[1.0, 1.0], keys=KEYS, labels=(30, 31), error=(*words, "sample 13", "31")
        )
    yield gdpo_case(
        "field-large-finite-combined", [good], weights=[1.0, 3e38], keys=KEYS, labels=(30,), error=("format",)
    )


def leave_one_out() -> Iterator[Case]:
    """``loo-near-tie``, ``loo-one-winner``: the baseline leaves the sample itself out."""
    yield normalize_case("rloo", "field-loo-near-tie", samples_of([[0.0] + [0.95] * 7]), group_size=8)
    yield normalize_case("rloo", "field-loo-one-winner", samples_of([[1.0, 0.0, 0.0, 0.0]]), group_size=4)


def flat_groups() -> Iterator[Case]:
    """``flat-fifths``, ``offset``: equal rewards are worth exactly 0; a spread far from zero survives."""
    fifths = samples_of([[0.2] * 8])
    yield normalize_case(
        "grpo", "field-flat-fifths", fifths, group_size=8, note="the baseline's residue, kept as it is"
    )
    yield normalize_case("grpo", "field-flat-fifths-exact", fifths, group_size=8, exact_statistics=True)
    rising = [k / 8 for k in range(8)]
    for name, columns in (
        ("field-flat-fifths", {"correctness": rising, "format": [0.2] * 8}),
        ("field-flat-fifths-alone", {"correctness": rising, "format": [0.0] * 8}),
        ("field-flat-fifths-all", {"correctness": [0.2] * 8, "format": [0.2] * 8}),
    ):
        yield gdpo_case(name, [component_rewards(columns)], weights=[1.0, 1.0], keys=KEYS)
    yield batch_case("field-offset", as_float32([1000.0, 1000.01, 1000.02, 1000.03]), [4])


def weights() -> Iterator[Case]:
    """``weight-count``, ``near-weights``: one weight a key, and the difference of two large ones is kept."""
    keys, option = "--gdpo-reward-keys", "--gdpo-reward-weights"
    yield line("gdpo", "field-weight-count-three", f"{option} 1 1 1", error=(keys, option))
    yield line("gdpo", "field-weight-count-one", f"{option} 1", error=(keys, option))
    group = component_rewards({"correctness": [1.0, 0.0], "format": [0.0, 1.0]})
    yield gdpo_case("field-near-weights", [group], weights=[16777216.0, 16777217.0], keys=KEYS)


def responses() -> Iterator[Case]:
    """``unequal-lengths``, ``empty-response``, ``padding-content``."""
    yield batch_case("field-unequal-lengths", [1.0, -0.5], [2], lengths=[1, 4096])
    kl = [np.full(n, 0.25, dtype=np.float32) for n in (3, 0, 2)]
    full = [np.ones(n, dtype=np.float32) for n in (3, 0, 2)]
    rewards = [0.5, -0.5, 0.25]
    for algorithm in (*BROADCAST, "reinforce_plus_plus", "reinforce_plus_plus_baseline"):
        yield advantage_case(algorithm, "field-empty-response", rewards, kl, loss_masks=full)
    yield batch_case("field-empty-response", rewards, [3], lengths=[3, 0, 2])
    yield advantage_case("ppo", "field-empty-response", rewards, kl, values=kl, error=("response 1",))
    yield from padding_content()


def padding_content() -> Iterator[Case]:
    """What a mask excludes: zeros, or 1e30, or NaN where the formula does not read it.

    Formulas that multiply by the mask (the reducers, the discounted returns, token normalisation) keep a NaN: NaN
    times 0 is NaN. Those are the baseline's bits (the cases ``nan-masked`` have them), so for these formulas the
    padding holds 1e30 here: finite, so that times 0 it is exactly 0, and large, so that a token read anyway shows.
    """
    mask = np.array([1.0, 1.0, 0.0, 0.0], dtype=np.float32)
    for name, content in (("zeros", 0.0), ("1e30", 1e30)):
        padded = [np.array([0.5, -0.25, content, content], dtype=np.float32)]
        for reducer, per_token in (("mean", False), ("sum", True)):
            yield reduce_case("grpo", f"field-padding-content-{reducer}-{name}", padded, [mask], per_token)
        yield advantage_case(
            "reinforce_plus_plus", f"field-padding-content-{name}", [1.0], padded, loss_masks=[mask], kl_coef=0.1,
            gamma=0.9,
        )  # fmt: skip
    for name, content in (("zeros", 0.0), ("nan", float("nan"))):
        padded = [np.array([0.5, -0.25, content, content], dtype=np.float32)]
        for algorithm in ("grpo", "reinforce_plus_plus_baseline"):
            yield advantage_case(algorithm, f"field-padding-content-{name}", [1.0], padded, loss_masks=[mask])


def groups() -> Iterator[Case]:
    """``ragged-groups``, ``tail-group``, ``same-prompt-twice``, ``interleaved``."""
    ragged = [[0.0, 1.0, 0.5, 0.25], [1.0, 0.0, 0.5], [0.5, 0.5, 1.0, 0.0]]
    tail = [[0.0, 1.0], [1e5]]
    for algorithm in GROUPED:
        yield normalize_case(
            algorithm, "field-ragged-groups", samples_of(ragged, labels=(20, 21, 22)), group_size=4,
            error=("21", "3", "4"),
        )  # fmt: skip
        yield normalize_case(
            algorithm, "field-tail-group", samples_of(tail, labels=(20, 21)), group_size=2, error=("21", "1", "2")
        )
    as_components = {"ragged-groups": (ragged, 4, ("21", "3", "4")), "tail-group": (tail, 2, ("21", "1", "2"))}
    for name, (rewards, size, words) in as_components.items():
        pairs = [component_rewards({"correctness": group, "format": group[::-1]}) for group in rewards]
        yield gdpo_case(
            f"field-{name}", pairs, weights=[1.0, 1.0], keys=KEYS, labels=range(20, 20 + len(pairs)), group_size=size,
            error=words,
        )  # fmt: skip
    first, second = [0.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0]
    for algorithm in GROUPED:
        twice = samples_of([first, second], labels=(8, 9), prompt=["2 + 2 = ?"] * 8)
        yield normalize_case(algorithm, "field-same-prompt-twice", twice, group_size=4)
    three = [[0.1, 0.7, 0.2, 0.9], [1.0, 0.0, 0.0, 0.3], [0.4, 0.4, 0.5, 0.6]]
    order = [group * 4 + member for member in range(4) for group in range(3)]
    for algorithm in GROUPED:
        ordered = samples_of(three)
        yield normalize_case(algorithm, "field-interleaved-sorted", ordered, group_size=4)
        yield normalize_case(algorithm, "field-interleaved", [ordered[k] for k in order], group_size=4)
    pairs = [component_rewards({"correctness": group, "format": group[::-1]}) for group in (first, second)]
    yield gdpo_case("field-same-prompt-twice", pairs, weights=[1.0, 0.5], keys=KEYS, labels=(8, 9))
    pairs = [component_rewards({"correctness": group, "format": group[::-1]}) for group in three]
    yield gdpo_case("field-interleaved-sorted", pairs, weights=[1.0, 0.3], keys=KEYS)
    yield gdpo_case("field-interleaved", pairs, weights=[1.0, 0.3], keys=KEYS, order=order)


def filters() -> Iterator[Case]:
    """``summed-filter``: the filter keeps what GDPO keeps."""
    columns = {"correctness": [1.0, 0.0, 0.0, 1.0], "format": [0.0, 1.0, 0.0, 1.0]}
    yield gdpo_signal("field-summed-filter-kept", columns, [2.0, 1.0])
    constant = {"correctness": [1.0, 0.0, 1.0, 0.0], "format": [0.0, 1.0, 0.0, 1.0]}
    yield gdpo_signal("field-summed-filter-dropped", constant, [1.0, 1.0])
    yield gdpo_signal("field-summed-filter-unequal", constant, [2.0, 1.0])
    flat_sums = {"correctness": [1.0, 0.0, 1.0, 0.0], "format": [0.0, 0.5, 0.0, 0.5]}
    yield gdpo_signal("field-summed-filter-flat-sums", flat_sums, [1.0, 2.0])


def registry() -> Iterator[Case]:
    """``parser-without-role``: what the parser accepts has roles in every mode, and an implementation."""
    for algorithm in ALL:
        yield line(algorithm, "field-parser-without-role")
        options = MODES["colocate"]
        identity = f"roles.resolve/{algorithm}/field-parser-without-role"
        yield Case(identity, "roles.resolve", algorithm, {}, options)
