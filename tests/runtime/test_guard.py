"""Whatever ends a driver, no process of its run and no folder is left, and what the driver could not say is said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relax.core.guard import guarded, processes_of

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the guard reads /proc, as on Linux")

DRIVER = """
import signal, subprocess, sys, time
from pathlib import Path
from relax.core.guard import guarded

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever this was started by, such as nohup
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
orphan = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True); print(flush=True)"
with guarded("continue with --load here") as run:
    folder = Path(sys.argv[1]) / "temporary"
    run.remove(folder)
    folder.mkdir()
    subprocess.Popen(["sh", "-c", "sleep 600 & wait"])  # two
    for text in (deaf, orphan):
        child = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
        child.stdout.readline()
    child.wait()
    print(run.name, flush=True)
    sys.stdin.readline()
    if sys.argv[2] == "exception":
        raise ValueError("said by the driver")
"""
SAID = {"exception": "ValueError: said by the driver", "SIGINT": "KeyboardInterrupt", "nothing": ""}


@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "exception", "nothing"])
def test_driver_ends(tmp_path: Path, end: str) -> None:
    """A killed driver is reported with how to go on; children, grandchildren, orphans and deaf ones end with it."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path), end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert driver.stdin is not None
    assert driver.stdout is not None
    run = driver.stdout.readline().strip()
    _wait_for(lambda: len(processes_of(run)) == 4)
    if end.startswith("SIG"):
        driver.send_signal(signal.Signals[end])
        _, said = driver.communicate(timeout=30)  # the guard holds stderr until it is done
    else:
        _, said = driver.communicate("go on\n", timeout=30)
    assert processes_of(run) == []
    assert (driver.returncode == 0) == (end == "nothing")
    if end in SAID:
        assert (said.splitlines() or [""])[-1] == SAID[end]
        assert "relax:" not in said
    else:
        assert said == (
            f"relax: the driver (process {driver.pid}) died without a word: 4 processes of the run were ended; "
            "continue with --load here\n"
        )
        assert not (tmp_path / "temporary").exists()


def test_others_live() -> None:
    """Only what the run started is ended: not a process with another run's mark, nor one with none."""
    with guarded("") as first:
        other = subprocess.Popen(["sleep", "600"], env={**os.environ, "RELAX_RUN": first.name[:-1]})
        unmarked = subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"]})
        own = subprocess.Popen(["sleep", "600"])
        _wait_for(lambda: processes_of(first.name) == [own.pid])
    try:
        assert own.wait(timeout=10) == -signal.SIGTERM
        assert other.poll() is None
        assert unmarked.poll() is None
        assert "RELAX_RUN" not in os.environ
    finally:
        for process in (other, unmarked):
            process.kill()
            process.wait()


def test_slow_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine where one look at all processes takes a second, the deaf are ended nevertheless."""

    def slow(run: str) -> list[int]:
        time.sleep(1.0)
        return processes_of(run)

    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    with guarded("") as run:
        child = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        monkeypatch.setattr("relax.core.guard.processes_of", slow)
    assert child.wait(timeout=0) == -signal.SIGKILL
    child.stdout.close()
    assert processes_of(run.name) == []


def test_guard_is_killed() -> None:
    """A guard that somebody killed is no reason to fail."""
    with guarded("") as run:
        children = subprocess.run(
            ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True
        )
        (guard,) = [int(line.split()[0]) for line in children.stdout.splitlines() if run.name in line]
        os.kill(guard, signal.SIGKILL)
        time.sleep(0.1)
        run.remove(Path("/nowhere"))


def _wait_for(condition: object) -> None:
    assert callable(condition)
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
