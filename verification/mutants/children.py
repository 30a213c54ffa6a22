"""Child processes of a campaign: each ends by itself, at its deadline, or with the campaign. No other is touched."""

from __future__ import annotations

import subprocess
import threading
from dataclasses import dataclass

from verification.mutants.workspace import Workspace


class Stopped(RuntimeError):
    """The campaign is over: no more children are started."""


@dataclass(frozen=True)
class Ended:
    """How a child ended; ``status`` is None where it ran into its deadline and was killed."""

    status: int | None
    stdout: str
    stderr: str

    @property
    def last_words(self) -> str:
        """The last line that it said, for a report on what went wrong."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return lines[-1] if lines else "it said nothing"


class Children:
    """Runs children from several threads; leaving the context stops them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Kills the children that still run, by their process id, and starts no more."""
        with self._lock:
            self._stopped = True
            running = tuple(self._running)
        for child in running:
            child.kill()

    def run(self, workspace: Workspace, *arguments: str, deadline: float) -> Ended:
        """Runs ``python -P`` with ``arguments`` in the workspace, for at most ``deadline`` seconds."""
        with self._lock:
            if self._stopped:
                raise Stopped
            child = subprocess.Popen(
                workspace.python(*arguments),
                cwd=workspace.root,
                env=workspace.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            self._running.add(child)
        try:
            stdout, stderr = child.communicate(timeout=deadline)
            return Ended(child.returncode, stdout, stderr)
        except subprocess.TimeoutExpired:
            child.kill()
            stdout, stderr = child.communicate()
            return Ended(None, stdout, stderr)
        finally:
            with self._lock:
                self._running.discard(child)
