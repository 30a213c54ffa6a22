"""The roles of a real run, one after the other in one process: the bits of the reference run."""

from __future__ import annotations

import math
from argparse import Namespace

import pytest
import torch

from relax.algorithms.spec import list_algorithm_names
from relax.backends.megatron import train_step
from relax.backends.megatron.weights import weights_of
from relax.components.actor import Actor
from relax.core.counts import Counted
from relax.core.rows import batch_keys
from relax.transport.queue import TransportError
from relax.types import Sample
from tests.runtime.in_process import InProcess, reference, tiny
from tests.runtime.local_queue import LocalQueue

pytestmark = pytest.mark.usefixtures("alone")


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


@pytest.mark.parametrize("mode", [(), ("--fully-async",)])
def test_reference_model(mode: tuple[str, ...]) -> None:
    """The KL is that to the weights before the first policy step, after the warm-up, on both paths."""
    options = ("--use-kl-loss", "--kl-loss-coef", "0.1", "--kl-loss-type", "k3")
    warm_up = ("--sft-steps", "2", "--sft-batch-size", "8")
    run = InProcess(tiny("grpo", "--num-rollout", "2", *options, *warm_up, *mode))
    before = weights_of(run.run(until="weights 0").roles["actor"].model)
    run.run(since="weights 0")
    kl = [facts["metrics"]["kl_loss"] for facts in run.of("train on batch")]
    assert kl[0] == 0.0
    assert all(one > 0.0 for one in kl[1:])
    held = run.roles["actor"].weights(0)
    assert before.keys() == held.keys()
    assert all(torch.equal(tensor, held[name]) for name, tensor in before.items())


def test_reference_model_on_both_paths() -> None:
    """With a KL in the reward and in the loss, both paths have the same bits."""
    options = ("--use-kl-loss", "--kl-loss-coef", "0.1", "--kl-loss-type", "k3", "--kl-coef", "0.1")
    one, other = (
        InProcess(tiny("ppo", "--num-rollout", "2", *options, *mode)).run() for mode in ((), ("--fully-async",))
    )
    assert one.bits() == other.bits()


def test_warm_up() -> None:
    """The steps on demonstrations, by the SFT role, are the reference's."""
    run = InProcess(tiny("gdpo", "--sft-steps", "4", "--sft-batch-size", "8", "--num-rollout", "1")).run()
    assert reference(run).bits() == run.bits()
    assert len(list(run.of("supervised step"))) == 4


def test_staleness() -> None:
    """Stale rollouts are of earlier weights; their old log-probs are the actor's where hybrid, else the rollout's."""
    stale = ("--num-rollout", "3", "--max-staleness", "2")
    hybrid, asynchronous = (InProcess(tiny("gdpo", *stale, mode)).run() for mode in ("--hybrid", "--fully-async"))
    tokens = [[facts["fingerprint"] for facts in run.of("generate")] for run in (hybrid, asynchronous)]
    assert tokens[0][:2] == tokens[1][:2]  # both of version 0
    drift = [
        [facts["metrics"]["train_rollout_log_prob_difference"] for facts in run.of("train on batch")]
        for run in (hybrid, asynchronous)
    ]
    assert all(one == 0.0 for one in drift[1])
    assert drift[0][:2] == [0.0, 0.0]
    assert all(one > 0.0 for one in drift[0][2:])
    ratios = [[facts["metrics"]["ppo_kl"] for facts in run.of("train on batch")] for run in (hybrid, asynchronous)]
    assert ratios[0][2] == 0.0
    assert ratios[1][2] != 0.0


def test_ranks_share_a_batch() -> None:
    """Each rank trains on its part of every optimizer batch; the parts are the batch, in order."""
    args = tiny("gdpo", "--data-parallel-size", "2")
    actors = [Actor(args, LocalQueue(), rank=rank, size=2) for rank in range(2)]
    batch = batch_keys(args, 1)
    assert batch == [key for actor in actors for key in actor._own(batch)]
    assert len(actors[0]._own(batch)) == 4


def not_finite(args: Namespace, samples: list[Sample]) -> None:
    """Advantages of one's own, one of which is none."""
    for sample in samples:
        sample.custom_advantage = math.nan if sample.index == 11 else float(sample.response_length)


@pytest.mark.parametrize("mode", [(), ("--fully-async",)])
def test_advantages_that_are_not_finite(mode: tuple[str, ...]) -> None:
    """On both paths the run ends before anything is trained on them, with the rollout and the row."""
    own = ("--agentic-custom-advantage-path", "tests.runtime.test_roles:not_finite")
    run = InProcess(tiny("grpo", *own, *mode))
    before = run.bits()
    with pytest.raises(ValueError, match="rollout 0, row 11: an advantage is not finite"):
        run.run(until="train on batch 1")
    assert (before == run.bits()) == (mode == ())


def test_samples_that_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples count as trained where their loss is computed: a step that leaves some out is seen."""
    run = InProcess(tiny("gdpo")).run(until="train on batch 0")
    slices = train_step.micro_batches
    monkeypatch.setattr(train_step, "micro_batches", lambda batch, size: list(slices(batch, 2))[1:])
    run.run(since="train on batch 0", until="train on batch 1")
    (facts,) = run.of("train on batch 0")
    assert Counted.of(batch_keys(run.args, 0)[2:]) == facts["trained"]


def test_a_column_comes_once() -> None:
    """In the runs of these tests what is written into a row twice is seen: here the critic's values."""
    run = InProcess(tiny("ppo")).run(until="prepare batch 0")
    with pytest.raises(TransportError, match="column 'values' of row '000000/000000' is there already"):
        run.roles["critic"].values(batch=0, slice=0)


def test_weights_that_were_not_kept() -> None:
    """A version that nobody asked for while it was there cannot be had later."""
    run = InProcess(tiny("gdpo")).run()
    with pytest.raises(ValueError, match="weights 1 were not published, and now are 2"):
        run.roles["actor"].weights(1)
