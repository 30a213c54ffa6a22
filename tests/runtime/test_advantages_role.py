"""The advantages role: whole optimizer batches, whatever slices they come in, and each row once."""

from __future__ import annotations

import pytest

from relax.components.advantages import Advantages
from relax.core.rows import batch_keys, rollout_keys, slices_of
from relax.transport.queue import TransportError
from tests.runtime.advantage_rows import BATCH, WRITTEN, bits_of, filled, options
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
        role, slices = Advantages(args, queue), slices_of(keys, count)
        for number in order:
            found = role.add(slices[number])
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
    Advantages(args, queue).add(keys)
    assert bits_of(queue, keys) == [(shares[0] | shares[1])[key] for key in keys]


def test_nothing_before_the_batch_is_whole() -> None:
    """Rows get their columns with the last slice of their batch, and the count says so; the next batch follows."""
    args = options("gdpo")
    queue = filled(args)
    role = Advantages(args, queue)
    first, second = (slices_of(batch_keys(args, batch), 2) for batch in (0, 1))
    assert role.add(first[0])["whitened"] == 0
    with pytest.raises(TransportError, match="has no column 'advantages'"):
        queue.get(first[0], ["advantages"])
    assert [role.add(keys)["whitened"] for keys in (first[1], second[0], second[1])] == [8, 8, 16]
    assert len(queue.get([*batch_keys(args, 0), *batch_keys(args, 1)], WRITTEN)["advantages"]) == 2 * BATCH


def test_batch_over_rollouts() -> None:
    """An optimizer batch may be that of two rollouts, and a role may begin with any batch, as after a resume."""
    args = options("gdpo", "--global-batch-size", "32")
    queue = filled(args, rollouts=4)
    role = Advantages(args, queue)
    assert role.add(rollout_keys(args, 2))["whitened"] == 0
    assert role.add(rollout_keys(args, 3))["whitened"] == 32
    assert "advantages" not in queue.rows[rollout_keys(args, 0)[0]]


def test_each_row_once() -> None:
    """A row given twice is refused, in one slice, in its batch and after it, and leaves the batch as it was."""
    args = options("gdpo")
    role = Advantages(args, filled(args))
    first, second = (batch_keys(args, batch) for batch in (0, 1))
    role.add(first[:4])
    for keys in ([first[4], first[4]], first[3:5]):
        with pytest.raises(ValueError, match=r"row '000000/00000[34]' of batch 0 was given to the advantages before"):
            role.add(keys)
    assert role.add(first[4:])["whitened"] == BATCH
    with pytest.raises(ValueError, match="row '000000/000002' of batch 0 was given to the advantages before"):
        role.add(first[2:3])
    role.add(second[:1])
    with pytest.raises(ValueError, match="row '000000/000002' of batch 0 was given to the advantages before"):
        role.add(first[2:3])
    assert role.add(second[1:])["whitened"] == 2 * BATCH


def test_no_row_too_many() -> None:
    """Rows of the next batch are refused until this one is whole, alone or behind its last rows."""
    args = options("gdpo")
    role = Advantages(args, filled(args))
    first, second = (batch_keys(args, batch) for batch in (0, 1))
    role.add(first[:4])
    expected = "row '000000/000008' is of batch 1, and the advantages have 4 of the 8 rows of batch 0"
    for keys in (second[:4], [*first[4:], second[0]]):
        with pytest.raises(ValueError, match=expected):
            role.add(keys)
    assert role.add(first[4:])["whitened"] == BATCH
    with pytest.raises(ValueError, match="row '000001/000000' is of batch 2, and the advantages have 0 of the 8 rows"):
        role.add([*second, *rollout_keys(args, 1)[:1]])


def test_missing_column() -> None:
    """A slice whose rows lack what they need is refused by name, and may come again with it."""
    args = options("gdpo")
    queue = filled(args)
    keys = batch_keys(args, 0)
    lost = queue.rows[keys[5]].pop("ref_log_probs")
    role = Advantages(args, queue)
    with pytest.raises(TransportError, match="row '000000/000005' of the queue has no column 'ref_log_probs'"):
        role.add(keys)
    queue.rows[keys[5]]["ref_log_probs"] = lost
    assert role.add(keys)["whitened"] == BATCH
