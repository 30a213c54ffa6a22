"""The pool: what the ranks return, raise or die of comes back, and worlds are kept, rebuilt and bounded."""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch

from verification.ranks.faults import Fault
from verification.ranks.layout import Layout
from verification.ranks.pool import RankPool
from verification.ranks.results import RanksFailed

TASKS = "tests.distributed.pool_tasks"
DP2, DP3 = Layout(dp=2), Layout(dp=3)


def is_there(pid: int) -> bool:
    """Whether a process with that id exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pids_of(pool: RankPool, layout: Layout) -> list[int]:
    """The processes of the world that ``layout`` has just now, started if need be."""
    return [pid for *_, pid in pool.run(f"{TASKS}:where", [None] * layout.world, layout=layout).values()]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_every_rank_gets_its_argument_and_gives_its_value(pool, world):
    """In order of rank, each in a process of its own that knows where it stands."""
    layout = Layout(dp=world)
    arguments = [f"for rank {rank}" for rank in range(world)]
    assert pool.run(f"{TASKS}:give_back", arguments, layout=layout).values() == arguments
    found = pool.run(f"{TASKS}:where", [None] * world, layout=layout).values()
    assert [one[:4] for one in found] == [(rank, layout.name, (0, 0, rank, 0), world) for rank in range(world)]
    assert len({pid for *_, pid in found} | {os.getpid()}) == world + 1


def test_ranks_talk_to_one_another_and_what_they_entered_is_told(pool):
    """A real sum over three ranks; each rank's collectives are listed in order, with dtype, shape and group."""
    run = pool.run(f"{TASKS}:total", [1.0, 2.0, 4.0], layout=DP3)
    assert run.values() == [7.0] * 3
    assert [rank.collectives for rank in run.ranks] == [("all_reduce float32[1] over 3 ranks",)] * 3


def test_tensors_come_back_with_their_bits(pool):
    """A NaN payload and a negative zero survive the way there and back."""
    bits = torch.tensor([0x7FC00123, -(2**31)], dtype=torch.int32)
    values = pool.run(f"{TASKS}:give_back", [bits.view(torch.float32)] * 2, layout=DP2).values()
    assert [value.view(torch.int32).tolist() for value in values] == [bits.tolist()] * 2


def test_one_ranks_exception_is_that_ranks_result(pool):
    """Type, message and traceback of the one that failed, beside the values of the others."""
    run = pool.run(f"{TASKS}:fail", [None, "reward 3 is nan", None], layout=DP3)
    assert run.ended == ("value", "failure", "value")
    assert [run.ranks[0].value, run.ranks[2].value] == ["fine", "fine"]
    failure = run.ranks[1].failure
    assert (failure.kind, failure.message) == ("ValueError", "reward 3 is nan")
    assert "in fail\n" in failure.traceback
    with pytest.raises(RanksFailed, match=r"(?s)pool_tasks:fail on dp3: 1 of 3.*rank 1 failed with ValueError: reward"):
        run.values()


@pytest.mark.parametrize(
    ("how", "died"), [("exit", "exit code 3"), ("exit at once", "exit code 0"), ("segmentation fault", "SIGSEGV")]
)
def test_one_ranks_end_is_never_ignored(pool, how, died):
    """A rank that ends instead of answering has died, an exit code of 0 included; the world is built anew."""
    before = pids_of(pool, DP2)
    run = pool.run(f"{TASKS}:end", [None, how], layout=DP2)
    assert [(rank.ended, rank.value, rank.died) for rank in run.ranks] == [
        ("value", "alive", None),
        ("died", None, died),
    ]
    assert f"rank 1 died ({died}) after no collective" in run.report()
    assert not set(before) & set(pids_of(pool, DP2))
    assert [is_there(pid) for pid in before] == [False, False]


