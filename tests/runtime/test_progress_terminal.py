"""The numbers people watch, on a terminal of any width and elsewhere."""

from __future__ import annotations

import io
import re
import time

import pytest

from relax.arguments import build_parser
from relax.progress import Progress
from relax.progress.numbers import shown, watched
from tests.runtime.progress_rows import EVALUATION, ROW, WARM_UP, row


class Screen(io.StringIO):
    """A terminal that remembers what was written to it."""

    def isatty(self) -> bool:
        return True


def test_watched() -> None:
    """The numbers people watch, in one order, under short names; what a row lacks is left out."""
    assert list(watched(ROW)) == [
        "rollout", "step", "correctness", "format", "loss", "KL", "gradient norm", "flat: correctness",
        "flat: combined", "samples/s",
    ]  # fmt: skip
    assert watched(WARM_UP) == {"warm-up step": 7, "loss": 1.5}


def test_lines() -> None:
    """Elsewhere than on a terminal each row is one plain line."""
    out = io.StringIO()
    with Progress(build_parser().parse_args([]), out=out) as progress:
        progress.step(WARM_UP)
        progress.step(EVALUATION)
        progress.step(ROW)
    assert out.getvalue().splitlines() == [
        "warm-up step 7  loss 1.5000",
        "evaluation after 0 rollouts  correctness 0.3000  format 0.5000",
        "rollout 0  step 2  correctness 0.3000  format 0.5000  loss -0.2500  KL 1.0e-09  gradient norm 0.7500  "
        "flat: correctness 3  flat: combined 1  samples/s 123.5",
    ]


@pytest.mark.parametrize(("width", "columns"), [(200, 12), (80, 5), (20, 1)])
def test_table(width: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal there is one table of as many of the latest rows as fit, which says how far the run is."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    out = Screen()
    with Progress(build_parser().parse_args(["--num-rollout", "60"]), out=out) as progress:
        progress.step(WARM_UP)
        for rollout in range(20):
            progress.step(row(rollout))
    before, _, last = out.getvalue().rpartition("of 60 rollouts")
    assert before.endswith("20 ")
    (numbers,) = [line for line in last.splitlines() if "rollout" in line]
    found = [int(number) for number in re.findall(r"\b\d+\b", re.sub(r"\x1b\[[0-9;]*m", "", numbers))]
    assert found == list(range(20 - columns, 20))
    assert max(len(re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line)) for line in last.splitlines()) <= max(width, 33)


def test_above_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal an evaluation is a line that stays, above the table, which goes on."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    out = Screen()
    with Progress(build_parser().parse_args([]), out=out) as progress:
        progress.step(WARM_UP)
        progress.step(EVALUATION)
        drawn = len(out.getvalue())
        progress.step(ROW)
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", out.getvalue())
    assert text.count("evaluation after 0 rollouts  correctness 0.3000  format 0.5000\n") == 1
    assert "evaluation" not in out.getvalue()[drawn:]
    assert "rollout" in out.getvalue()[drawn:]


def test_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is up is told with the seconds since the start began."""
    monkeypatch.setattr(time, "monotonic", lambda: 112.34)
    out = io.StringIO()
    Progress(build_parser().parse_args([]), began=100.0, out=out).started("Ray is up")
    assert out.getvalue() == "Ray is up after 12.3 s\n"


@pytest.mark.parametrize(
    ("number", "text"),
    [(7, "7"), (0.0, "0.0000"), (-0.0123456, "-0.0123"), (1e-5, "1.0e-05"), (412.34, "412.3"), (1e12, "1.0e+12")],
)
def test_digits(number: float, text: str) -> None:
    """A number has as many digits as one looks at."""
    assert shown(number) == text


@pytest.mark.parametrize(("width", "lines"), [(200, 1), (80, 2), (40, 5)])
def test_dumb_terminal(width: int, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that can show nothing in place gets lines, folded between two numbers."""
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", str(width))
    plain, folded = io.StringIO(), Screen()
    for out in (plain, folded):
        Progress(build_parser().parse_args([]), out=out).step(ROW)
    found = folded.getvalue().splitlines()
    assert len(found) == lines
    assert max(map(len, found)) <= width
    assert plain.getvalue().splitlines() == ["".join(found)]
