"""The schedule as data: every sample is sampled, put, trained on and dropped once, in every mode, with the right
version of the weights."""

from __future__ import annotations

import random
from argparse import Namespace
from collections import Counter
from itertools import pairwise

import pytest

from relax.core.registry import ACTOR, ADVANTAGES, CRITIC, ROLLOUT
from relax.core.rows import rollout_keys, rollouts_of, sampled_version, steps_before
from relax.core.schedule import CONTROLLER, Unit, roles_of, schedule
from tests.runtime.in_process import tiny

MODES = {
    "colocate": (),
    "hybrid": ("--hybrid", "--max-staleness", "2"),
    "fully async": ("--fully-async", "--num-iters-per-train-update", "2"),
    "fully async and stale": ("--fully-async", "--max-staleness", "3"),
    "true on policy": ("--true-on-policy-mode",),
    "true on policy, fully async": ("--true-on-policy-mode", "--fully-async"),
    "batches of two rollouts": ("--fully-async", "--global-batch-size", "32", "--max-staleness", "1"),
    "training only, on batches of two rollouts": (
        *("--fully-async", "--global-batch-size", "32", "--debug-train-only"),
        *("--load-debug-rollout-data", "data"),
    ),
    "training only": ("--debug-train-only", "--load-debug-rollout-data", "data"),
}
ALGORITHMS = ("gdpo", "ppo")


def run_of(algorithm: str, mode: str, *options: str) -> tuple[Namespace, list[Unit]]:
    """Six rollouts of 16 samples, in optimizer batches of 8 or as the mode says."""
    args = tiny(algorithm, "--num-rollout", "6", *MODES[mode], *options)
    return args, schedule(args, roles_of(args))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("mode", MODES)
def test_every_sample_once(algorithm: str, mode: str) -> None:
    """What is brought, what is trained on and what is dropped are each all samples of the run, once."""
    args, units = run_of(algorithm, mode)
    samples = Counter(key for rollout in range(6) for key in rollout_keys(args, rollout))
    assert set(samples.values()) == {1}
    for calls in (("generate", "fetch"), ("drop",)):
        assert samples == Counter(key for unit in units if unit.call in calls for key in unit.arguments["keys"])
    for role in {ACTOR, CRITIC} & set(roles_of(args)):
        trained = [unit for unit in units if unit.call == "train" and unit.role == role]
        assert samples == Counter(key for unit in trained for key in unit.arguments["keys"])
        assert list(range(len(trained))) == [unit.arguments["batch"] for unit in trained]
    for call in ("values", "forward", "add", "prepare"):
        of_call = [unit.arguments for unit in units if unit.call == call]
        keys = [key for one in of_call for batch in one.get("batches", [one.get("keys")]) for key in batch]
        assert samples == Counter(keys) or not of_call


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("mode", MODES)
def test_order(algorithm: str, mode: str) -> None:
    """Keys are unique, a unit comes after all it needs, and each role's units after one another."""
    _, units = run_of(algorithm, mode, "--save", "there", "--save-interval", "2", "--eval-problems", "3")
    seen: dict[str, Unit] = {}
    last: dict[str, str] = {}
    for unit in units:
        assert unit.key not in seen
        assert seen.keys() >= {*unit.after, *([unit.weights] if unit.weights else [])}
        if unit.role in last:
            assert last[unit.role] in unit.after
        if unit.weights:
            assert seen[unit.weights].gives_weights
            assert unit.weights in unit.after
        seen[unit.key], last[unit.role] = unit, unit.key


@pytest.mark.parametrize("mode", MODES)
def test_in_turn(mode: str) -> None:
    """Colocated units are strictly in turn; elsewhere some pair of roles can be at work at the same time."""
    args, units = run_of("gdpo", mode)
    in_turn = all(before.key in unit.after for before, unit in pairwise(units))
    assert in_turn == (not args.hybrid and not (args.fully_async and not args.debug_train_only))


@pytest.mark.parametrize("mode", [mode for mode in MODES if "training only" not in mode])
def test_versions(mode: str) -> None:
    """In whatever order ready units are done, a rollout is sampled, and scored again, with the version it should be."""
    args, units = run_of("gdpo", mode)
    for seed in range(20):
        holds: dict[str, int] = {}
        steps = 0
        for unit in any_order(units, random.Random(seed)):
            if unit.call == "train":
                steps += 1
            if unit.gives_weights:
                assert unit.arguments["version"] == steps  # the actor can only give what it is now
            if unit.weights:
                holds[unit.role] = int(unit.weights.split()[1])
            if unit.call == "generate":
                rollout = unit.arguments["rollout"]
                assert holds[ROLLOUT] == max(0, steps_before(args, rollout) - args.max_staleness)
                assert holds[ROLLOUT] <= steps <= steps_before(args, rollout)
            if unit.call == "forward":
                batch = int(unit.key.split()[-1])
                assert {holds[unit.role]} == {sampled_version(args, one) for one in rollouts_of(args, batch)}
        assert steps == 96 // args.global_batch_size


