"""Everything that shows a run, in one object that the driver tells each row."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO

from relax.progress.metrics_file import MetricsFile, ProgressError, numbered_rows
from relax.progress.numbers import EVALUATED, REWARD, Row
from relax.progress.tensorboard import TensorBoard
from relax.progress.terminal import Terminal

METRICS, SUPERVISED, EVALUATIONS = "metrics.csv", "supervised.csv", "evaluations.csv"
NUMBERED = {METRICS: "rollout", SUPERVISED: "supervised_step", EVALUATIONS: EVALUATED}
"""The CSV files, each with the column by which its rows are numbered."""
OPTIONS, FIGURE, BOARDS = "options.json", "rewards.png", "tensorboard"
_BOARDS = {METRICS: "training", SUPERVISED: "supervised", EVALUATIONS: "evaluation"}


class Progress:
    """The terminal, and below ``args.log_dir``, where it is given, CSV files, TensorBoard and the figure.

    ``first`` is the rollout with which a run goes on from a checkpoint; None for one that starts with its warm-up. Rows
    are mappings of metric to number, and hold one of the columns of `NUMBERED`. ``began`` is when the start began, by
    the monotonic clock. Raises `ProgressError`, but for what is left to do when the run is over: that is said on
    ``err``.
    """

    def __init__(
        self,
        args: Namespace,
        *,
        first: int | None = None,
        began: float | None = None,
        out: IO[str] | None = None,
        err: IO[str] | None = None,
    ) -> None:
        self._folder = None if args.log_dir is None else Path(args.log_dir)
        self._terminal = Terminal(sys.stdout if out is None else out, args.num_rollout)
        self._err = sys.stderr if err is None else err
        self._began = time.monotonic() if began is None else began
        self._files: dict[str, tuple[MetricsFile, TensorBoard]] = {}
        self._has_rewards = False
        if self._folder is None:
            return
        with _written(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            options, part = self._folder / OPTIONS, self._folder / f".{OPTIONS}.part"
            part.write_text(json.dumps(vars(args), indent=1, sort_keys=True, default=repr) + "\n")
            part.replace(options)
            for name, number in NUMBERED.items():
                self._files[number] = _files(self._folder, name, number, _cut(name, first))

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    def started(self, what: str) -> None:
        """Says ``what`` is there now, such as ``Ray is up``, and how long it took since the start began."""
        self._terminal.say(f"{what} after {time.monotonic() - self._began:.1f} s")

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
        for name, number in NUMBERED.items():
            if (folder / name).exists():
                numbered_rows(folder / name, number)


def _cut(name: str, first: int | None) -> int | None:
    """The number from which on a run that goes on writes the rows of a file anew; None where it leaves them."""
    if name == SUPERVISED and first is not None:
        return None  # it has no warm-up any more
    if name == EVALUATIONS and first:
        return first + 1  # after ``first`` rollouts is the end of the run that it goes on from
    return first or 0


def _files(folder: Path, name: str, number: str, first: int | None) -> tuple[MetricsFile, TensorBoard]:
    board = folder / BOARDS / _BOARDS[name]
    return MetricsFile(folder / name, number, first=first), TensorBoard(board, number, first=first)


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        file = error.filename2 or error.filename or "a file there"
        raise ProgressError(
            f"--log-dir {folder}: {file} cannot be written: {error.strerror or error}; free the disk, or give another "
            "folder"
        ) from error
