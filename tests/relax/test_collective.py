"""Collectives: the local one, virtual ranks in one process, and the meeting before a statistic."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relax.algorithms.collective import Collective, LocalCollective, LostPeer, RankFailure, agree, collective_for
from relax.algorithms.simulated import SimulatedWorld


def test_one_process_is_a_group_of_one():
    """The local collective gives tensors back as they are; None asks for it."""
    local, tensor = collective_for(None), torch.tensor([1.5])
    assert isinstance(local, LocalCollective)
    assert isinstance(local, Collective)
    assert (local.size, local.rank) == (1, 0)
    assert local.sum(tensor) is tensor
    assert local.max(tensor) is tensor
    assert local.gather(tensor).tolist() == [[1.5]]


def test_a_collective_stands_where_a_group_is_expected():
    """An object that keeps the protocol is used as it is; anything else is an error that says what is needed."""
    local = LocalCollective()
    assert collective_for(local) is local
    with pytest.raises(TypeError, match=r"process_group is a str.*torch\.distributed.*size, rank, sum, max.*None"):
        collective_for("data parallel")


@given(st.lists(st.lists(st.integers(-9, 9), min_size=2, max_size=2), min_size=1, max_size=8))
def test_virtual_ranks_see_every_tensor(rows):
    """Each virtual rank gathers all rows in order, and gets their sum and maximum."""

    def meet(collective, row):
        tensor = torch.tensor(row)
        assert isinstance(collective, Collective)
        gathered = [other.tolist() for other in collective.gather(tensor)]
        return gathered, collective.sum(tensor).tolist(), collective.max(tensor).tolist(), tensor.tolist()

    world = SimulatedWorld(len(rows))
    columns = list(zip(*rows, strict=True))
    for row, result in zip(rows, world.run(meet, rows), strict=True):
        assert result == (rows, [sum(column) for column in columns], [max(column) for column in columns], row)
    assert [3] * len(rows) == world.exchanges


def test_a_virtual_rank_that_stays_away_fails_those_who_wait():
    """Rank 1 returns after one exchange and rank 2 raises: the others learn who is gone, and nothing hangs."""

    def leave(collective, _):
        collective.gather(torch.zeros(1))
        if collective.rank == 1:
            return "away"
        if collective.rank == 2:
            raise KeyError("own")
        return collective.sum(torch.zeros(3))

    results = SimulatedWorld(4).run(leave, range(4))
    assert results[1] == "away"
    assert isinstance(results[2], KeyError)
    for lost in (results[0], results[3]):
        assert isinstance(lost, LostPeer)
        assert "rank 1, 2 ended, while others are in sum of torch.float32 (3,)" in str(lost)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda c: c.gather(torch.zeros(2)), lambda c: c.gather(torch.zeros(3))),
        (lambda c: c.gather(torch.zeros(2)), lambda c: c.gather(torch.zeros(2, dtype=torch.float64))),
        (lambda c: c.gather(torch.zeros(2)), lambda c: c.sum(torch.zeros(2))),
    ],
    ids=["shape", "dtype", "operation"],
)
def test_virtual_ranks_in_different_collectives_fail(one, other):
    """What a real backend answers with a hang or with garbage is an error that names both sides."""
    results = SimulatedWorld(2).run(lambda c, call: call(c), [one, other])
    assert [LostPeer, LostPeer] == [type(result) for result in results]
    assert "ranks are in different collectives" in str(results[0])


def test_a_gathered_tensor_is_what_was_sent():
    """A rank may go on writing to what it sent: the others keep the bits of the moment of sending."""

    def send(collective, _):
        tensor = torch.tensor([float(collective.rank)])
        gathered = collective.gather(tensor)
        tensor.fill_(-1)
        collective.gather(torch.zeros(0))
        return [part.item() for part in gathered]

    assert SimulatedWorld(2).run(send, range(2)) == [[0.0, 1.0], [0.0, 1.0]]


def test_nobody_in_trouble_is_one_exchange():
    """Where no rank brings a failure, all go on after a single exchange."""
    world = SimulatedWorld(3)
    assert world.run(lambda collective, _: agree(collective, None), range(3)) == [None] * 3
    assert world.exchanges == [1, 1, 1]


def test_a_failure_on_one_rank_is_raised_on_all_with_its_own_message():
    """Type and message of the rank that failed reach every rank; the failing one keeps its exception as the cause."""

    def meet(collective, _):
        agree(collective, KeyError("values of sample 17 is missing") if collective.rank == 2 else None)

    world = SimulatedWorld(4)
    results = world.run(meet, range(4))
    assert world.exchanges == [2] * 4
    assert {RankFailure} == {type(result) for result in results}
    expected = "before a statistic over 4 ranks: rank 2: KeyError: 'values of sample 17 is missing'"
    assert {expected} == {str(result) for result in results}
    assert isinstance(results[2].__cause__, KeyError)
    assert results[0].__cause__ is None


def test_a_failure_that_all_bring_is_raised_as_it_is():
    """Where every rank comes with the same type and message, none is told the others' copies of it."""
    results = SimulatedWorld(3).run(agree, [ValueError("of the batch") for _ in range(3)])
    assert [repr(result) for result in results] == ["ValueError('of the batch')"] * 3


def test_ranks_with_one_complaint_share_a_line():
    """At 200 ranks, 199 of which say the same, the message stays short and still holds the odd one."""
    failures = [ValueError("a" * 100)] * 199 + [KeyError("odd")]
    (said,) = {str(result) for result in SimulatedWorld(200).run(agree, failures)}
    assert "rank 199: KeyError: 'odd'" in said
    assert f"ranks 0, 1, 2, 3, 4, 5, 6, 7 and 191 more: ValueError: {'a' * 100}" in said
    assert len(said) < 300


def test_a_virtual_rank_that_exits_does_not_leave_the_others_waiting():
    """SystemExit on one rank, which no handler of Exception sees, ends the others' collective."""

    def leave(collective, _):
        if collective.rank == 1:
            raise SystemExit
        return collective.sum(torch.zeros(1))

    assert isinstance(SimulatedWorld(2).run(leave, range(2))[0], LostPeer)


def test_every_rank_in_trouble_is_listed():
    """Two failures of different length are both told in full, in order of rank."""
    failures = [ValueError("a" * 300), None, OSError("")]
    results = SimulatedWorld(3).run(agree, failures)
    assert {f"before a statistic over 3 ranks: rank 0: ValueError: {'a' * 300}; rank 2: OSError: "} == {
        str(result) for result in results
    }
