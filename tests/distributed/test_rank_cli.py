"""``relax-verify ranks`` as a user meets it: the verdict last, the exit status, what is said when nothing can be."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from verification.cli import main

CASE = "advantage.estimate/gdpo/field-early-return@dp*"


@pytest.mark.usefixtures("megatron")
def test_the_verdict_is_the_last_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables by stage and layout, what was compared, the bounds that were used, then the verdict; status 0."""
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["ranks", "--case", CASE, "--case", "advantage.normalize/grpo/field-cp-whitening@*"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == "VERDICT equivalent"
    for word in ("rank cases", "advantage.estimate", "dp2", "one rank", "frozen on the same ranks", "whiten over ranks",
                 "cases a second", "worlds started"):  # fmt: skip
        assert word in printed


@pytest.mark.usefixtures("megatron")
def test_json_alone_and_beside(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """--json without a file is all of standard output; with a file the verdict is printed as well."""
    assert main(["ranks", "--case", CASE, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "VERDICT equivalent"
    assert {"ranks"} == {row["judge"] for row in told["judges"]}
    target = tmp_path / "report.json"
    assert main(["ranks", "--case", CASE, "--quiet", "--json", str(target)]) == 0
    assert capsys.readouterr().out == "VERDICT equivalent\n"
    assert told["comparisons"] == json.loads(target.read_text())["comparisons"]


@pytest.mark.usefixtures("megatron")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--case", "advantage.estimate/gdpo/no-such"], ("no case matches", "closest: advantage.estimate/gdpo/")),
        (["--layout", "dp9"], ("no rank case has layout dp9", "dp2-cp2", "tp2")),
        (["--layout", "pp2", "--stage", "loss.reduce"], ("no case matches --stage loss.reduce", "stages are")),
        (["--jobs", "0"], ("--jobs 0",)),
    ],
)
def test_nothing_to_run_is_2(arguments: list[str], words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """A choice of nothing gives 2, no verdict, and what there is."""
    assert main(["ranks", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    for word in words:
        assert word in captured.err


def test_without_megatron_is_2(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where megatron-core is not installed there is no verdict, and the line that installs it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["ranks", "--case", CASE]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "megatron-core is not installed: pip install" in captured.err


def test_list_prints_ids(capsys: pytest.CaptureFixture[str]) -> None:
    """--list prints one id a line and how many, and starts nothing."""
    assert main(["ranks", "--list", "--layout", "dp*", "--case", "*/gdpo/field-early-return@*"]) == 0
    captured = capsys.readouterr()
    ids = captured.out.splitlines()
    assert all(one.startswith("advantage.estimate/gdpo/field-early-return@dp") for one in ids)
    assert f"{len(ids)} rank cases\n" == captured.err


@pytest.mark.usefixtures("megatron")
def test_explain_lays_a_rank_case_open(capsys: pytest.CaptureFixture[str]) -> None:
    """explain takes a rank case: its input, who holds what, the collectives, every comparison."""
    assert main(["explain", "advantage.normalize/grpo/field-cp-whitening@cp2"]) == 0
    printed = capsys.readouterr().out
    for word in (
        "rank 1 (tp 0, cp 1, dp 0, pp 0): value",
        "of its response tokens",
        "all_reduce float32[3]",
        "relax-verify ranks --case advantage.normalize/grpo/field-cp-whitening@cp2",
    ):
        assert word in printed
    assert re.search(r"agrees +frozen on the same ranks +advantages", printed)
    assert printed.splitlines()[-1] == "VERDICT equivalent"
    assert main(["explain", "advantage.normalize/grpo/field-cp-whitening@cp9"]) == 2
    assert "closest: advantage.normalize/" in capsys.readouterr().err
