"""Worlds whose ranks keep their tensors on devices of their own: NCCL with a GPU each; the same programs over gloo."""

from __future__ import annotations

import pytest
import torch

from relax.algorithms.collective import LocalCollective
from relax.algorithms.exact import whiten_segments
from relax.algorithms.formulas.log_probs import vocab_parallel_log_probs
from relax.algorithms.formulas.token_normalization import token_global, whiten
from verification.cases.integers import Integers
from verification.devices.device import why_no_gpu
from verification.devices.plan import worlds
from verification.judges.bits import first_difference
from verification.ranks.layout import Layout
from verification.ranks.pool import RankPool
from verification.ranks.step3 import Shard

PROGRAMS = "verification.devices.programs"
ON_GPUS = [pytest.param("nccl", layout.world, id=f"nccl-{layout.name}") for layout in worlds(torch.cuda.device_count())]
NO_GPU = [pytest.param("nccl", 1, id="nccl", marks=pytest.mark.skip(reason=why_no_gpu()))]
ON_CPUS = [pytest.param("gloo", world, id=f"gloo-{Layout(dp=world).name}") for world in (1, 2)]
WORLDS = pytest.mark.parametrize(("backend", "world"), [*ON_CPUS, *(ON_GPUS or NO_GPU)])


@pytest.fixture(scope="module")
def pools():
    """A pool for each backend."""
    made: dict[str, RankPool] = {}
    yield lambda backend: made.setdefault(backend, RankPool(backend=backend))
    for pool in made.values():
        pool.close()


def on_ranks(pool: RankPool, program: str, arguments: list) -> list[list[torch.Tensor]]:
    """What each rank gave; every result lay on the rank's own device, and two runs have the same bits."""
    layout = Layout(dp=len(arguments))
    runs = [pool.run(f"{PROGRAMS}:{program}", arguments, layout=layout, deadline=120.0).values() for _ in range(2)]
    ranks = [[placed if isinstance(placed, list) else [placed] for placed in run] for run in runs]
    assert all(there for run in ranks for results in run for _, there in results)
    for one, other in zip(*ranks, strict=True):
        for (first, _), (second, _) in zip(one, other, strict=True):
            assert first_difference(first, second) is None
    return [[tensor for tensor, _ in results] for results in ranks[0]]


@WORLDS
def test_step_3_has_the_cpus_bits(pools, backend, world):
    """Two optimizer batches over the ranks, the second one empty on rank 0, are whitened to the bits of one process."""
    stream = Integers(f"gpu/step-3/{world}")
    shards = [
        Shard(tuple(stream.quotients(5 + 3 * rank, -8 << 10, 8 << 10, 10)), (5, 3 * rank)) for rank in range(world)
    ]
    ranks = on_ranks(pools(backend), "whiten_batches", shards)
    scores = torch.tensor([*sum((s.values[:5] for s in shards), ()), *sum((s.values[5:] for s in shards), ())])
    sizes = [5 * world, sum(3 * rank for rank in range(world))]
    first, second = whiten_segments(scores, sizes).split(sizes)
    parts = zip(first.split(5), second.split([3 * rank for rank in range(world)]), strict=True)
    for (got,), own in zip(ranks, parts, strict=True):
        assert first_difference(got, torch.cat(own)) is None
    assert first.abs().max() > 0.5


@WORLDS
def test_token_normalisation_is_near_that_of_one_process(pools, backend, world):
    """Tokens split over ranks are normalised by the statistics of all of them, ranks without a token included."""
    stream = Integers(f"gpu/tokens/{world}")
    lengths = [300 * rank for rank in range(world)] if world > 1 else [300]
    shards = [torch.tensor(stream.quotients(length, -4 << 12, 4 << 12, 12)) for length in lengths]
    ranks = on_ranks(pools(backend), "normalize_tokens", shards)
    whole = torch.cat(shards)
    for place, normalize in enumerate((whiten, token_global)):
        (expected,) = normalize([whole], [torch.ones_like(whole)], LocalCollective())
        got = torch.cat([results[place] for results in ranks])
        # reason: sums of a few hundred tokens in another order; values near the mean lose more of their own digits.
        assert torch.allclose(got, expected, rtol=2**-18, atol=2**-20)
        assert expected.abs().max() > 0.9


@WORLDS
def test_log_probs_over_a_cut_vocabulary(pools, backend, world):
    """Every rank has the same log-probs and entropies, near those of the CPU, and the gradient of its own part."""
    stream = Integers(f"gpu/log-probs/{world}")
    numbers = stream.quotients(9 * 64 * world, -8 << 10, 8 << 10, 10)
    logits = torch.tensor(numbers).reshape(9, -1)
    tokens = torch.tensor([stream.below(64 * world) for _ in range(9)])
    ranks = on_ranks(pools(backend), "shard_of_log_probs", [(part, tokens) for part in logits.chunk(world, dim=1)])
    leaf = logits.requires_grad_()
    log_probs, entropy = vocab_parallel_log_probs(leaf, tokens, LocalCollective())
    (gradient,) = torch.autograd.grad((log_probs + entropy).sum(), leaf)
    for results in ranks:
        assert first_difference(results[0], ranks[0][0]) is None
        assert first_difference(results[1], ranks[0][1]) is None
        # reason: a few ulps of 32, within which all logits, logarithms and results lie.
        assert torch.allclose(results[0], log_probs, rtol=0, atol=2**-17)
        assert torch.allclose(results[1], entropy, rtol=0, atol=2**-17)  # reason: a few ulps of 32, as above.
    # reason: probabilities times numbers below 20, each off by a few ulps of theirs.
    assert torch.allclose(torch.cat([results[2] for results in ranks], dim=1), gradient, rtol=0, atol=2**-19)
