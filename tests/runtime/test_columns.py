"""Samples to columns, and columns to ranks and optimizer batches."""

from __future__ import annotations

import math

import pytest
import torch

from relax.core.rows import row_keys
from relax.rollout.columns import require_finite, rollout_columns, sequence_columns, take
from relax.rollout.mini_batches import mini_batch_plan
from relax.types import Sample
from tests.runtime.small_run import arguments


def samples() -> list[Sample]:
    """Two prompt groups of two."""
    return [
        Sample(
            index=index,
            group_index=index // 2,
            tokens=list(range(10, 14 + index)),
            response_length=index,
            reward={"correctness": index % 2, "format": 0.5 * (index > 2), "total": index},
            loss_mask=[1, 0] if index == 2 else None,
            rollout_log_probs=[-0.1] * index,
        )
        for index in range(4)
    ]


def test_columns() -> None:
    """Every column has one entry a sample, masks default to ones, and rewards are those of the reward stage."""
    args = arguments("grpo", prompts=2, group=2)
    columns = rollout_columns(args, samples())
    assert columns["response_lengths"] == [0, 1, 2, 3]
    assert [4, 5, 6, 7] == columns["total_lengths"] == [len(ids) for ids in columns["tokens"]]
    assert [mask.tolist() for mask in columns["loss_masks"]] == [[], [1.0], [1.0, 0.0], [1.0, 1.0, 1.0]]
    assert columns["raw_reward"] == [0.0, 1.0, 2.0, 3.0]
    assert [pytest.approx(sign * 0.5**0.5, rel=1e-5) for sign in (-1, 1, -1, 1)] == columns[
        "rewards"
    ]  # reason: epsilon
    assert torch.equal(torch.full((3,), -0.1), columns["rollout_log_probs"][3])
    assert {"tokens", "total_lengths", "response_lengths", "loss_masks"} == sequence_columns([]).keys()


def test_log_probs_that_are_not_there() -> None:
    """One sample without recorded log-probs leaves the column out."""
    some = samples()
    some[1].rollout_log_probs = None
    assert "rollout_log_probs" not in rollout_columns(arguments("grpo", prompts=2, group=2), some)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_advantages_that_are_not_finite(number: float) -> None:
    """The first row with one is named by its rollout and its place in it; an empty response has none."""
    advantages = [torch.ones(3), torch.zeros(0), torch.tensor([1.0, number]), torch.tensor([number])]
    keys = row_keys(7, range(9, 13))
    require_finite(keys[:2], advantages[:2])
    with pytest.raises(
        ValueError, match="rollout 7, row 11: an advantage is not finite, and nothing was trained on it"
    ):
        require_finite(keys, advantages)


@pytest.mark.parametrize(("batch", "size"), [(16, 1), (8, 1), (8, 2), (4, 4), (16, 2)])
def test_plan(batch: int, size: int) -> None:
    """Optimizer batch k is the same samples for any number of ranks, each of which holds its part of it."""
    plans = [mini_batch_plan(16, batch, rank=rank, size=size) for rank in range(size)]
    for k in range(16 // batch):
        assert list(range(k * batch, (k + 1) * batch)) == [one for plan in plans for one in plan.batches[k]]
    for plan in plans:
        assert [batch // size] * (16 // batch) == plan.sizes
        own = take({"position": range(16)}, plan.positions)["position"]
        assert [list(positions) for positions in plan.batches] == [
            [own[index] for index in indices] for indices in plan.own_batches
        ]


@pytest.mark.parametrize(("batch", "size"), [(5, 1), (8, 3), (32, 1)])
def test_plans_refused(batch: int, size: int) -> None:
    """Samples that fill no whole batches, and ranks that do not divide one, are told with their numbers."""
    with pytest.raises(ValueError, match=rf"16 samples in optimizer batches of {batch} over {size} data-parallel"):
        mini_batch_plan(16, batch, size=size)
