"""A child process that answers in lines of JSON: started with nothing but its own code, bounded in time, cleaned up."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import Any

_GRACE = 10.0  # seconds in which the child may end by itself
_OUT_OF_TIME = b"Timeout ("  # how faulthandler begins the stack of what took too long
_LOOK = 0.2  # seconds between two looks at whether an answer is still wanted
_LAST_WORDS = 4000  # bytes of its standard error for a report


class Ended(RuntimeError):
    """There is no answer and there will be none; the message says how the child ended."""


class CalledOff(RuntimeError):
    """The answer is no longer wanted."""


class ChildProcess:
    """``python -m module ROOT FOLDER SECONDS`` that imports from ``root``, then from ``harness``, and nothing else.

    ``folder`` is its temporary folder, which the two sides share and which is removed with the child.
    """

    def __init__(self, module: str, root: Path, harness: Path, deadline: float) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="relax-verify-"))
        self.pid_of_parent = os.getpid()
        self._deadline = deadline
        self._stderr = self.folder / "stderr"
        self._pending = b""
        with self._stderr.open("wb") as stderr:
            # -P: the folder that it is started in must not come first in its import path.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(root), str(self.folder), str(deadline)],
                cwd=self.folder,
                env=environment(root, harness),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # an interrupt from the keyboard is for the parent to handle
            )
        self.close = weakref.finalize(self, _end, self._process, self.folder, self.pid_of_parent)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is gone, as whoever waits for its answer will learn
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self, deadline: float, stop: threading.Event | None = None) -> dict[str, Any]:
        """The next answer. `Ended` where none comes: the child has died, or took ``deadline`` seconds and was killed.

        A child that keeps an eye on its own deadline has some seconds more, to say where it stood. `CalledOff` once
        ``stop`` is set while there is no answer yet.
        """
        assert self._process.stdout is not None
        began = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if stop is not None and stop.is_set():
                    raise CalledOff
                left = began + deadline + _GRACE - time.monotonic()
                if left <= 0:
                    kill(self._process)
                    raise Ended(f"gave no answer within {deadline:g} seconds and was killed")
                if not selector.select(min(left, _LOOK)):
                    continue
                chunk = os.read(self._process.stdout.fileno(), 2**16)
                if not chunk:
                    raise Ended(self._how_it_ended(deadline))
                self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return json.loads(line)

    def last_words(self) -> str:
        """The end of its standard error."""
        with contextlib.suppress(OSError), self._stderr.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_WORDS))
            return file.read().decode("utf-8", "replace").strip()
        return ""

    def _how_it_ended(self, deadline: float) -> str:
        try:
            status = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            kill(self._process)
            return "closed its end of the line and was killed"
        if status < 0:
            return f"died of {signal.Signals(-status).name}"
        if _OUT_OF_TIME in self._stderr.read_bytes():
            return f"took longer than {deadline:g} seconds and ended itself"
        return f"ended with status {status}"


def environment(root: Path, harness: Path) -> dict[str, str]:
    """The environment of a child: two folders to import from, no other setting of Python's, no compiled code."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "PYTHONPATH": os.pathsep.join((str(root), str(harness))), "PYTHONDONTWRITEBYTECODE": "1"}


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kills the child and what it started, all of one session that no other process belongs to."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _end(process: subprocess.Popen[bytes], folder: Path, parent: int) -> None:
    if os.getpid() != parent:
        return  # in a fork: the child is not ours
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE)
    kill(process)
    if process.stdout is not None:
        process.stdout.close()
    shutil.rmtree(folder, ignore_errors=True)
