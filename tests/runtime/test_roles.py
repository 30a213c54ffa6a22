"""The roles of a real run, one after the other in one process: the bits of the reference run."""

from __future__ import annotations

import pytest

from relax.algorithms.spec import list_algorithm_names
from tests.runtime.in_process import InProcess, tiny
from tests.runtime.small_run import SmallRun

pytestmark = pytest.mark.usefixtures("alone")


def reference(run: InProcess, *, warm_up: int = 0) -> SmallRun:
    """The reference run of the same options."""
    small = SmallRun(run.args)
    small.warm_up(warm_up, batch=run.args.sft_batch_size)
    for _ in range(run.args.num_rollout):
        small.train(small.sample())
    return small


@pytest.mark.parametrize("algorithm", list_algorithm_names())
def test_colocated(algorithm: str) -> None:
    """Two rollouts of every algorithm: same weights, moments and metrics as the reference."""
    run = InProcess(tiny(algorithm, "--num-rollout", "2")).run()
    small = reference(run)
    assert small.bits() == run.bits()
    metrics = [
        {**update.metrics, "grad_norm": update.grad_norm, "learning_rate": update.learning_rate}
        for update in small.updates
    ]
    assert metrics == [facts["metrics"] for facts in run.of("train on batch")]
    assert all(update.grad_norm > 1e-3 for update in small.updates)
    assert run.queue.keys() == []
