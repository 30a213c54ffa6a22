"""A run that was stopped at a checkpoint and continued elsewhere: the bits of one that was never stopped."""

from __future__ import annotations

import random
from argparse import Namespace
from pathlib import Path

import pytest
import reasoning_gym  # noqa: F401 - draws random numbers as it is imported: before all runs here, or in the first

from relax.core.checkpoint import checkpoints, open_checkpoint
from relax.core.resume import checkpoint_of
from relax.types import Sample
from tests.runtime.in_process import InProcess, tiny
from tests.runtime.small_run import varied_rewards

pytestmark = pytest.mark.usefixtures("alone")

MODES = {
    "colocate": (),
    "hybrid, stale": ("--hybrid", "--max-staleness", "2"),
    "fully async": ("--fully-async", "--num-iters-per-train-update", "2"),
    "fully async, stale": ("--fully-async", "--max-staleness", "3"),
    "batches of two rollouts": ("--fully-async", "--global-batch-size", "32", "--max-staleness", "1"),
    "with a reference": ("--use-kl-loss", "--kl-loss-coef", "0.1"),
    "fully async, with a reference": (
        "--fully-async",
        "--use-kl-loss",
        "--kl-loss-coef",
        "0.1",
        "--max-staleness",
        "2",
    ),
    "after a warm-up": ("--sft-steps", "3", "--sft-batch-size", "8"),
    "fully async, with a filter": (
        *("--fully-async", "--max-staleness", "1"),
        *("--dynamic-sampling-filter-path", "tests.runtime.test_resume:keep_some"),
    ),
    "with a filter": ("--dynamic-sampling-filter-path", "tests.runtime.test_resume:keep_some"),
}


def drawing_rewards(args: Namespace, sample: Sample) -> dict[str, float]:
    """Rewards of a function that draws from the process's own random numbers, as no function should."""
    rewards = varied_rewards(args, sample)
    return {**rewards, "format": rewards["format"] + random.random() / 4}


def keep_some(args: Namespace, group: list[Sample]) -> bool:
    """Keeps the prompt groups of two problems in three."""
    return group[0].metadata["problem"] % 3 != 0


def run_in(folder: Path, algorithm: str, mode: str) -> Namespace:
    """Six rollouts with a checkpoint after every second, and evaluations, whose rewards draw random numbers too."""
    options = ("--num-rollout", "6", "--save", str(folder), "--save-interval", "2", "--eval-problems", "2")
    own_filter = "with a filter" in mode and algorithm == "gdpo"
    rewards = ("--custom-rm-path", "tests.runtime.test_resume:drawing_rewards")
    if own_filter:
        with pytest.warns(UserWarning, match="a filter of your own"):
            return tiny(algorithm, *options, *rewards, *MODES[mode])
    return tiny(algorithm, *options, *rewards, *MODES[mode])


def contents(folder: Path, step: int) -> dict[str, bytes]:
    """The files of a checkpoint."""
    return {path.name: path.read_bytes() for path in open_checkpoint(folder, step).folder.iterdir()}


@pytest.mark.parametrize("algorithm", ["gdpo", "ppo"])
@pytest.mark.parametrize("mode", MODES)
def test_resume(tmp_path: Path, algorithm: str, mode: str) -> None:
    """From each of its checkpoints: same samples, advantages, weights and moments, and the same later checkpoints."""
    random.seed(0)
    whole = InProcess(run_in(tmp_path / "whole", algorithm, mode)).run()
    assert checkpoints(tmp_path / "whole") == [0, 2, 4, 6]
    for step in (2, 4):
        random.seed(step)
        args = run_in(tmp_path / str(step), algorithm, mode)
        resumed = InProcess(args, load=tmp_path / "whole" / f"step-{step:08d}").run()
        assert whole.bits() == resumed.bits()
        for call in ("generate rollout", "train on batch", "evaluation at the end"):
            expected = {key: kept(facts) for key, facts in whole.facts.items() if key.startswith(call)}
            found = {key: kept(facts) for key, facts in resumed.facts.items() if key.startswith(call)}
            assert 0 < len(found) <= len(expected)
            assert found.items() <= expected.items()
        assert contents(tmp_path / "whole", 6) == contents(tmp_path / str(step), 6)


def kept(facts: dict[str, object]) -> str:
    """What a unit gave, but for its times."""
    return str({name: value for name, value in facts.items() if name not in ("seconds", "elapsed")})


@pytest.mark.parametrize("until", ["supervised step 2", "checkpoint 0 committed", "generate rollout 1"])
def test_ended_early(tmp_path: Path, until: str) -> None:
    """Ended in the warm-up, or before the second rollout: the same command goes on, or starts again, to the same."""
    whole = InProcess(run_in(tmp_path / "whole", "gdpo", "after a warm-up")).run()
    args = run_in(tmp_path / "ended", "gdpo", "after a warm-up")
    InProcess(args).run(until=until)
    args.load = args.save
    checkpoint = checkpoint_of(args)
    assert (checkpoint is None) == (until != "generate rollout 1")
    resumed = InProcess(args, load=None if checkpoint is None else tmp_path / "ended").run()
    assert "supervised step 0" not in resumed.facts or checkpoint is None
    assert whole.bits() == resumed.bits()
    assert contents(tmp_path / "whole", 6) == contents(tmp_path / "ended", 6)


def test_rollouts_in_flight(tmp_path: Path) -> None:
    """A rollout sampled ahead of the checkpoint is sampled again, with the weights that it was sampled with."""
    run = InProcess(run_in(tmp_path, "gdpo", "fully async, stale"))
    run.run(until="checkpoint 2 committed")
    ahead = [key for key in run.facts if key.startswith("generate")]
    assert [f"generate rollout {rollout}" for rollout in range(4)] == ahead
    run.run(since="checkpoint 2 committed")
    resumed = InProcess(run_in(tmp_path / "again", "gdpo", "fully async, stale"), load=tmp_path / "step-00000002")
    units = {unit.key: unit for unit in resumed.units()}
    assert units["generate rollout 2"].weights == "weights 1"
    assert units["generate rollout 3"].weights == "weights 3"
    resumed.run()
    for rollout in (2, 3):
        key = f"generate rollout {rollout}"
        assert run.facts[key]["fingerprint"] == resumed.facts[key]["fingerprint"]
