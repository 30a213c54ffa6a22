"""The schedule as data: every sample is sampled, put, trained on and dropped once, in every mode, with the right
version of the weights."""

from __future__ import annotations

import random
from argparse import Namespace
from collections import Counter
from itertools import pairwise

import pytest

from relax.core.registry import ACTOR, ACTOR_FWD, ADVANTAGES, CRITIC, REFERENCE, ROLLOUT
from relax.core.rows import keys_of, needs_reference, rollout_keys, rollouts_of, sampled_version, steps_before
from relax.core.schedule import roles_of, schedule
from relax.core.units import CONTROLLER, Unit
from tests.runtime.in_process import tiny

MODES = {
    "colocate": (),
    "hybrid": ("--hybrid", "--max-staleness", "2"),
    "fully async": ("--fully-async", "--num-iters-per-train-update", "2"),
    "fully async and stale": ("--fully-async", "--max-staleness", "3"),
    "fully async, with a reference": (
        *("--fully-async", "--max-staleness", "2", "--use-kl-loss", "--kl-loss-coef", "0.1"),
    ),
    "true on policy": ("--true-on-policy-mode",),
    "true on policy, fully async": ("--true-on-policy-mode", "--fully-async"),
    "batches of two rollouts": ("--fully-async", "--global-batch-size", "32", "--max-staleness", "1"),
    "training only, on batches of two rollouts": (
        *("--fully-async", "--global-batch-size", "32", "--debug-train-only"),
        *("--load-debug-rollout-data", "data"),
    ),
    "training only": ("--debug-train-only", "--load-debug-rollout-data", "data"),
}
ALONE = [mode for mode in MODES if "training only" in mode]
RUNS = [("gdpo", mode) for mode in MODES] + [("ppo", mode) for mode in MODES if mode not in ALONE]
"""An algorithm without a critic in every mode, and one with a critic where a critic is started."""


def run_of(algorithm: str, mode: str, *options: str) -> tuple[Namespace, list[Unit]]:
    """Six rollouts of 16 samples, in optimizer batches of 8 or as the mode says."""
    args = tiny(algorithm, "--num-rollout", "6", *MODES[mode], *options)
    return args, schedule(args, roles_of(args))


@pytest.mark.parametrize(("algorithm", "mode"), RUNS)
def test_every_sample_once(algorithm: str, mode: str) -> None:
    """What is brought, what is trained on and what is dropped are each all samples of the run, once."""
    args, units = run_of(algorithm, mode)
    samples = Counter(key for rollout in range(6) for key in rollout_keys(args, rollout))
    assert set(samples.values()) == {1}

    def named(*calls: str, role: str | None = None) -> Counter[str]:
        """The samples that units name."""
        of_calls = [unit.arguments for unit in units if unit.call in calls and role in (None, unit.role)]
        each = [{"batch": batch} for one in of_calls for batch in one["batches"]] if "prepare" in calls else of_calls
        return Counter(key for one in each for key in keys_of(args, **one))

    for calls in (("generate", "fetch"), ("drop",)):
        assert samples == named(*calls)
    roles = roles_of(args)
    for role in {ACTOR, CRITIC} & set(roles):
        trained = [unit for unit in units if unit.call == "train" and unit.role == role]
        assert samples == named("train", role=role)
        assert list(range(len(trained))) == [unit.arguments["batch"] for unit in trained]
    needed = {
        ("values", CRITIC): CRITIC in roles,
        ("forward", ACTOR_FWD): ACTOR_FWD in roles,
        ("forward", REFERENCE): REFERENCE in roles and needs_reference(args),
        ("add", ADVANTAGES): ADVANTAGES in roles,
        ("prepare", ACTOR): ADVANTAGES not in roles,
    }
    for (call, role), is_needed in needed.items():
        assert named(call, role=role) == (samples if is_needed else Counter())


@pytest.mark.parametrize(("algorithm", "mode"), RUNS)
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


@pytest.mark.parametrize(("algorithm", "mode"), RUNS)
def test_versions(algorithm: str, mode: str) -> None:
    """In whatever order ready units are done, a rollout is sampled, and scored again, with the version it should be."""
    args, units = run_of(algorithm, mode)
    for seed in range(20):
        assert steps_before(args, 6) == follow(args, any_order(units, random.Random(seed)), 0, frozenset())


