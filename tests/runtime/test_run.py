"""Whole small runs: every algorithm learns something, and a run that was stopped goes on with the same bits."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from relax.algorithms.spec import list_algorithm_names
from relax.backends.megatron.model import ModelShape
from relax.core.checkpoint import CheckpointError
from tests.runtime.small_run import SHAPE, SmallRun, arguments

pytestmark = pytest.mark.usefixtures("alone")


@pytest.mark.parametrize("algorithm", list_algorithm_names())
def test_every_algorithm(algorithm: str) -> None:
    """Two rollouts move the weights by finite steps, the critic's too where there is one."""
    run = SmallRun(arguments(algorithm))
    run.warm_up(3)
    before = run.bits()
    for _ in range(2):
        run.train(run.sample())
    steps = 2 if run.args.global_batch_size == 16 else 4
    assert steps == len(run.updates)
    for update in run.updates:
        assert all(math.isfinite(number) for number in (*update.metrics.values(), update.grad_norm))
        assert update.metrics["train_rollout_log_prob_difference"] == 0.0
        assert update.grad_norm > 1e-3
    after = run.bits()
    weights = [name for name in before if "exp_avg" not in name]
    assert all(before[name] != after[name] for name in weights if name.endswith("weight"))


@pytest.mark.parametrize("algorithm", ["gdpo", "ppo"])
def test_resume(algorithm: str, tmp_path: Path) -> None:
    """Stopped after its first rollout and continued elsewhere, a run has the bits of one that was never stopped."""
    whole, first, second = (SmallRun(arguments(algorithm)) for _ in range(3))
    for run in (whole, first):
        run.warm_up(3)
        run.train(run.sample())
    first.save(tmp_path)
    second.load(tmp_path)
    assert whole.bits() == second.bits()
    for run in (whole, second):
        run.train(run.sample())
    assert whole.bits() == second.bits()
    assert whole.updates[-1] == second.updates[-1]


def test_another_seed() -> None:
    """What the tests above call the same bits differs for another seed."""
    one, other = (SmallRun(arguments("gdpo", seed=seed)) for seed in (0, 1))
    for run in (one, other):
        run.train(run.sample())
    assert one.updates != other.updates


def test_loading_another_model(tmp_path: Path) -> None:
    """A checkpoint of a model of another shape is refused, naming part and tensor."""
    run = SmallRun(arguments("gdpo"))
    run.train(run.sample())
    run.save(tmp_path)
    wider = SmallRun(arguments("gdpo"), shape=ModelShape(**{**vars(SHAPE), "hidden": 48}))
    with pytest.raises(
        CheckpointError, match=r"part 'actor' of .*step-00000001.*\(21, 32\).*\(21, 48\).*options it was saved"
    ):
        wider.load(tmp_path)


def test_learning() -> None:
    """After a warm-up GDPO raises the mean format of its rollouts: from below a half to above it."""
    run = SmallRun(
        arguments("gdpo", prompts=8, group=8, custom_rm_path="relax.tasks.sums:sum_rewards"),
        learning_rate=3e-3,
        micro_batch_size=32,
    )
    run.warm_up(120)
    formats = []
    for _ in range(16):
        samples = run.sample()
        formats.append(sum(sample.reward["format"] for sample in samples) / len(samples))
        run.train(samples)
    assert sum(formats[:2]) / 2 < 0.4
    assert sum(formats[-2:]) / 2 > 0.6
