"""Metrics as a CSV file, a row a time: appended to as the run goes, cut where a run goes on from a checkpoint."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path

from relax.progress.numbers import Row

Cells = dict[str, str]


class ProgressError(ValueError):
    """What a run writes down cannot be written, or gone on with; names the file, the reason and the remedy."""


class MetricsFile:
    """The file at ``path``, with a header. Numbers are written so that reading them gives the same bits.

    ``number`` is the column by which rows are numbered. ``first`` cuts the rows from that number on, which a run that
    goes on writes anew; without it the file is left as it is.
    """

    def __init__(self, path: Path, number: str, *, first: int | None = None) -> None:
        self._path = path
        self._columns: list[str] = []
        rows = [row for at, row in numbered_rows(path, number) if first is None or at < first] if path.exists() else []
        if rows:
            self._write(list(rows[0]), rows)
        elif path.exists():
            path.unlink()

    def step(self, row: Row) -> None:
        """Appends one row; columns that are new are added to the rows before it, empty."""
        cells = {name: repr(value) for name, value in row.items()}
        columns = [*self._columns, *(name for name in cells if name not in self._columns)]
        if columns != self._columns:
            self._write(columns, [*(read_rows(self._path) if self._columns else []), cells])
            return
        with self._path.open("a", newline="") as file:
            _writer(file, columns).writerow(cells)

    def _write(self, columns: list[str], rows: Sequence[Cells]) -> None:
        """The whole file in one step: whoever reads it meanwhile sees the old one or the new one."""
        part = self._path.with_name(f".{self._path.name}.part")
        with part.open("w", newline="") as file:
            writer = _writer(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        os.replace(part, self._path)
        self._columns = columns


def numbered_rows(path: Path, number: str) -> list[tuple[int, Cells]]:
    """The rows of such a file with their numbers, which are in column ``number``. Raises `ProgressError`."""
    try:
        return [(int(row[number]), row) for row in read_rows(path)]
    except (KeyError, ValueError, csv.Error) as error:
        raise ProgressError(
            f"{path} is damaged, or no file of a run: its column {number!r} is missing or holds no numbers; move it "
            "away, or give another folder to --log-dir"
        ) from error


def read_rows(path: Path) -> list[Cells]:
    """The rows of such a file, column to text; a last row that a killed process left half-written is left out."""
    with path.open(newline="") as file:
        return [row for row in csv.DictReader(file) if None not in row and None not in row.values()]


def _writer(file, columns: Sequence[str]) -> csv.DictWriter:
    return csv.DictWriter(file, columns, restval="", lineterminator="\n")