def any_order(units: list[Unit], dice: random.Random) -> list[Unit]:
    """The units in some order that their ``after`` allows."""
    left, order, done = list(units), [], set()
    while left:
        unit = dice.choice([one for one in left if done.issuperset(one.after)])
        left.remove(unit)
        order.append(unit)
        done.add(unit.key)
    return order


def test_whole_batches_of_advantages() -> None:
    """The slices of a batch reach the advantages before those of the next, and training after the last of its own."""
    _, units = run_of("gdpo", "fully async")
    for seed in range(5):
        order = any_order(units, random.Random(seed))
        added = [unit.key for unit in order if unit.role == ADVANTAGES]
        assert [f"advantages of slice {s} of batch {b}" for b in range(12) for s in range(2)] == added
        for batch in range(12):
            keys = [unit.key for unit in order]
            assert keys.index(f"train on batch {batch}") > keys.index(f"advantages of slice 1 of batch {batch}")


def test_values_of_a_rollout() -> None:
    """Asynchronously too, the critic values a whole rollout before it learns from the rollout's first batch."""
    args, units = run_of("ppo", "fully async and stale")
    critic = [unit.key for unit in units if unit.role == CRITIC]
    for rollout in range(6):
        first = steps_before(args, rollout)
        values = [f"values of slice 0 of batch {batch}" for batch in (first, first + 1)]
        train = [f"train the critic on batch {batch}" for batch in (first, first + 1)]
        assert [*values, *train] == critic[4 * rollout : 4 * rollout + 4]


@pytest.mark.parametrize("mode", MODES)
def test_resumed(mode: str) -> None:
    """What goes on at a checkpoint is the units that were left, and the weights that those still need."""
    options = ("--save", "there", "--save-interval", "2", "--eval-problems", "3")
    args, units = run_of("ppo", mode, *options)
    roles = roles_of(args)
    resumed = schedule(args, roles, resumed=4)
    whole = {unit.key: unit for unit in units}
    assert all(whole[unit.key].arguments == unit.arguments for unit in resumed)
    trained = {key for key in whole if key.startswith("train")}
    left = {unit.key for unit in resumed if unit.key.startswith("train")}
    done = {f"train on batch {batch}" for batch in range(steps_before(args, 4))}
    assert trained == left | done | {key.replace("train on", "train the critic on") for key in done} & trained
    assert not left & done
    for unit in resumed:
        if unit.gives_weights:
            assert unit.arguments["version"] >= steps_before(args, 4) - args.max_staleness


def test_checkpoints() -> None:
    """One at each interval and at the end, each once all before it is trained on, and before more is."""
    _, units = run_of("gdpo", "fully async and stale", "--save", "there", "--save-interval", "4")
    keys = [unit.key for unit in units]
    committed = [key for key in keys if key.endswith("committed")]
    assert committed == ["checkpoint 0 committed", "checkpoint 4 committed", "checkpoint 6 committed"]
    part = next(unit for unit in units if unit.key == "checkpoint 4, part actor")
    assert part.after[-1] == "train on batch 7" or "train on batch 7" in keys[: keys.index(part.key)]
    assert keys.index("train on batch 8") > keys.index(part.key)


def test_half_a_batch_left() -> None:
    """Rollouts that leave an optimizer batch unfilled are refused, naming the options."""
    args = tiny("gdpo", "--num-rollout", "3", *MODES["batches of two rollouts"])
    with pytest.raises(ValueError, match="--num-rollout 3 and --global-batch-size 32: 3 rollouts of 16 samples fill"):
        schedule(args, roles_of(args))


def test_warm_up() -> None:
    """Demonstrations come a step ahead at most, each row is learned from once, and version 0 is after the last."""
    args = tiny("gdpo", "--sft-steps", "5", "--sft-batch-size", "4")
    units = schedule(args, roles_of(args))
    keys = [key for unit in units if unit.call == "demonstrate" for key in unit.arguments["keys"]]
    assert len(set(keys)) == len(keys) == 20
    assert keys == [key for unit in units if unit.call == "learn" for key in unit.arguments["keys"]]
    for seed in range(5):
        ahead = 0
        for unit in any_order(units, random.Random(seed)):
            ahead += (unit.call == "demonstrate") - (unit.call == "learn")
            assert 0 <= ahead <= 2
            assert not (unit.gives_weights and ahead)
    firsts = [unit.arguments["first"] for unit in units if unit.call == "demonstrate"]
    assert firsts == [0, 4, 8, 12, 16]
    assert units[-1].role == CONTROLLER
