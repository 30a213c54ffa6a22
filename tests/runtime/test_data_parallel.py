"""Data parallelism: the ranks have the same bits as one another, and the advantages those of one rank."""

from __future__ import annotations

import struct

import pytest

from tests.runtime.rank_tasks import flattened, one_rollout
from verification.ranks.layout import Layout
from verification.ranks.pool import RankPool

DEADLINE = 120.0  # seconds for a rollout on every rank, on a machine that is busy


@pytest.mark.parametrize("algorithm", ["gdpo", "grpo", "ppo"])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.usefixtures("alone")
def test_ranks(pool: RankPool, algorithm: str, size: int) -> None:
    """All ranks end with the same weights and moments; samples are dealt once; advantages have the bits of one rank."""
    whole = one_rollout(algorithm)
    ranks = pool.run(
        "tests.runtime.rank_tasks:one_rollout",
        [algorithm] * size,
        layout=Layout(dp=size),
        megatron=True,
        deadline=DEADLINE,
    ).values()
    dealt = {
        key: advantages for rank in ranks for key, advantages in zip(rank["keys"], rank["advantages"], strict=True)
    }
    assert sorted(whole["keys"]) == sorted(key for rank in ranks for key in rank["keys"])
    assert all(norm > 1e-3 for norm in whole["norms"])
    assert len({struct.unpack("f", one[:4]) for one in whole["advantages"] if one}) > 8
    for rank in ranks:
        assert ranks[0]["bits"] == rank["bits"]
        assert whole["rollout"] == rank["rollout"]
        assert rank["keys"] == rank["trained"]
    assert dict(zip(whole["keys"], whole["advantages"], strict=True)) == dealt
    for expected, found in zip(whole["metrics"], ranks[0]["metrics"], strict=True):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)  # reason: float32 sums in parts, over two steps
    assert ranks[0]["norms"] == pytest.approx(whole["norms"], rel=1e-3)  # reason: as above
    distance = (flattened(whole["bits"]) - flattened(ranks[0]["bits"])).abs()
    # reason: Adam's first steps are signs of gradients, which a rounding turns where the gradient is next to 0
    assert float((distance > 1e-4).double().mean()) < 1e-2
    # reason: a step moves a weight by its rate of 1e-3, hardly more, and two steps' signs may both have turned
    assert float(distance.max()) < 5e-3


def test_repeatable(pool: RankPool) -> None:
    """Two ranks give the same bits in a second run."""
    first, second = (
        pool.run(
            "tests.runtime.rank_tasks:one_rollout", ["gdpo"] * 2, layout=Layout(dp=2), megatron=True, deadline=DEADLINE
        ).values()
        for _ in range(2)
    )
    assert first == second


def test_one_rank_fails(pool: RankPool) -> None:
    """What is wrong with the batch of one rank is said on both, naming it, and neither waits for the other."""
    said = pool.run(
        "tests.runtime.rank_tasks:broken_rollout", [1, 1], layout=Layout(dp=2), megatron=True, deadline=DEADLINE
    ).values()
    assert said[0] == said[1]
    assert "RankFailure" in said[0]
    assert "rank 1: ValueError: response" in said[0]
