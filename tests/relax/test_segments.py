"""GDPO's step 3 over optimizer batches and ranks: two collectives, the same bits, the same error on every rank."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relax.algorithms.exact import whiten_scalar, whiten_segments
from relax.algorithms.exact.gdpo import whiten
from relax.algorithms.simulated import SimulatedWorld


def on_every_rank(values: list, sizes: list, batch_ids: list | None = None) -> tuple[list, list[int]]:
    """Each rank's tensor or exception, and how many exchanges each rank took part in."""
    world = SimulatedWorld(len(values))
    ids = batch_ids or [None] * len(values)
    results = world.run(
        lambda collective, own: whiten_segments(own[0], own[1], collective=collective, batch_ids=own[2]),
        list(zip(values, sizes, ids, strict=True)),
    )
    return results, world.exchanges


def f32(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


score = st.sampled_from([0.0, 1.0, -1.0, 0.25, 1000.0, 1000.01, -3.5, 1e-45, 3e38])
plans = st.integers(1, 4).flatmap(  # [ranks][segments] lists of scores, empty ones among them
    lambda segments: st.lists(
        st.lists(st.lists(score, max_size=4), min_size=segments, max_size=segments), min_size=1, max_size=5
    )
)


@given(plans)
def test_every_split_over_ranks_gives_the_bits_of_one_process(plan):
    """Each optimizer batch is whitened as a whole, in two exchanges, and each rank gets back its own samples."""
    values = [f32(*[value for segment in rank for value in segment]) for rank in plan]
    sizes = [[len(segment) for segment in rank] for rank in plan]
    results, exchanges = on_every_rank(values, sizes)
    assert [2] * len(plan) == exchanges
    batches = [whiten(np.array([v for rank in plan for v in rank[k]], dtype=np.float32)) for k in range(len(plan[0]))]
    cursors = [0] * len(batches)
    for rank, result in zip(plan, results, strict=True):
        expected = []
        for k, segment in enumerate(rank):
            expected += batches[k][cursors[k] : cursors[k] + len(segment)].tolist()
            cursors[k] += len(segment)
        assert f32(*expected).view(torch.int32).tolist() == result.view(torch.int32).tolist()


@pytest.mark.parametrize(
    ("values", "sizes", "words"),
    [
        (f32(1, 2), None, "mini_batch_sizes is None"),
        (f32(1, 2), [3, -1], "mini_batch_sizes[1] is not an int of 0 or more"),
        (f32(1, 2), [1.0, 1], "mini_batch_sizes[0] is not an int of 0 or more"),
        (f32(1, 2), [True, 1], "mini_batch_sizes[0] is not an int of 0 or more"),
        (f32(1, 2), 2, "mini_batch_sizes[0] is not an int of 0 or more"),
        (f32(1, 2), torch.tensor(2), "mini_batch_sizes[0] is not an int of 0 or more"),
        (f32(1, 2), np.array(2), "mini_batch_sizes[0] is not an int of 0 or more"),
        (f32(*range(44)), np.array([200, 100], dtype=np.uint8), "mini_batch_sizes sum to 300, but it holds 44 samples"),
        (f32(1, 2), [1, 2**80], "mini_batch_sizes sum to 4611686018427387904, but it holds 2 samples"),
        (f32(1, 2), [1, 2], "mini_batch_sizes sum to 3, but it holds 2 samples"),
        (f32(1, 2).double(), [1, 1], "its values are not float32"),
        (f32(1, 2).reshape(2, 1), [1, 1], "its values are not one-dimensional"),
        (f32(1, float("nan")), [1, 1], "value 1 is not finite"),
        (f32(float("-inf"), 0), [1, 1], "value 0 is not finite"),
    ],
)
def test_one_rank_in_trouble_is_the_same_error_on_every_rank(values, sizes, words):
    """All ranks meet in the first exchange and raise one message, which names the rank and its complaint."""
    results, exchanges = on_every_rank([f32(3, 4), values, f32()], [[1, 1], sizes, [0, 0]])
    assert exchanges == [1, 1, 1]
    assert {ValueError} == {type(result) for result in results}
    assert len({str(result) for result in results}) == 1
    assert f"rank 1: {words}" in str(results[0])
    assert "rank 0" not in str(results[0])


def test_two_ranks_in_trouble_are_both_named():
    """The message lists each rank with a complaint."""
    results, _ = on_every_rank([f32(1), f32(float("inf"))], [None, [1]])
    assert "rank 0: mini_batch_sizes is None" in str(results[1])
    assert "rank 1: value 0 is not finite" in str(results[0])


def test_unequal_numbers_of_optimizer_batches_are_refused():
    """Every rank learns each rank's count."""
    results, exchanges = on_every_rank([f32(1, 2), f32(1, 2)], [[2], [1, 1]])
    assert exchanges == [1, 1]
    assert all(
        "rank 0: number of optimizer batches 1; rank 1: number of optimizer batches 2" in str(r) for r in results
    )


def test_another_order_of_optimizer_batches_is_refused_where_ids_are_given():
    """With batch ids, segment k is checked to be the same batch on every rank."""
    values, sizes = [f32(1, 2), f32(3, 5)], [[1, 1], [1, 1]]
    results, _ = on_every_rank(values, sizes, [["a", "b"], ["b", "a"]])
    assert all("hash of the batch ids" in str(result) for result in results)
    results, _ = on_every_rank(values, sizes, [["a", "b"], ["a", "b"]])
    assert whiten(np.array([1, 3], dtype=np.float32))[0] == results[0][0]


def test_where_most_ranks_agree_only_the_others_are_listed():
    """At 100 ranks, one of them with a batch more, the message names that rank and what all others have."""
    results, _ = on_every_rank([f32(1)] * 100, [[1]] * 99 + [[1, 0]])
    expected = "rank 99: number of optimizer batches 2; all other ranks: number of optimizer batches 1"
    assert {f"whitening over the optimizer batch: {expected}"} == {str(result) for result in results}


@pytest.mark.parametrize("ids", [["a"], ["a", 1], ["a", "b", "c"], 7, "ab"])
def test_batch_ids_that_do_not_fit_are_refused_on_every_rank(ids):
    """Another number of ids than of batches, or an id that is no text, is a complaint of that rank like any other."""
    results, exchanges = on_every_rank([f32(1, 2), f32(3, 5)], [[1, 1], [1, 1]], [["a", "b"], ids])
    assert exchanges == [1, 1]
    assert all("rank 1: batch_ids are not one str for each optimizer batch" in str(result) for result in results)


def test_values_for_another_number_of_responses_are_refused_before_they_are_whitened():
    """The count of responses travels in the first exchange, so that no rank goes on alone."""
    with pytest.raises(ValueError, match="rank 0: it holds 2 values for 3 responses"):
        whiten_segments(f32(1, 2), [2], responses=3)


def test_whiten_scalar_is_one_batch():
    """A tensor without a process group is whitened as one optimizer batch, and the input is left alone."""
    values = f32(1, 2, 4)
    whitened = whiten_scalar(values)
    assert whiten(values.numpy()).tolist() == whitened.tolist()
    assert values.tolist() == [1.0, 2.0, 4.0]
    assert torch.float32 == whitened.dtype


@pytest.mark.parametrize(
    ("values", "words"),
    [([1.0, 2.0], "not float32"), (f32(1, 2).double(), "not float32"), (f32(float("nan"), 0), "value 0 is not finite")],
)
def test_whiten_scalar_refuses_what_is_no_batch_of_scores(values, words):
    """A list, another dtype and a NaN are each an error that says so."""
    with pytest.raises(ValueError, match=f"rank 0: .*{words}"):
        whiten_scalar(values)
