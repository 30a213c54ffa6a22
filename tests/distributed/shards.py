"""Optimizer batches spread over ranks, any of them, and what one process makes of them."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st

from relax.algorithms.exact.gdpo import whiten
from verification.cases.strategies import shard_plans
from verification.ranks.step3 import Shard

WHITEN = "verification.ranks.step3:whiten_shard"

SPECIAL = (0.0, -0.0, 1e-45, -3e-39, 1.1754944e-38, 3.4028235e38, -3.4028235e38, 1000.01, 1000.02, 1.0, 0.1, -7.5)
SCORES = st.one_of(st.sampled_from(SPECIAL), st.integers(-(2**20), 2**20).map(lambda k: k / 2**17))
scores = SCORES.map(lambda value: float(np.float32(value)))


@st.composite
def batches_over(draw: st.DrawFn, world: int) -> list[Shard]:
    """Optimizer batches spread over ``world`` ranks, empty shards and empty batches among them."""
    batches = draw(st.lists(st.lists(scores, max_size=9), min_size=1, max_size=4))
    plan = draw(shard_plans([len(batch) for batch in batches], ranks=world))
    taken = [0] * len(batches)
    shards = []
    for sizes in plan:
        held: list[float] = []
        for batch, size in enumerate(sizes):
            held += batches[batch][taken[batch] : taken[batch] + size]
            taken[batch] += size
        shards.append(Shard(tuple(held), tuple(sizes)))
    return shards


def in_one_process(shards: list[Shard]) -> list[list[int]]:
    """Each rank's expected bits: every batch whitened as a whole, and cut again."""
    expected: list[list[int]] = [[] for _ in shards]
    for batch in range(len(shards[0].sizes)):
        parts = []
        for shard in shards:
            start = sum(shard.sizes[:batch])
            parts.append(shard.values[start : start + shard.sizes[batch]])
        bits = whiten(np.array([value for part in parts for value in part], dtype=np.float32)).view(np.int32).tolist()
        for rank, part in enumerate(parts):
            expected[rank] += bits[: len(part)]
            bits = bits[len(part) :]
    return expected


def bits_of(values: list[torch.Tensor]) -> list[list[int]]:
    return [value.view(torch.int32).tolist() for value in values]