@pytest.mark.parametrize(
    "function", ["no_such_module:f", f"{TASKS}:no_such_function", f"{TASKS}:give_what_cannot_travel"]
)
def test_a_task_that_cannot_be_done_fails_on_every_rank(pool, function):
    """An unknown module or function and a value that cannot travel are failures, and the world stays."""
    before = pids_of(pool, DP2)
    assert pool.run(function, [None, None], layout=DP2).ended == ("failure", "failure")
    assert before == pids_of(pool, DP2)


def test_an_argument_that_cannot_travel_is_the_callers_error(pool):
    """It is raised here, before any rank has got anything."""
    before = pids_of(pool, DP2)
    with pytest.raises((AttributeError, TypeError), match=r"lambda|pickle"):
        pool.run(f"{TASKS}:give_back", [1, lambda: None], layout=DP2)
    assert before == pids_of(pool, DP2)


def test_a_world_outlives_an_error_that_all_ranks_agree_on(pool):
    """An exception after collectives that went well leaves nothing behind."""
    before = pids_of(pool, DP2)
    run = pool.run(f"{TASKS}:gather_then_fail", [2, 2], layout=DP2)
    assert (run.ended, [len(rank.collectives) for rank in run.ranks]) == (("failure", "failure"), [2, 2])
    assert before == pids_of(pool, DP2)


def test_a_world_with_a_failed_collective_is_not_used_again(pool):
    """A peer that stayed away is an error within the time-out of the task, and the next task meets fresh groups."""
    before, started = pids_of(pool, DP2), time.monotonic()
    run = pool.run(f"{TASKS}:gather", [1, 0], layout=DP2, timeout=0.5)
    assert (run.ended, run.ranks[0].failure.kind) == (("failure", "value"), "RuntimeError")
    assert time.monotonic() - started < 10
    assert not set(before) & set(pids_of(pool, DP2))


def test_a_world_whose_ranks_are_out_of_step_is_not_used_again(pool):
    """All ranks returned, but one of them left a collective open that would meet the next task's."""
    before = pids_of(pool, DP2)
    assert pool.run(f"{TASKS}:start_without_waiting", [True, False], layout=DP2).ended == ("value", "value")
    assert not set(before) & set(pids_of(pool, DP2))


def test_a_rank_that_died_between_tasks_is_replaced(pool):
    """The next task does not notice."""
    before = pids_of(pool, DP2)
    os.kill(before[1], signal.SIGKILL)
    while is_there(before[1]):
        time.sleep(0.01)
    assert pool.run(f"{TASKS}:total", [1.0, 2.0], layout=DP2).values() == [3.0, 3.0]


def test_an_interrupted_task_leaves_no_process_and_a_usable_pool(pool):
    """Ctrl-C while the ranks work: their world is ended at once, with its folder."""
    before = pids_of(pool, DP2)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    usual = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            pool.run(f"{TASKS}:linger", [60.0, 60.0], layout=DP2)
    finally:
        signal.signal(signal.SIGALRM, usual)
    assert [is_there(pid) for pid in before] == [False, False]
    assert pool.run(f"{TASKS}:total", [1.0, 2.0], layout=DP2).values() == [3.0, 3.0]


def test_the_world_used_longest_ago_gives_way():
    """At most as many ranks as the pool may keep; a world larger than that stands alone."""
    with RankPool(processes=4) as small:
        one, two = pids_of(small, Layout()), pids_of(small, DP2)
        assert one == pids_of(small, Layout())  # now the pair is the oldest
        three = pids_of(small, DP3)
        assert (sorted(small.pids), [is_there(pid) for pid in two]) == (sorted(one + three), [False, False])
        assert len(pids_of(small, Layout(dp=5))) == 5
        assert (len(small.pids), [is_there(pid) for pid in one + three]) == (5, [False] * 4)