def follow(args: Namespace, units: list[Unit], steps: int, published: frozenset[int]) -> int:
    """Does the units, asserting that each role holds the right version of the weights, from ``steps`` optimizer steps
    on, with what a checkpoint has ``published``; gives the steps that are done in the end."""
    holds: dict[str, int] = {}
    for unit in units:
        if unit.gives_weights:
            assert unit.arguments["version"] in {steps, *published}  # the actor can give what it is now, or has kept
        if unit.weights:
            holds[unit.role] = int(unit.weights.split()[1])
        if unit.call == "train" and unit.role == ACTOR:
            steps += 1
        elif unit.call == "generate":
            assert holds[ROLLOUT] == sampled_version(args, unit.arguments["rollout"])
            assert holds[ROLLOUT] <= steps <= steps_before(args, unit.arguments["rollout"])
        elif unit.call == "forward" and unit.role == REFERENCE:
            assert holds[REFERENCE] == 0
        elif unit.call == "forward":
            rollouts = rollouts_of(args, unit.arguments["batch"])
            assert {holds[ACTOR_FWD]} == {sampled_version(args, rollout) for rollout in rollouts}
    return steps


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


@pytest.mark.parametrize(("algorithm", "mode"), RUNS)
def test_resumed(algorithm: str, mode: str) -> None:
    """What goes on at a checkpoint is the units that were left, in whatever order, with the right weights."""
    args, units = run_of(algorithm, mode, "--save", "there", "--save-interval", "2", "--eval-problems", "3")
    resumed = schedule(args, roles_of(args), resumed=4)
    whole = {unit.key: unit for unit in units}
    done = steps_before(args, 4)
    assert all(whole[unit.key].arguments == unit.arguments for unit in resumed)
    numbers = {"generate": range(4, 6), "fetch": range(4, 6), "train": range(done, steps_before(args, 6))}
    for call, left in numbers.items():
        for role in {unit.role for unit in units if unit.call == call}:
            found = [one.arguments for one in resumed if (one.call, one.role) == (call, role)]
            assert list(left) == [number for one in found for number in one.values()]
    before = units[: units.index(whole["checkpoint 4, part actor"])]
    asked = {unit.arguments["version"] for unit in before if unit.gives_weights}
    kept = {one for one in asked if one >= done - args.max_staleness or (one == 0 and needs_reference(args))}
    for seed in range(5):
        order = any_order(resumed, random.Random(seed))
        assert steps_before(args, 6) == follow(args, order, done, frozenset(kept))


def test_checkpoints() -> None:
    """One at each interval and at the end, each once all before it is trained on, and before more is."""
    _, units = run_of("gdpo", "fully async and stale", "--save", "there", "--save-interval", "4")
    committed = [unit.key for unit in units if unit.call == "commit_checkpoint"]
    assert [f"checkpoint {rollout} committed" for rollout in (0, 4, 6)] == committed
    for seed in range(20):
        keys = [unit.key for unit in any_order(units, random.Random(seed))]
        for rollout in (0, 4, 6):
            actor, other = (keys.index(f"checkpoint {rollout}, part {role}") for role in (ACTOR, ROLLOUT))
            trained = {key for key in keys[:actor] if key.startswith("train on batch")}
            assert {f"train on batch {batch}" for batch in range(2 * rollout)} == trained
            opened, closed = (keys.index(f"checkpoint {rollout} {when}") for when in ("opened", "committed"))
            assert opened < min(actor, other) < max(actor, other) < closed


def test_warm_up() -> None:
    """Demonstrations come a step ahead at most, each row is learned from once, and version 0 is after the last."""
    args = tiny("gdpo", "--sft-steps", "5", "--sft-batch-size", "4")
    units = schedule(args, roles_of(args))
    for call in ("demonstrate", "learn"):
        assert [{"step": step} for step in range(5)] == [unit.arguments for unit in units if unit.call == call]
    keys = [key for step in range(5) for key in keys_of(args, step=step)]
    assert len(set(keys)) == len(keys) == 20
    for seed in range(5):
        ahead = 0
        for unit in any_order(units, random.Random(seed)):
            ahead += (unit.call == "demonstrate") - (unit.call == "learn")
            assert 0 <= ahead <= 2
            assert not (unit.gives_weights and ahead)
    assert units[-1].role == CONTROLLER
