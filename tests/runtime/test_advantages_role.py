"""The advantages role: whole optimizer batches, whatever slices they come in, and each row once."""

from __future__ import annotations

import pytest

from relax.components.advantages import Advantages
from relax.core.rows import batch_keys, rollout_keys, slice_keys
from relax.transport.queue import TransportError
from tests.runtime.advantage_rows import BATCH, WRITTEN, bits_of, filled, options
from tests.runtime.local_queue import LocalQueue
from tests.runtime.rank_tasks import advantages_of_share
from verification.ranks.layout import Layout
from verification.ranks.pool import RankPool


@pytest.mark.parametrize("algorithm", ["gdpo", "grpo", "ppo"])
@pytest.mark.usefixtures("alone")
def test_bits_of_the_colocated_path(algorithm: str) -> None:
    """In any order of slices, the rows of a batch get the bits that the colocated path gives the same rows."""
    args = options(algorithm)
    expected = advantages_of_share(algorithm)
    keys = batch_keys(args, 0)
    assert sorted(expected) == keys
    assert len({bits["advantages"] for bits in expected.values()}) == BATCH
    for count, order in ((1, [0]), (2, [0, 1]), (2, [1, 0]), (4, [2, 0, 3, 1]), (8, [7, 3, 5, 1, 0, 2, 6, 4])):
        queue = filled(args)
        role = Advantages(options(algorithm, "--num-iters-per-train-update", str(count)), queue)
        for slice in order:
            found = role.add(0, slice)
        assert found["whitened"] == BATCH
        assert bits_of(queue, keys) == [expected[key] for key in keys]


@pytest.mark.parametrize("algorithm", ["gdpo", "grpo", "ppo"])
def test_bits_of_two_ranks(pool: RankPool, algorithm: str) -> None:
    """The rows of a batch get the bits that two data-parallel ranks give them, each its share."""
    args = options(algorithm)
    shares = pool.run(
        "tests.runtime.rank_tasks:advantages_of_share",
        [algorithm] * 2,
        layout=Layout(dp=2),
        megatron=True,
        deadline=120.0,
    ).values()
    assert [len(share) for share in shares] == [BATCH // 2] * 2
    queue, keys = filled(args), batch_keys(args, 0)
    Advantages(args, queue).add(0, 0)
    assert bits_of(queue, keys) == [(shares[0] | shares[1])[key] for key in keys]


def in_slices(count: int, *more: str) -> tuple[Advantages, LocalQueue]:
    """The role, whose optimizer batches come in ``count`` slices, with its queue."""
    args = options("gdpo", "--num-iters-per-train-update", str(count), *more)
    queue = filled(args, rollouts=4)
    return Advantages(args, queue), queue


def test_nothing_before_the_batch_is_whole() -> None:
    """Rows get their columns with the last slice of their batch, and the count says so; the next batch follows."""
    role, queue = in_slices(2)
    assert role.add(0, 0)["whitened"] == 0
    with pytest.raises(TransportError, match="has no column 'advantages'"):
        queue.get(slice_keys(role.args, 0, 0), ["advantages"])
    assert [role.add(batch, slice)["whitened"] for batch, slice in ((0, 1), (1, 0), (1, 1))] == [8, 8, 16]
    written = queue.get([*batch_keys(role.args, 0), *batch_keys(role.args, 1)], WRITTEN)
    assert len(written["advantages"]) == 2 * BATCH


def test_batch_over_rollouts() -> None:
    """An optimizer batch may be that of two rollouts, and a role may begin with any batch, as after a resume."""
    role, queue = in_slices(2, "--global-batch-size", "32", "--num-rollout", "4")
    assert [role.add(1, slice)["whitened"] for slice in range(2)] == [0, 32]
    for rollout in range(4):
        assert ("advantages" in queue.rows[rollout_keys(role.args, rollout)[0]]) == (rollout in (2, 3))


def test_each_slice_once() -> None:
    """A slice given twice is refused, in its batch and after it, and leaves the batch as it was."""
    role, _ = in_slices(2)
    said = r"slice 0 of batch 0 was given to the advantages before: each goes in once"
    role.add(0, 0)
    with pytest.raises(ValueError, match=said):
        role.add(0, 0)
    assert role.add(0, 1)["whitened"] == BATCH
    with pytest.raises(ValueError, match=said):
        role.add(0, 0)
    role.add(1, 0)
    with pytest.raises(ValueError, match=said):
        role.add(0, 0)
    assert role.add(1, 1)["whitened"] == 2 * BATCH


def test_one_batch_at_a_time() -> None:
    """A slice of the next batch is refused until this one is whole, and leaves it as it was."""
    role, _ = in_slices(2)
    role.add(0, 1)
    said = "slice 0 is of batch 1, and the advantages have 1 of the 2 slices of batch 0: a batch is whole before"
    with pytest.raises(ValueError, match=said):
        role.add(1, 0)
    assert role.add(0, 0)["whitened"] == BATCH
    assert role.add(1, 0)["whitened"] == BATCH


def test_missing_column() -> None:
    """A slice whose rows lack what they need is refused by name, and may come again with it."""
    role, queue = in_slices(2)
    role.add(0, 0)
    key = slice_keys(role.args, 0, 1)[1]
    lost = queue.rows[key].pop("ref_log_probs")
    with pytest.raises(TransportError, match="row '000000/000005' of the queue has no column 'ref_log_probs'"):
        role.add(0, 1)
    queue.rows[key]["ref_log_probs"] = lost
    assert role.add(0, 1)["whitened"] == BATCH