def test_closing_ends_the_ranks_and_removes_their_folders(monkeypatch, tmp_path):
    """A pool that is used again after it was closed starts anew."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with RankPool() as brief:
        pids = pids_of(brief, DP2)
        assert len(list(tmp_path.glob("relax-ranks-*"))) == 1
    assert ([is_there(pid) for pid in pids], list(tmp_path.iterdir())) == ([False, False], [])
    assert brief.run(f"{TASKS}:give_back", ["again"], layout=Layout()).values() == ["again"]
    brief.close()


def test_a_rank_starts_from_nothing_but_torch():
    """What is under examination is imported by the rank itself; it reads no input and runs no main script."""
    with RankPool() as fresh:
        found = fresh.run(f"{TASKS}:surroundings", [["relax", "pytest", "torch"]], layout=Layout()).values()[0]
    assert (found["imported"], found["threads"], found["stdin"], found["main"]) == (["torch"], 1, "", None)
    if sys.platform == "linux" and Path("/sys/class/net/lo").exists():
        assert found["interface"] == "lo"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are read from /proc, which is not here")
def test_the_groups_of_a_rank_share_one_device(pool, megatron):
    """One thread of gloo that wakes up by itself, however many groups megatron makes."""
    names, groups = pool.run(f"{TASKS}:threads_and_groups", [None] * 2, layout=Layout(tp=2)).values()[0]
    assert (names.count("gloo_tcp_loop"), groups > 5) == (1, True)


def test_an_empty_task_costs_a_few_milliseconds(pool):
    """The pool's own part, once a world of two is warm: well over a hundred tasks a second."""
    pids_of(pool, DP2)
    seconds = []
    for _ in range(100):
        started = time.perf_counter()
        pool.run(f"{TASKS}:give_back", [None, None], layout=DP2)
        seconds.append(time.perf_counter() - started)
    assert statistics.median(seconds) * 1000 < 5


def test_nccl_ranks_never_share_a_gpu():
    """More ranks than GPUs are refused before a process is started."""
    too_many = Layout(dp=torch.cuda.device_count() + 1)
    with (
        RankPool(backend="nccl") as pool,
        pytest.raises(RuntimeError, match=r"needs \d+ GPUs, one a rank, and \d+ are here"),
    ):
        pool.run(f"{TASKS}:give_back", [None] * too_many.world, layout=too_many)
    with pytest.raises(ValueError, match="backend 'mpi' is unknown: use gloo or nccl"):
        RankPool(backend="mpi")


def test_a_world_that_cannot_start_says_which_rank_could_not(monkeypatch, tmp_path):
    """A rank whose GPU is not there ends the attempt at once, with its error, and leaves neither process nor folder."""
    there = torch.cuda.device_count()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there + 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    layout = Layout(dp=there + 1)
    message = rf"(?s)layout {layout.name} over nccl could not start\nrank {there} failed with \w+: .*set_device"
    with RankPool(backend="nccl") as pool:
        with pytest.raises(RuntimeError, match=message):
            pool.run(f"{TASKS}:give_back", [None] * layout.world, layout=layout)
        assert (pool.pids, list(tmp_path.iterdir())) == ((), [])


def test_without_megatron_only_data_parallel_layouts_start(pool, monkeypatch):
    """The error says what to install, before a process is started; what needs no megatron runs."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        RuntimeError, match=r"cp3 needs megatron-core, which is missing: pip install -e '\.\[megatron\]'"
    ):
        pool.run(f"{TASKS}:give_back", [None] * 3, layout=Layout(cp=3))
    assert pool.run(f"{TASKS}:give_back", [1, 2], layout=DP2).values() == [1, 2]


def test_what_does_not_fit_the_layout_is_refused(pool):
    """As many arguments as ranks, and a fault on a rank that exists."""
    with pytest.raises(ValueError, match="2 arguments for the 3 ranks of dp3: give each rank one"):
        pool.run(f"{TASKS}:give_back", [1, 2], layout=DP3)
    with pytest.raises(ValueError, match="a fault on rank 2 of dp2, which has ranks 0 to 1"):
        pool.run(f"{TASKS}:give_back", [1, 2], layout=DP2, fault=Fault("skip", 2))
