"""The figure of runs side by side: ``python -m relax.progress``."""

from __future__ import annotations

from pathlib import Path

import pytest

from relax.progress.__main__ import main
from tests.runtime.test_progress import run


def test_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs of two algorithms, two of one, are drawn into one figure, which depends on nothing but them."""
    for number, (algorithm, gain) in enumerate([("gdpo", 0.2), ("gdpo", 0.15), ("grpo", 0.1)]):
        run(tmp_path / str(number), range(5), algorithm=algorithm, gain=gain)
    folders = [str(tmp_path / str(number)) for number in range(3)]
    assert main([*folders, "--png", str(tmp_path / "one.png")]) == 0
    assert main([*folders, "--png", str(tmp_path / "two.png"), "--rewards", "correctness", "format"]) == 0
    one, two = ((tmp_path / f"{name}.png").read_bytes() for name in ("one", "two"))
    assert one == two
    assert main([*folders, "--png", str(tmp_path / "three.png"), "--rewards", "format"]) == 0
    assert one != (tmp_path / "three.png").read_bytes()
    assert capsys.readouterr().err == ""


def test_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is no folder of a run, a reward that is not there, and a place that cannot be written: one line each."""
    for name, rows in (("run", ""), ("columns", "step,reward/x\n1,1\n"), ("numbers", "rollout,reward/x\n1,x\n")):
        run(tmp_path / name, range(2))
        if rows:
            (tmp_path / name / "metrics.csv").write_text(rows)
    good, png = str(tmp_path / "run"), str(tmp_path / "x.png")
    for argv, words in (
        ([str(tmp_path / "none"), "--png", png], "none holds no metrics of a run"),
        (
            [str(tmp_path / "columns"), "--png", png],
            "metrics.csv is damaged, or no file of a run: its column 'rollout'",
        ),
        ([str(tmp_path / "numbers"), "--png", png], "numbers holds no metrics of a run (could not convert string"),
        ([good, "--png", png, "--rewards", "size"], "no reward 'size' in every run: there are correctness, format"),
        ([good, "--png", str(tmp_path / "no" / "x.png")], "x.png cannot be written: No such file"),
    ):
        assert main(argv) == 2
        message = capsys.readouterr().err
        assert words in message
        assert message.count("\n") == 1
