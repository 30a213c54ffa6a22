"""The performance table: both sides in turn, figures from a clock of the test's own, and an exit status."""

from __future__ import annotations

import json

import pytest
import torch

from verification.bench import paired, rows
from verification.bench.paired import Row, compare
from verification.cli import main


class Clock:
    """A clock that advances only when one of the two sides runs, by the side's own durations in turn."""

    def __init__(self, ours: list[float], theirs: list[float]) -> None:
        self.now, self.log = 0.0, []
        self.durations = {"ours": iter(ours), "theirs": iter(theirs)}

    def __call__(self) -> float:
        return self.now

    def run(self, side: str) -> None:
        self.log.append(side)
        self.now += next(self.durations[side])


@pytest.mark.parametrize(
    ("measure", "target", "figure", "holds"),
    [
        ("times faster", 3, 4.0, True),  # the median of 10/1, 8/2, 3/3
        ("times faster", 5, 4.0, False),
        ("times the time", 0.25, 0.25, True),
        ("times the time", 0.2, 0.25, False),
        ("ms more", -1999, -2000.0, True),  # the fastest 1 s less the fastest 3 s
        ("ms more", -2001, -2000.0, False),
    ],
)
def test_a_row_states_the_figure_of_its_measure(monkeypatch, measure, target, figure, holds):
    """Both sides run in turn, the first round is not counted, and the figure is held against the target."""
    clock = Clock(ours=[99, 1, 2, 3], theirs=[99, 10, 8, 3])
    monkeypatch.setattr(paired.time, "perf_counter", clock)
    row = compare(
        "name",
        lambda: clock.run("ours"),
        "other",
        lambda: clock.run("theirs"),
        measure=measure,
        target=target,
        rounds=3,
    )
    assert clock.log == ["theirs", "ours"] * 4
    assert (row.figure, row.holds, row.seconds, row.reference_seconds) == (figure, holds, 2, 8)


def test_a_row_whose_sides_differ_in_bits_is_an_error():
    """What is timed must compute the same: a zero of another sign is a difference."""
    with pytest.raises(AssertionError, match="bits"):
        rows._same(torch.tensor([0.0]), torch.tensor([-0.0]))


@pytest.mark.parametrize(("figure", "status", "line"), [(60.0, 0, "BENCH holds"), (40.0, 1, "BENCH missed (1)")])
def test_the_verb_ends_in_one_line_and_a_status(monkeypatch, capsys, tmp_path, figure, status, line):
    """A promise that is missed is exit 1; --json holds every row."""
    row = Row("live", "frozen", "times faster", figure, 50, 0.001, 0.06, 7)
    monkeypatch.setattr(rows, "rows", lambda: iter([row]))
    monkeypatch.setattr(rows, "at_scale", lambda: "over many ranks")
    before = torch.get_num_threads()
    try:
        assert main(["bench", "--json", str(tmp_path / "rows.json")]) == status
    finally:
        torch.set_num_threads(before)
    assert capsys.readouterr().out.rstrip().endswith(line)
    assert [entry["holds"] for entry in json.loads((tmp_path / "rows.json").read_text())] == [status == 0]
