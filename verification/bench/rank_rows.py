"""What real ranks cost: a case on the warm pool against processes started for it, and step 3 against all-reduces."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Iterator
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import torch
import torch.distributed as dist

from relax.algorithms.collective import collective_for
from relax.algorithms.exact import whiten_segments
from verification.bench.paired import Row, compare, row_of
from verification.ranks.layout import Layout
from verification.ranks.messages import PRELOAD
from verification.ranks.pool import RankPool
from verification.ranks.step3 import Shard

SEGMENTS, PER_SEGMENT = 16, 64
ROUNDS = 15


def rank_rows() -> Iterator[Row]:
    """Every row that takes ranks."""
    with RankPool() as pool:
        yield one_case(pool)
        yield step3(pool)


def one_case(pool: RankPool) -> Row:
    """Step 3 of 8 samples on two ranks: sent to the pool, and on two processes that are started for it."""
    shards = [Shard((1.0, 2.0, 4.0, 8.0), (2, 2)), Shard((3.0, 5.0, 7.0, 9.0), (2, 2))]

    def on_the_pool() -> None:
        pool.run("verification.ranks.step3:whiten_shard", shards, layout=Layout(dp=2)).values()

    on_the_pool()
    return compare(
        "a case on two ranks, warm pool",
        on_the_pool,
        "two processes started for it",
        lambda: _started_for_it(shards),
        measure="times faster",
        target=30,
        rounds=2,
    )


def step3(pool: RankPool) -> Row:
    """16 optimizer batches over four ranks, against three float64 all-reduces for each."""
    shards = [
        Shard(tuple(float((rank + 3) * k % 101) / 8 for k in range(SEGMENTS * PER_SEGMENT)), (PER_SEGMENT,) * SEGMENTS)
        for rank in range(4)
    ]
    run = pool.run(
        "verification.ranks.step3:race", [(shard, ROUNDS + 1) for shard in shards], layout=Layout(dp=4), deadline=120.0
    )
    by_rank = run.values()
    pairs = [  # the slowest rank's time is the collective call's
        (max(rank[k][0] for rank in by_rank), max(rank[k][1] for rank in by_rank)) for k in range(1, ROUNDS + 1)
    ]
    return row_of(
        f"GDPO step 3 over 4 ranks, {SEGMENTS} segments",
        "three all-reduces a segment, float64",
        pairs,
        measure="times faster",
        target=8,
    )


def _started_for_it(shards: list[Shard]) -> None:
    context = multiprocessing.get_context("spawn")
    answers: SimpleQueue[list[float]] = context.SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="relax-spawned-") as folder:
        address = (Path(folder) / "rendezvous").as_uri()
        ranks = [
            context.Process(target=_one_rank, args=(rank, len(shards), address, shard, answers), daemon=True)
            for rank, shard in enumerate(shards)
        ]
        for rank in ranks:
            rank.start()
        for _ in ranks:
            answers.get()
        for rank in ranks:
            rank.join()


def _one_rank(rank: int, world: int, address: str, shard: Shard, answers: SimpleQueue[list[float]]) -> None:
    """A rank that imports what a rank of the pool has imported before, works once, and ends."""
    __import__(PRELOAD)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
    values = torch.tensor(shard.values, dtype=torch.float32)
    whitened = whiten_segments(values, list(shard.sizes), collective=collective_for(dist.group.WORLD))
    answers.put(whitened.tolist())
    dist.destroy_process_group()
