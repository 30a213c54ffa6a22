"""Runs of the real controller, in the Ray and on the queue that the tests of a process share."""

from __future__ import annotations

import tempfile
from argparse import Namespace
from pathlib import Path

from relax.core.controller import Controller
from relax.core.resume import checkpoint_of
from relax.progress.summary import Summary
from relax.transport.queue import Queue


class Rows:
    """Keeps the rows that a run shows."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float | int]] = []

    def step(self, row: dict[str, float | int]) -> None:
        """Keeps one."""
        self.rows.append(row)


def controller(args: Namespace, queue: Queue, folder: Path, rows: Rows | None = None) -> Controller:
    """The controller of a run that may start, whose ranks meet in ``folder``."""
    return Controller(args, queue, rows or Rows(), folder, checkpoint=checkpoint_of(args))


def real_run(args: Namespace, queue: Queue, rows: Rows | None = None) -> Summary:
    """A whole run."""
    with tempfile.TemporaryDirectory(prefix="relax-test-") as folder:
        return controller(args, queue, Path(folder), rows).run()
