"""Metrics as TensorBoard's scalars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relax.progress.numbers import Row


class TensorBoard:
    """Event files in ``folder``, made with the first row; ``number`` is the metric that counts the steps.

    Of a run that goes on, TensorBoard leaves out what was written before of the steps from ``first`` on.
    """

    def __init__(self, folder: Path, number: str, *, first: int | None = None) -> None:
        self._folder, self._number, self._first = folder, number, first
        self._writer: Any = None

    def step(self, row: Row) -> None:
        """Writes one row."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(self._folder, purge_step=self._first)
        for name, value in row.items():
            if name != self._number:
                self._writer.add_scalar(name, value, row[self._number])
        self._writer.flush()

    def finish(self) -> None:
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()
