"""A relax of one call that does what its input says: a source for process subjects that die, hang or print."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from verification.cases.case import Case
from verification.revisions.source import Source, of_folder
from verification.subjects.outcome import Outcome
from verification.subjects.process import ProcessSubject

REDUCERS = "algorithms/formulas/reducers.py"

# A call whose first value says what it does; any other value is doubled.
PLAYER = """
import os, signal, sys, time
def reduce_loss(args, *, values, loss_masks, full_loss_masks=None):
    number = int(values[0][0])
    if number == 1: os.kill(os.getpid(), signal.SIGSEGV)
    if number == 2: time.sleep(600)
    if number == 3: os._exit(7)
    if number == 4:
        print("to standard output"); os.write(1, b"and beneath it\\n"); os.system("echo from a child")
        assert sys.stdin.read() == ""
    if number == 5: from relax import late
    if number == 6: raise NotImplementedError("not yet")
    if number == 7: raise SystemExit("enough")
    return 2 * values[0].sum()
"""


def source_of(folder: Path, files: Mapping[str, str]) -> Source:
    """A checkout whose relax/ has these files, with an empty __init__.py in each folder that has none."""
    for name, text in files.items():
        path = folder / "relax" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for parent in path.relative_to(folder).parents[:-1]:
            (folder / parent / "__init__.py").touch()
        path.write_text(text)
    return of_folder(folder)


def play(number: float, name: str | None = None, **inputs: object) -> Case:
    values = {"values": [np.array([number], dtype=np.float32)], "loss_masks": None, **inputs}
    return Case(f"loss.reduce/grpo/{name or f'play-{number:g}'}", "loss.reduce", "grpo", values)


def loss(outcome: Outcome | None) -> float:
    assert outcome is not None
    assert outcome.failure is None, outcome.failure
    return outcome.arrays["loss"].item()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int, seconds: float = 30) -> bool:
    """Whether the process ends within the time."""
    end = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not is_alive(pid)


@contextmanager
def playing(folder: Path) -> Iterator[ProcessSubject]:
    """A subject in a process of its own, for all tests of a module, since a start takes seconds.

    A test that ends its process leaves the next one to a new one.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELAX_VERIFY_CACHE", str(folder / "cache"))
        source = source_of(folder / "player", {REDUCERS: PLAYER})
    with ProcessSubject(source, deadline=3) as subject:
        yield subject
