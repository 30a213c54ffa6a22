"""The performance table: both sides in turn, figures from a clock of the test's own, and an exit status."""

from __future__ import annotations

import json
from functools import partial

import pytest
import torch

from verification.bench import example, paired, rows
from verification.bench.cli import FAMILIES
from verification.bench.paired import Row, compare, share
from verification.cli import main


class Clock:
    """A clock that advances only when one of the two sides runs, by the side's own durations in turn."""

    def __init__(self, ours: list[float], theirs: list[float]) -> None:
        self.now, self.log = 0.0, []
        self.durations = {"ours": iter(ours), "theirs": iter(theirs), "step": iter([99, 100, 50, 100])}

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


def test_a_share_of_a_step(monkeypatch):
    """What one side takes beyond the other is a part of the step that is timed in the same round."""
    clock = Clock(ours=[99, 3, 4, 3], theirs=[99, 2, 2, 2.5])
    monkeypatch.setattr(paired.time, "perf_counter", clock)
    sides = {side: partial(clock.run, side) for side in ("ours", "theirs", "step")}
    row = share("name", sides["ours"], "other", sides["theirs"], sides["step"], target=1, rounds=3, calls=1)
    assert clock.log == ["theirs", "ours", "step"] * 4
    assert (row.figure, row.measure, row.holds) == (1.0, "% of a step", True)  # the median of 1/100, 2/50, 0.5/100
    assert (row.seconds, row.reference_seconds) == (3, 2)
    assert row.reference == "other; a step of 100000 ms"


def test_a_row_whose_sides_differ_in_bits_is_an_error():
    """What is timed must compute the same: a zero of another sign is a difference."""
    with pytest.raises(AssertionError, match="bits"):
        rows._same(torch.tensor([0.0]), torch.tensor([-0.0]))


@pytest.mark.parametrize(("figure", "status", "line"), [(60.0, 0, "BENCH holds"), (40.0, 1, "BENCH missed (1)")])
def test_the_verb_ends_in_one_line_and_a_status(monkeypatch, capsys, tmp_path, figure, status, line):
    """A promise that is missed is exit 1; --json holds every row."""
    row = Row("live", "frozen", "times faster", figure, 50, 0.001, 0.06, 7)
    monkeypatch.setattr(rows, "rows", lambda only: iter([row]))
    monkeypatch.setattr(rows, "at_scale", lambda: "over many ranks")
    before = torch.get_num_threads()
    try:
        assert main(["bench", "--json", str(tmp_path / "rows.json")]) == status
    finally:
        torch.set_num_threads(before)
    assert capsys.readouterr().out.rstrip().endswith(line)
    assert [entry["holds"] for entry in json.loads((tmp_path / "rows.json").read_text())] == [status == 0]


def test_families(monkeypatch):
    """The verb offers the families that there are, and measures those that are asked for, or all that are there."""
    assert tuple(rows.FAMILIES) == FAMILIES
    families = {name: partial(iter, [name]) for name in FAMILIES}
    monkeypatch.setattr(rows, "FAMILIES", families)
    monkeypatch.setattr(rows, "missing", lambda: "a package is not installed")
    assert list(rows.rows()) == [name for name in FAMILIES if name != "training"]
    assert list(rows.rows(["ranks", "gdpo"])) == ["gdpo", "ranks"]


def test_what_is_not_there_is_said(monkeypatch, capsys):
    """A family that cannot be measured here is a line of its own; asked for alone, an error."""
    monkeypatch.setattr(rows, "missing", lambda: "a package is not installed")
    monkeypatch.setattr(rows, "rows", lambda only: iter(()))
    before = torch.get_num_threads()
    try:
        assert main(["bench", "--only", "training", "gdpo"]) == 0
    finally:
        torch.set_num_threads(before)
    assert "training: not there: a package is not installed\nBENCH holds" in capsys.readouterr().out
    assert main(["bench", "--only", "training"]) == 2
    assert "training is not there: a package is not installed" in capsys.readouterr().err


def test_example_is_there_or_why_not(monkeypatch):
    """The example needs a checkout and its packages; what lacks is named, with the remedy."""
    monkeypatch.setattr(example.importlib.util, "find_spec", lambda name: None if name == "megatron" else name)
    assert "megatron-core not installed: pip install" in example.missing()
    monkeypatch.setattr(example, "CONFIG", example.ROOT / "nowhere.yaml")
    assert "nowhere.yaml does not exist" in example.missing()
