"""Everything that shows a run, in one object that the driver tells each row."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO

from relax.progress.metrics_file import MetricsFile, ProgressError, numbered_rows
from relax.progress.numbers import REWARD, Row
from relax.progress.tensorboard import TensorBoard
from relax.progress.terminal import Terminal

METRICS, SUPERVISED = "metrics.csv", "supervised.csv"
OPTIONS, FIGURE = "options.json", "rewards.png"
_BOARDS = "tensorboard"


class Progress:
    """The terminal, and below ``args.log_dir``, where it is given, CSV files, TensorBoard and the figure.

    ``first`` is the rollout with which a run goes on from a checkpoint; None for one that starts with its warm-up. Rows
    are mappings of metric to number, and hold ``rollout``, or ``supervised_step`` in the warm-up. Raises
    `ProgressError`, but for what is left to do when the run is over: that is said on ``err``.
    """

    def __init__(
        self, args: Namespace, *, first: int | None = None, out: IO[str] | None = None, err: IO[str] | None = None
    ) -> None:
        self._folder = None if args.log_dir is None else Path(args.log_dir)
        self._terminal = Terminal(sys.stdout if out is None else out, args.num_rollout)
        self._err = sys.stderr if err is None else err
        self._files: dict[str, tuple[MetricsFile, TensorBoard]] = {}
        self._has_rewards = False
        if self._folder is None:
            return
        with _written(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / OPTIONS).write_text(json.dumps(vars(args), indent=1, sort_keys=True, default=repr) + "\n")
            boards = self._folder / _BOARDS
            self._files = {
                "rollout": _files(self._folder / METRICS, boards / "training", "rollout", first or 0),
                # A run that goes on has no warm-up any more.
                "supervised_step": _files(
                    self._folder / SUPERVISED, boards / "supervised", "supervised_step", 0 if first is None else None
                ),
            }

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    def step(self, row: Row) -> None:
        """Shows and keeps one row."""
        self._terminal.step(row)
        self._has_rewards |= any(name.startswith(REWARD) for name in row)
        for number, files in self._files.items():
            if self._folder is not None and number in row:
                with _written(self._folder):
                    for file in files:
                        file.step(row)

    def finish(self) -> None:
        """Draws the rewards, where there were any; may be called twice."""
        self._terminal.finish()
        if self._folder is not None and self._has_rewards:
            self._draw(self._folder)

    def _draw(self, folder: Path) -> None:
        from relax.progress.figure import draw

        try:
            draw([folder], folder / FIGURE)
        except Exception as error:  # whatever ails it, the run itself is done
            reason = (error.strerror if isinstance(error, OSError) else None) or " ".join(str(error).split())
            self._err.write(f"relax: warning: {folder / FIGURE} is not drawn: {reason}\n")


def check_records(folder: Path) -> None:
    """Raises `ProgressError` where a run cannot go on with what one has written there."""
    with _written(folder):
        for name, number in ((METRICS, "rollout"), (SUPERVISED, "supervised_step")):
            if (folder / name).exists():
                numbered_rows(folder / name, number)


def _files(path: Path, board: Path, number: str, first: int | None) -> tuple[MetricsFile, TensorBoard]:
    return MetricsFile(path, number, first=first), TensorBoard(board, number, first=first)


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ProgressError(
            f"--log-dir {folder}: {error.filename or 'a file there'} cannot be written: {error.strerror or error}; "
            "free the disk, or give another folder"
        ) from error
