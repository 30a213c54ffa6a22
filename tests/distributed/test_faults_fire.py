"""Every kind of fault fires where it was asked for, is counted, and is an error of its peers within the deadline."""

from __future__ import annotations

import pytest

from verification.ranks.faults import KINDS, Fault
from verification.ranks.layout import Layout

TASKS = "tests.distributed.pool_tasks"
ROUNDS = 3
# For a fault at collective 2 of 3: how its rank ends, and how many collectives that rank has entered by then.
ENDS = {
    "raise": ("failure", 0),
    "kill-before": ("died", 1),
    "kill-between": ("died", 2),
    "kill-after": ("died", 2),
    "delay": ("value", 3),
    "skip": ("skipped", 1),
    "hang": ("hung", 1),
}


@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_fires_and_every_survivor_ends_with_an_error(pool, kind, world):
    """Once, on its rank, at its collective. A delay alone harms nobody."""
    layout, guilty = Layout(dp=world), world - 1
    fault = Fault(kind, guilty, at=2)
    timeout = 20.0 if kind == "delay" else 1.0
    deadline = 2.5 if kind == "hang" else 20.0
    run = pool.run(f"{TASKS}:gather", [ROUNDS] * world, layout=layout, fault=fault, timeout=timeout, deadline=deadline)
    assert [0] * guilty + [1] == [rank.fault_fired for rank in run.ranks]
    assert ENDS[kind] == (run.ended[guilty], len(run.ranks[guilty].collectives))
    survivors = "value" if kind == "delay" else "failure"
    assert (survivors,) * guilty == run.ended[:guilty]
    if kind == "delay":
        expected = [[float(factor * rank) for rank in range(world)] for factor in (1, 2, 3)]
        assert [expected] * world == run.values()


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize(("kind", "entered"), [("kill-before", -1), ("kill-after", 0)])
def test_a_rank_can_be_killed_around_any_collective(pool, kind, entered, at):
    """Before collective n it has entered n - 1 of them, after it n. Killed after the last, its peers have returned."""
    run = pool.run(f"{TASKS}:gather", [ROUNDS] * 2, layout=Layout(dp=2), fault=Fault(kind, 0, at=at), timeout=5.0)
    assert (run.ranks[0].fault_fired, run.ranks[0].died) == (1, "SIGKILL")
    assert at + entered == len(run.ranks[0].collectives)
    assert run.ended[1] == ("value" if kind == "kill-after" and at == ROUNDS else "failure")


def test_the_exception_before_the_call_is_named(pool):
    """Its type says that it was made on purpose; its rank has entered nothing."""
    run = pool.run(f"{TASKS}:total", [1.0, 2.0], layout=Layout(dp=2), fault=Fault("raise", 0), timeout=1.0)
    assert (
        run.ranks[0].failure.kind,
        run.ranks[0].failure.message,
    ) == ("InjectedFault", "rank 0 failed before the call, on purpose")
    assert run.ranks[0].collectives == ()


@pytest.mark.parametrize("kind", ["kill-before", "kill-between", "kill-after", "delay", "skip", "hang"])
def test_a_fault_at_a_collective_that_never_comes_does_not_fire(pool, kind):
    """Whoever asserts that a fault fired learns that this one did not."""
    run = pool.run(f"{TASKS}:total", [1.0, 2.0], layout=Layout(dp=2), fault=Fault(kind, 1, at=2))
    assert (run.values(), run.fault_fired) == ([3.0, 3.0], 0)


def test_a_fault_is_forgotten_with_its_task(pool):
    """The next task on the same world runs without it."""
    layout = Layout(dp=2)
    assert pool.run(f"{TASKS}:total", [1.0, 2.0], layout=layout, fault=Fault("delay", 1)).fault_fired == 1
    assert pool.run(f"{TASKS}:total", [1.0, 2.0], layout=layout).fault_fired == 0


def test_a_fault_in_the_data_is_counted(pool):
    """The function says that it made one, even if its rank dies with it."""
    run = pool.run(f"{TASKS}:spoil_own_data", [False, True], layout=Layout(dp=2))
    assert [rank.fault_fired for rank in run.ranks] == [0, 1]
    assert all(value != value for value in run.values())
    run = pool.run(f"{TASKS}:spoil_and_die", [None, None], layout=Layout(dp=2))
    assert ([rank.fault_fired for rank in run.ranks], run.ended) == ([1, 1], ("died", "died"))


def test_each_collective_is_recorded_once_by_whichever_way_it_is_called(pool):
    """Of a subgroup, of objects, differentiable with its backward, point to point; what torch calls inside is not."""
    run = pool.run(f"{TASKS}:collectives_of_every_kind", [None] * 3, layout=Layout(dp=3))
    assert run.values() == [6.0] * 3  # twice the sum of three gradients of one
    everywhere = ["all_gather_object over 3 ranks", *["all_reduce float32[1] over 3 ranks"] * 2]
    pair = ["broadcast int64[2] over 2 ranks", *everywhere, "batch_isend_irecv over 3 ranks"]
    assert [pair, pair, everywhere] == [list(rank.collectives) for rank in run.ranks]


def test_a_fault_strikes_in_the_backward_of_a_collective(pool):
    """The gradient's collective is the third of rank 2: that is where it leaves."""
    fault = Fault("skip", 2, at=3)
    run = pool.run(f"{TASKS}:collectives_of_every_kind", [None] * 3, layout=Layout(dp=3), fault=fault, timeout=1.0)
    assert (run.ended, run.fault_fired) == (("failure", "failure", "skipped"), 1)
    assert len(run.ranks[2].collectives) == 2


def test_a_fault_strikes_in_megatrons_own_calls(pool, megatron):
    """Megatron keeps the functions of torch in variables; they are the recording ones."""
    layout = Layout(tp=2)
    run = pool.run(f"{TASKS}:megatron_gather", [1.5, 2.5], layout=layout)
    assert run.values() == [[1.5, 2.5]] * 2
    assert [len(rank.collectives) for rank in run.ranks] == [1, 1]
    run = pool.run(f"{TASKS}:megatron_gather", [1.5, 2.5], layout=layout, fault=Fault("kill-before", 1), timeout=1.0)
    assert (run.ended, run.fault_fired) == (("failure", "died"), 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("stop", 0), "'stop' is no kind of fault: use one of raise, kill-before"), (("skip", 0, 0), "counted from 1")],
)
def test_a_fault_that_cannot_be_is_refused(arguments, message):
    """An unknown kind, and a collective before the first."""
    with pytest.raises(ValueError, match=message):
        Fault(*arguments)
