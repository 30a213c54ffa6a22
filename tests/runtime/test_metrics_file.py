"""Metrics as a CSV file: to the bit, with columns that come and go, cut where a run goes on."""

from __future__ import annotations

import math
from pathlib import Path

from relax.progress.metrics_file import MetricsFile, read_rows


def test_bits(tmp_path: Path) -> None:
    """Numbers come back as they were."""
    file = MetricsFile(tmp_path / "metrics.csv", "rollout")
    numbers = {"rollout": 0, "a": 0.1 + 0.2, "b": 5e-324, "c": -0.0, "d": math.inf, "e": 10**20}
    file.step(numbers)
    (found,) = read_rows(tmp_path / "metrics.csv")
    assert {name: type(numbers[name])(text) for name, text in found.items()} == numbers
    assert found["c"] == "-0.0"


def test_new_columns(tmp_path: Path) -> None:
    """A column that comes later is empty in the rows before it, and one that goes is empty after."""
    file = MetricsFile(tmp_path / "metrics.csv", "rollout")
    file.step({"rollout": 0, "a": 1.0})
    file.step({"rollout": 1, "b": 2.0})
    file.step({"rollout": 2, "b": 3.0, "a": 4.0})
    assert (tmp_path / "metrics.csv").read_text() == "rollout,a,b\n0,1.0,\n1,,2.0\n2,4.0,3.0\n"


def test_cut(tmp_path: Path) -> None:
    """A run that goes on with rollout 2 keeps the rows before it, and writes the later ones anew."""
    path = tmp_path / "metrics.csv"
    file = MetricsFile(path, "rollout")
    for rollout in range(4):
        file.step({"rollout": rollout, "a": float(rollout)})
    with path.open("a") as out:
        out.write("4,")  # the row at which it was killed
    again = MetricsFile(path, "rollout", first=2)
    assert path.read_text() == "rollout,a\n0,0.0\n1,1.0\n"
    again.step({"rollout": 2, "a": 9.0})
    assert path.read_text() == "rollout,a\n0,0.0\n1,1.0\n2,9.0\n"
    MetricsFile(path, "rollout", first=0)
    assert not path.exists()
