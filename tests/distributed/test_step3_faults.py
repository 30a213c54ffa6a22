"""Faults in step 3 on real ranks: each fires, every rank that survives ends in time, and the pool goes on."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.distributed.shards import WHITEN, batches_over, bits_of, in_one_process
from verification.ranks.faults import Fault
from verification.ranks.layout import Layout
from verification.ranks.pool import RankPool
from verification.ranks.results import RankRun
from verification.ranks.step3 import SPOILT, Shard

# Seconds that a collective waits for a lost rank. A rank so slow that it was given up before it met its fault shows
# nothing: it is tried again with more time.
TIMEOUTS = (0.8, 5.0)
MARGIN = 2.5  # seconds beyond that until a rank counts as hung
GENERATED = 10  # for each kind and world: 510 in all

# kind: how the rank itself ends, and at which of the two collectives it may strike
DEADLY = {"kill-before": ("died", (1, 2)), "kill-between": ("died", (1,)), "kill-after": ("died", (1,))}
ABSENT = {"skip": ("skipped", (1, 2)), "raise": ("failure", (1,))}
STUCK = {"hang": ("hung", (2,))}
LOST = {**DEADLY, **ABSENT, **STUCK}
MATRIX = [(kind, at) for kind, (_, places) in LOST.items() for at in places]


def shards_of(world: int) -> list[Shard]:
    return [Shard(tuple(float(k * k) for k in range(rank + 1)), (rank, 1)) for rank in range(world)]


def run_with(pool: RankPool, shards: list[Shard], fault: Fault) -> RankRun:
    """What became of the ranks: one that has not ended by itself `MARGIN` seconds after the time-out is "hung"."""
    for timeout in TIMEOUTS:
        layout = Layout(dp=len(shards))
        run = pool.run(WHITEN, shards, layout=layout, fault=fault, timeout=timeout, deadline=timeout + MARGIN)
        if run.fault_fired:
            break
    return run


def require_whole(run: RankRun, shards: list[Shard]) -> None:
    """Every rank returned the bits of one process."""
    assert in_one_process(shards) == bits_of(run.values())


def require_joint_end(run: RankRun, fault: Fault) -> None:
    """The fault fired once, its rank ended as that kind does, and every other rank lost a peer in a collective."""
    assert run.fault_fired == 1, run.report()
    ended = LOST[fault.kind][0]
    for rank in run.ranks:
        if rank.rank == fault.rank:
            assert rank.ended == ended, run.report()
        else:
            assert rank.failure is not None, run.report()
            assert rank.failure.kind == "LostPeer", run.report()
            assert f"over {run.layout.world} ranks failed on rank {rank.rank}" in rank.failure.message


@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize(("kind", "at"), MATRIX)
def test_a_rank_that_is_lost_is_an_error_on_every_survivor(pool, kind, at, world):
    """Killed before, between or after collectives, absent, stuck or failed before the call: no survivor hangs, each
    says which collective failed, and the next task finds a whole world."""
    shards, fault = shards_of(world), Fault(kind, rank=at % world, at=at)
    pool.run(WHITEN, shards, layout=Layout(dp=world)).values()
    run = run_with(pool, shards, fault)
    require_joint_end(run, fault)
    require_whole(pool.run(WHITEN, shards, layout=Layout(dp=world)), shards)


@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("at", [1, 2])
def test_a_rank_that_is_late_changes_nothing(pool, world, at):
    """A delay before a collective fires, and every rank has the bits of one process."""
    shards = shards_of(world)
    fault = Fault("delay", rank=0, at=at, seconds=0.1)
    run = pool.run(WHITEN, shards, layout=Layout(dp=world), fault=fault)
    assert run.fault_fired == 1
    require_whole(run, shards)


@pytest.mark.parametrize("world", [2, 3, 4])
def test_a_rank_killed_after_the_last_collective_has_done_its_part(pool, world):
    """Those who survive have either the bits of one process or an error, never other numbers."""
    shards = shards_of(world)
    run = run_with(pool, shards, Fault("kill-after", rank=world - 1, at=2))
    assert run.fault_fired == 1
    assert run.ranks[world - 1].died == "SIGKILL"
    for expected, rank in zip(in_one_process(shards)[:-1], run.ranks[:-1], strict=True):
        assert rank.ended in ("value", "failure")
        if rank.ended == "value":
            assert [expected] == bits_of([rank.value])


@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("kind", [*SPOILT, *DEADLY, *ABSENT, "delay"])
def test_generated_faults_never_hang(pool, kind, world):
    """Any rank of any batches: the bits of one process after a delay, one error for all after bad arguments, an error
    on every survivor where a rank is lost."""
    tried = 0

    @settings(max_examples=GENERATED, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(batches_over(world), st.integers(0, world - 1), st.sampled_from(LOST.get(kind, (None, (1, 2)))[1]))
    def holds(shards, rank, at):
        nonlocal tried
        tried += 1
        if kind in LOST:
            fault = Fault(kind, rank=rank, at=at)
            run = run_with(pool, shards, fault)
            require_joint_end(run, fault)
        elif kind == "delay":
            run = pool.run(WHITEN, shards, layout=Layout(dp=world), fault=Fault(kind, rank=rank, at=at, seconds=0.05))
            assert run.fault_fired == 1
            require_whole(run, shards)
        else:
            shards[rank] = Shard(shards[rank].values, shards[rank].sizes, kind)
            run = pool.run(WHITEN, shards, layout=Layout(dp=world))
            assert run.fault_fired == 1
            assert {"ValueError"} == {one.failure.kind for one in run.ranks}
            assert len({one.failure.message for one in run.ranks}) == 1
            assert f"rank {rank}: " in run.ranks[0].failure.message

    holds()
    assert tried >= GENERATED
