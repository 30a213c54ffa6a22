"""A rank that gives no answer is named with its stack and its last collective, and the pool goes on."""

from __future__ import annotations

import time

import pytest

from verification.ranks.layout import Layout

TASKS = "tests.distributed.pool_tasks"
DP2 = Layout(dp=2)


def works_again(pool) -> bool:
    """Whether the next task on two ranks finds a world that works."""
    return pool.run(f"{TASKS}:total", [1.0, 2.0], layout=DP2).values() == [3.0, 3.0]


def test_a_rank_hung_outside_any_collective_shows_its_stack(pool):
    """The function that it is in, while its peer's value counts."""
    assert works_again(pool)
    started = time.monotonic()
    run = pool.run(f"{TASKS}:linger", [0.0, 600.0], layout=DP2, deadline=1.0)
    assert time.monotonic() - started < 10
    assert (run.ended, run.ranks[0].value) == (("value", "hung"), 0.0)
    hung = run.ranks[1].hung
    assert hung.inside is None
    assert [frame.rpartition(" ")[2] for frame in hung.frames] == ["linger"]
    assert "in _end_with_the_pool" in hung.stack  # the stacks of all threads
    assert "rank 1 hung outside any collective, after no collective" in run.report()
    assert works_again(pool)


def test_a_rank_hung_in_a_collective_names_it(pool):
    """Dtype, shape and group of the one that it entered last, and those before it; both ranks are judged."""
    run = pool.run(f"{TASKS}:wait_for_others", [True, False], layout=DP2, deadline=1.0, timeout=60.0)
    inside = "all_reduce float32[2, 3] over 2 ranks"
    assert [rank.hung.inside for rank in run.ranks] == [inside, None]
    assert [rank.collectives for rank in run.ranks] == [("barrier over 2 ranks", inside), ("barrier over 2 ranks",)]
    assert [frame.rpartition(" ")[2] for frame in run.ranks[0].hung.frames] == ["wait_for_others"]
    report = run.report()
    assert report.startswith(f"{TASKS}:wait_for_others on dp2: 2 of 2 ranks did not return\n")
    assert f"rank 0 hung in {inside}, its collective 2" in report
    assert "rank 1 hung outside any collective, after entering barrier over 2 ranks, its collective 1" in report
    assert works_again(pool)


def test_a_receive_without_a_time_out_ends_at_the_deadline(pool):
    """Gloo's recv waits for ever whatever the group's time-out is; the deadline holds for it too."""
    run = pool.run(f"{TASKS}:receive_nothing", [True, False], layout=DP2, deadline=1.0, timeout=0.2)
    assert (run.ended, run.ranks[0].hung.inside) == (("hung", "value"), "recv float32[5] over 2 ranks")
    assert works_again(pool)


def test_a_rank_that_cannot_even_show_its_stack_is_ended(pool):
    """A stopped process takes no signal but the last."""
    run = pool.run(f"{TASKS}:end", [None, "stop"], layout=DP2, deadline=0.5)
    assert (run.ended, run.ranks[1].hung.stack) == (("value", "hung"), "it gave no stack")
    assert works_again(pool)


@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_a_rank_that_answers_in_time_is_not_hung(pool, seconds):
    """Slow is not stuck."""
    assert pool.run(f"{TASKS}:linger", [seconds, 0.0], layout=DP2, deadline=10.0).values() == [seconds, 0.0]
