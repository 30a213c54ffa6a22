"""However the process that has a pool ends, no process and no folder of its ranks is left a few seconds later.

Each test starts a program in a session of its own, and then asks the system for what is still in that session: ranks,
the server that forked them, and multiprocessing's tracker.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A machine at rest needs a second or two for what these allow.
PATIENCE, SLOWEST = 30.0, 300.0
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="the processes of a session are read from /proc, which is not here"
)

# The server imports torch alone: what is tested is how it ends, and megatron would take seconds to load.
LIGHT_SERVER = """
import multiprocessing
from multiprocessing import forkserver

multiprocessing.set_forkserver_preload(["torch"])
forkserver.ensure_running()
"""
# Two pools that nobody closes: one idle, one in a task whose rank 0 sits in a collective that its peer never joins.
PROGRAM = f"""
import sys
from pathlib import Path
{LIGHT_SERVER}
from verification.ranks.layout import Layout
from verification.ranks.pool import RankPool

tasks, dp2 = "tests.distributed.pool_tasks", Layout(dp=2)
idle, busy = RankPool(), RankPool()
idle.run(tasks + ":give_back", [None], layout=Layout()).values()
busy.run(tasks + ":total", [1.0, 2.0], layout=dp2).values()
if sys.argv[1] == "waits":
    busy.run(tasks + ":wait_for_others", [True, False], layout=dp2, deadline=600.0, timeout=600.0)
print("the program came to its end")
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts python with some arguments, in a session of its own whose temporary files go below ``tmp_path``."""
    children: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        children.append(child)
        return child

    yield begin
    for child in children:
        for pid in session_of(child.pid):  # there is one only where the test has failed
            os.kill(pid, signal.SIGKILL)
        child.communicate()


def session_of(leader: int) -> list[int]:
    """The processes of a session that still run; one that only waits to be reaped does not."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(session) == leader and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


def until(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether it came to hold in time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def assert_nothing_is_left(child: subprocess.Popen[str], folder: Path) -> None:
    """Its session is soon empty, and so is its temporary folder."""
    assert until(lambda: session_of(child.pid) == [], PATIENCE), f"still there: {session_of(child.pid)}"
    assert list(folder.glob("relax-ranks-*")) == []


def test_a_pool_that_nobody_closed_ends_with_its_program(start, tmp_path):
    """The usual end of a program that forgot it."""
    child = start("-c", PROGRAM, "ends")
    output, _ = child.communicate(timeout=SLOWEST)
    assert (child.returncode, output) == (0, "the program came to its end\n")
    assert_nothing_is_left(child, tmp_path)


@pytest.mark.parametrize(
    ("sent", "to_all", "statuses"),
    [
        pytest.param(signal.SIGINT, True, (-signal.SIGINT, 130), id="Ctrl-C"),
        pytest.param(signal.SIGKILL, False, (-signal.SIGKILL,), id="killed"),
    ],
)
def test_no_rank_outlives_its_program_even_in_a_collective(start, tmp_path, sent, to_all, statuses):
    """Ctrl-C, which a terminal sends to every process, and the death of the program alone, while a rank waits."""
    child = start("-c", PROGRAM, "waits")
    inside = "all_reduce float32[2, 3] over 2 ranks\n"
    assert until(lambda: any(inside in trace.read_text() for trace in tmp_path.glob("*/trace-0")), SLOWEST)
    assert len(session_of(child.pid)) >= 6  # the program, the server, the tracker and three ranks
    (os.killpg if to_all else os.kill)(child.pid, sent)
    output, _ = child.communicate(timeout=SLOWEST)
    assert child.returncode in statuses, output
    assert "the program came to its end" not in output
    assert_nothing_is_left(child, tmp_path)


def test_each_process_of_xdist_has_a_pool_of_its_own(start, tmp_path):
    """Tests spread over two processes use their ranks at the same time; all of it ends with a session that failed."""
    pytest.importorskip("xdist", reason="pytest-xdist is not installed: pip install -e '.[dev]'")
    tests = tmp_path / "test_spread.py"
    tests.write_text(
        LIGHT_SERVER + "import pytest\n"
        "from verification.ranks.layout import Layout\n"
        "from verification.ranks.pool import RankPool\n\n"
        "@pytest.fixture(scope='session')\n"
        "def pool():\n"
        "    with RankPool() as ranks:\n"
        "        yield ranks\n\n"
        "@pytest.mark.parametrize('number', range(6))\n"
        "def test_total(pool, worker_id, number):\n"
        "    run = pool.run('tests.distributed.pool_tasks:total', [float(number), 1.0], layout=Layout(dp=2))\n"
        "    assert run.values() == [number + 1.0] * 2\n"
        "    assert worker_id in ('gw0', 'gw1')\n"
        "    assert number != 5, 'this one fails'\n"
    )
    options = ["-n", "2", "--dist", "load", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    child = start("-m", "pytest", *options, str(tests))
    output, _ = child.communicate(timeout=SLOWEST)
    assert (child.returncode, "1 failed, 5 passed" in output) == (1, True), output
    assert_nothing_is_left(child, tmp_path)
