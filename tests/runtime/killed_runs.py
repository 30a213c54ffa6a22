"""Runs from which one process is taken at a known place of their schedule, and what is left of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relax.core.checkpoint import checkpoints, open_checkpoint
from relax.core.controller import STOP_BEFORE, STOPPED_FILE
from relax.core.guard import processes_with
from tests.runtime.in_process import TINY

ROOT = Path(__file__).parents[2]
INHERITED = dict(os.environ)  # and not what the tests beside have added by then
PATIENCE = 150.0  # seconds for a run to come to its place, on a machine that is busy


@dataclass(frozen=True)
class Kill:
    """Where a process is killed: before a unit of work, while the driver waits, or in the middle of it."""

    unit: str
    amid: bool = False


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    status: int
    out: str
    error: str
    processes: dict[str, int]
    """By name, of the moment at which one was killed."""


def kill_at(stopped: Path, who: str, kill: Kill) -> dict[str, int]:
    """Waits until the driver has come to the place, and kills ``who``; gives the processes there were, by name."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            processes: dict[str, int] = json.loads(stopped.read_text())
            break
        except (FileNotFoundError, json.JSONDecodeError):
            assert time.monotonic() < end, f"the run did not come to '{kill.unit}'"
            time.sleep(0.05)
    if kill.amid:
        os.kill(processes[who], signal.SIGSTOP)  # so that it is at the unit, and not through with it
        stopped.unlink()
        time.sleep(1.5)
    os.kill(processes[who], signal.SIGKILL)
    return processes


def wait_for(condition: Callable[[], bool], *, seconds: float) -> None:
    """Returns when the condition holds, and fails where it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def left(stopped: Path) -> list[str]:
    """The processes of a run that live, with their marks, for a failing test to show."""
    found = []
    for pid in processes_with(STOPPED_FILE, str(stopped)):
        with contextlib.suppress(OSError):
            marks = [mark for mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if b"RELAX" in mark]
            found.append(f"{pid} {Path(f'/proc/{pid}/cmdline').read_bytes()[:60]!r} {marks}")
    return found


def run(options: list[str], folder: Path, who: str = "", kill: Kill | None = None) -> Ended:
    """The command line's run with ``--save folder``, which goes on from what is there, and is robbed of ``who``."""
    save, temporary, stopped = folder / "saved", folder / "tmp", folder / "stopped.json"
    temporary.mkdir(exist_ok=True)
    stopped.unlink(missing_ok=True)
    load = ["--load", str(save)] if checkpoints(save) else []
    line = ["-m", "relax.train", *TINY, *options, "--save", str(save), "--save-interval", "1", *load]
    stop = {} if kill is None else {STOP_BEFORE: kill.unit}
    own = {STOPPED_FILE: str(stopped), "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
    own["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "torch")  # torch keeps this for whoever comes next
    driver = subprocess.Popen(
        [sys.executable, *line],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**INHERITED, **own, **stop},
    )
    processes = {} if kill is None else kill_at(stopped, who, kill)
    out, error = driver.communicate(timeout=PATIENCE)
    end = time.monotonic() + 5  # the guard may be at its last breath
    while lives := left(stopped):
        assert time.monotonic() < end, f"{error} {lives}"
        time.sleep(0.05)
    assert list(temporary.iterdir()) == []
    return Ended(driver.returncode, out, error, processes)


def contents(folder: Path, step: int) -> dict[str, bytes]:
    """What a checkpoint holds that a run depends on, by part and name: weights, moments, the random states that
    rewards are drawn from, and the place in the data. A process's other random states are its libraries' own.
    """
    checkpoint = open_checkpoint(folder, step)
    tensors = {
        f"{part}/{name}": tensor.numpy().tobytes()
        for part in checkpoint.parts()
        for name, tensor in checkpoint.tensors(part).items()
        if not name.startswith("random/")
    }
    return tensors | {"place": json.dumps(checkpoint.facts("rollout")).encode()}
