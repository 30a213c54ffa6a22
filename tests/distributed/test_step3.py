"""GDPO's step 3 on real ranks: the bits of one process for every split, in two collectives, or one error for all."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.distributed.shards import WHITEN, batches_over, bits_of, in_one_process
from verification.ranks.layout import Layout
from verification.ranks.step3 import SPOILT, Shard


@pytest.mark.parametrize("world", range(1, 9))
def test_every_split_over_ranks_gives_the_bits_of_one_process(pool, world):
    """For worlds of one to eight: any plan of shards and batches, any scores, exactly two collectives."""

    @given(batches_over(world))
    def holds(shards):
        run = pool.run(WHITEN, shards, layout=Layout(dp=world))
        assert in_one_process(shards) == bits_of(run.values())
        assert [2] * world == [len(rank.collectives) for rank in run.ranks]

    holds()


@pytest.mark.parametrize("segments", [1, 3, 64, 1000])
def test_the_number_of_collectives_does_not_grow_with_the_segments(pool, segments):
    """One gather of int64 headers and one of float64 payload, for 1 segment as for 1,000; some belong to one rank."""
    shards = [
        Shard(tuple(float(k % 7) for k in range(segments)), (1,) * segments),
        Shard((), (0,) * segments),
        Shard(tuple(float(k % 5) for k in range(2 * segments)), (2,) * segments),
    ]
    run = pool.run(WHITEN, shards, layout=Layout(dp=3))
    assert in_one_process(shards) == bits_of(run.values())
    width = 3 * segments
    expected = ("all_to_all_single int64[3, 6] over 3 ranks", f"all_to_all_single float64[3, {width}] over 3 ranks")
    assert {expected} == {rank.collectives for rank in run.ranks}


@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("spoilt", SPOILT)
def test_one_rank_with_bad_arguments_is_one_error_on_every_rank(pool, spoilt, world):
    """Every rank meets in the first collective and raises the same ValueError, which names the rank and what is wrong;
    the world goes on."""
    culprit = world - 1
    shards = [Shard((1.0, 2.0), (1, 1), spoilt if rank == culprit else None) for rank in range(world)]
    run = pool.run(WHITEN, shards, layout=Layout(dp=world))
    assert run.fault_fired == 1
    assert ("failure",) * world == run.ended
    assert {"ValueError"} == {rank.failure.kind for rank in run.ranks}
    assert len({rank.failure.message for rank in run.ranks}) == 1
    assert [1] * world == [len(rank.collectives) for rank in run.ranks]
    said = run.ranks[0].failure.message
    assert f"rank {culprit}: " in said
    assert SPOILT[spoilt][1] in said
    if spoilt != "one-segment-more":
        assert "rank 0" not in said
    good = [Shard((1.0, 2.0), (1, 1))] * world
    assert in_one_process(good) == bits_of(pool.run(WHITEN, good, layout=Layout(dp=world)).values())


def test_every_rank_in_trouble_is_named(pool):
    """Three ranks with three faults: the message lists each with its own complaint."""
    spoilt = ("nan", None, "float64", "no-plan")
    run = pool.run(WHITEN, [Shard((1.0,), (1,), kind) for kind in spoilt], layout=Layout(dp=4))
    assert run.fault_fired == 3
    said = {rank.failure.message for rank in run.ranks}
    expected = (
        "whitening over the optimizer batch: rank 0: value 1 is not finite; rank 2: its values are not float32; "
        "rank 3: mini_batch_sizes is None: give the number of samples that it holds of each optimizer batch"
    )
    assert {expected} == said
