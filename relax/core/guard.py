"""A process that ends the others of a run when its driver dies, whatever kills it: Linux only, since it reads /proc.

Ray leaves processes behind for a minute where its driver is killed, and for good where it is unlucky. A run is marked
in the environment of its driver, which everything that the driver starts inherits, whoever is its parent by then; so
the processes of a run are found, and nobody else's. The guard holds one end of a pipe whose other end the driver alone
has: it knows when that is closed, and whether the driver said goodbye before.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

MARK = "RELAX_RUN"  # the variable that all processes of a run have
GOODBYE = "goodbye"
GRACE = 2.0  # seconds between being asked to end and being ended
SETTLED = 0.5  # seconds without any until there is taken to be none
LONGEST = 30.0  # seconds until what cannot be ended is left alone


class Run:
    """A run that is guarded: its name, and what is to be removed where its driver cannot do it."""

    def __init__(self, name: str, pipe: int) -> None:
        self.name, self._pipe = name, pipe

    def remove(self, folder: Path) -> None:
        """Has the guard remove ``folder`` if the driver dies."""
        self._say(str(folder))

    def _say(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # a guard that was killed guards nothing
            os.write(self._pipe, f"{line}\n".encode())


@contextlib.contextmanager
def guarded(advice: str) -> Iterator[Run]:
    """Marks this process as the driver of a new run and guards it until the end of the block.

    When the block ends, no process of the run is left. Where the driver dies in it, the guard ends them and says so in
    one line on stderr, with ``advice`` on how to go on.
    """
    run = uuid.uuid4().hex[:12]
    before = os.environ.get(MARK)
    read, write = os.pipe()  # neither end is inherited, but for what the guard is given
    guard = subprocess.Popen(
        # Isolated, and by its path: it needs nothing but the standard library.
        [sys.executable, "-I", __file__, run, str(os.getpid()), advice],
        stdin=read,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the driver
    )
    os.close(read)
    os.environ[MARK] = run
    os.environ.setdefault("SPT_NOENV", "1")  # else Ray writes the titles of its processes over their environment
    found = Run(run, write)
    try:
        yield found
    finally:
        end_processes(run)
        found._say(GOODBYE)
        os.close(write)
        guard.wait()
        del os.environ[MARK]
        if before is not None:
            os.environ[MARK] = before


def processes_of(run: str) -> list[int]:
    """The ids of the processes of a run, but for its driver and its guard."""
    return processes_with(MARK, run)


def processes_with(name: str, value: str) -> list[int]:
    """The ids of the processes, but for this one, that were started with ``name`` set to ``value``."""
    mark, found = f"{name}={value}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return sorted(set(found) - {os.getpid()})


def end_processes(run: str) -> int:
    """Ends every process of a run, by asking first; gives how many there were."""
    begun, ended = time.monotonic(), set[int]()
    seen = begun
    # One that is just being started has no environment for a moment: none must be seen for a while.
    while time.monotonic() - seen < SETTLED and time.monotonic() - begun < LONGEST:
        found, late = processes_of(run), time.monotonic() - begun > GRACE
        for process in found:
            if late or process not in ended:
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGKILL if late else signal.SIGTERM)
        ended |= set(found)
        time.sleep(0.05)
        if found:
            seen = time.monotonic()  # looking takes its time on a busy machine
    return len(ended)


def _guard(run: str, driver: int, advice: str) -> None:
    """Waits for the driver's end, and does what it could not do itself."""
    heard = b""
    while True:
        readable, _, _ = select.select([0], [], [], 1.0)
        part = os.read(0, 4096) if readable else None
        # A process that the driver forked may hold its end of the pipe open: then the guard's parent tells.
        if part == b"" or (part is None and os.getppid() != driver):
            break
        heard += part or b""
    *folders, last = heard.decode().splitlines() or [""]
    if last == GOODBYE:
        return
    ended = end_processes(run)
    for folder in (*folders, last):
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    sys.stderr.write(
        f"relax: the driver (process {driver}) died without a word: {ended} processes of the run were ended; {advice}\n"
    )


if __name__ == "__main__":
    _guard(sys.argv[1], int(sys.argv[2]), sys.argv[3])
