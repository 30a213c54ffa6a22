"""Everything that shows a run, in one object that the driver tells each row."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from types import TracebackType
from typing import IO

from relax.progress.metrics_file import MetricsFile
from relax.progress.numbers import REWARD, Row
from relax.progress.tensorboard import TensorBoard
from relax.progress.terminal import Terminal

METRICS, SUPERVISED = "metrics.csv", "supervised.csv"
OPTIONS, FIGURE = "options.json", "rewards.png"
_BOARDS = "tensorboard"


class Progress:
    """The terminal, and below ``args.log_dir``, where it is given, CSV files, TensorBoard and the figure.

    ``first`` is the rollout with which a run goes on that was loaded; None for one from the start. Rows are mappings of
    metric to number, and hold ``rollout``, or ``supervised_step`` in the warm-up.
    """

    def __init__(self, args: Namespace, *, first: int | None = None, out: IO[str] | None = None) -> None:
        self._folder = None if args.log_dir is None else Path(args.log_dir)
        self._terminal = Terminal(sys.stdout if out is None else out, args.num_rollout)
        self._files: dict[str, tuple[MetricsFile, TensorBoard]] = {}
        self._has_rewards = False
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / OPTIONS).write_text(json.dumps(vars(args), indent=1, sort_keys=True, default=repr) + "\n")
        boards = self._folder / _BOARDS
        self._files = {
            "rollout": (
                MetricsFile(self._folder / METRICS, "rollout", first=first),
                TensorBoard(boards / "training", "rollout", first=first),
            ),
            "supervised_step": (
                MetricsFile(self._folder / SUPERVISED, "supervised_step"),
                TensorBoard(boards / "supervised", "supervised_step"),
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
            if number in row:
                for file in files:
                    file.step(row)

    def finish(self) -> None:
        """Closes what is open and draws the rewards, where there were any; may be called twice."""
        self._terminal.finish()
        for _, board in self._files.values():
            board.finish()
        if self._folder is not None and self._has_rewards:
            self._draw(self._folder)

    def _draw(self, folder: Path) -> None:
        from relax.progress.figure import draw

        try:
            draw([folder], folder / FIGURE)
        except OSError as error:  # the run itself is done
            self._terminal.say(f"{folder / FIGURE} cannot be written: {error.strerror or error}")
