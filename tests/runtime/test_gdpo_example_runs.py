"""The commands of the GDPO example's README, each in a process of its own from the folder that it names, cut short."""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.test_gdpo_example import ROOT, readme_commands
from verification.cli import main

SHORT = ("--num-rollout", "2", "--sft-steps", "2", "--eval-problems", "20")


def command(module: str, *options: str) -> list[str]:
    """The lines that ``python -m module`` prints, where it is happy."""
    line = [sys.executable, "-m", module, *options]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[str]]]:
    """The README's run of GDPO and that of GRPO beside it: by algorithm, its folder, and the lines that it printed."""
    runs = {}
    for algorithm, options in zip(("gdpo", "grpo"), readme_commands("relax.train"), strict=False):
        folder = tmp_path_factory.mktemp(algorithm)
        trace = ("--trace-rollout", "1", "--trace-folder", os.path.relpath(folder / "trace", ROOT))
        runs[algorithm] = folder, command("relax.train", *options, *SHORT, *trace, "--log-dir", str(folder / "log"))
    return runs


@pytest.mark.parametrize("algorithm", ["gdpo", "grpo"])
def test_prints(ran: dict[str, tuple[Path, list[str]]], algorithm: str) -> None:
    """Both rewards at the start and at the end, where the time went, and that no sample was lost, of 512."""
    folder, lines = ran[algorithm]
    assert algorithm == json.loads((folder / "log" / "options.json").read_text())["advantage_estimator"]
    assert lines[-1] == "generated 512 == enqueued 512 == trained 512"
    (header,) = [place for place, line in enumerate(lines) if line.split() == ["evaluation", "start", "end", "change"]]
    table = [line.split() for line in lines[header + 1 : header + 4]]
    assert [name for name, *_ in table] == ["correctness", "format", "total"]
    assert all(0 <= float(number) <= 2 for _, *numbers, _ in table for number in numbers)
    assert [line.split()[:2] for line in lines if line.startswith("rollout")] == [["rollout", "0"], ["rollout", "1"]]
    assert sum(line.startswith("where the time went") for line in lines) == 1


@pytest.mark.parametrize("algorithm", ["gdpo", "grpo"])
def test_finite(ran: dict[str, tuple[Path, list[str]]], algorithm: str) -> None:
    """Every number of the warm-up and of both rollouts is finite: loss, advantages and gradient norms among them."""
    log = ran[algorithm][0] / "log"
    rows = list(csv.DictReader((log / "metrics.csv").read_text().splitlines()))
    rows += csv.DictReader((log / "supervised.csv").read_text().splitlines())
    assert len(rows) == 3
    assert [name for row in rows for name, cell in row.items() if not math.isfinite(float(cell))] == []
    for name in ("train/loss", "train/grad_norm", "train/advantage", "train/advantage_abs"):
        assert all(name in row for row in rows[:2]), name
    assert all(float(row["train/grad_norm"]) > 1e-3 and float(row["train/advantage_abs"]) > 1e-3 for row in rows[:2])


@pytest.mark.parametrize("algorithm", ["gdpo", "grpo"])
def test_replays(ran: dict[str, tuple[Path, list[str]]], algorithm: str) -> None:
    """A trace whose folder was given relative to where the run started is there, whole, and replayed to the bit."""
    assert main(["replay", str(ran[algorithm][0] / "trace")]) == 0


def test_figure(ran: dict[str, tuple[Path, list[str]]], tmp_path: Path) -> None:
    """The README's last command draws both runs."""
    logs = [str(folder / "log") for folder, _ in ran.values()]
    command("relax.progress", *logs, "--png", str(tmp_path / "rewards.png"))
    assert (tmp_path / "rewards.png").read_bytes().startswith(b"\x89PNG")
