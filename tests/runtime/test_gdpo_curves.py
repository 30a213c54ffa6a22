"""The numbers of the GDPO example: its README's tables and its figure are what its data say, and both rewards rise."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from statistics import fmean

import pytest

from relax.progress.figure import draw

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gdpo"
RUNS = [(algorithm, seed) for algorithm in ("gdpo", "grpo") for seed in range(3)]
REWARDS = ("correctness", "format")
ENDS = 5  # rollouts, at either end, whose mean the README gives


def rows(name: str, algorithm: str, seed: int) -> list[dict[str, str]]:
    """Those of one run."""
    with (EXAMPLE / name).open(newline="") as file:
        return [row for row in csv.DictReader(file) if (row["algorithm"], row["seed"]) == (algorithm, str(seed))]


def likeliest(algorithm: str, seed: int, reward: str) -> tuple[float, float]:
    """The evaluation before the first rollout, and after the last."""
    by_time = {row["when"]: float(row[reward]) for row in rows("evaluations.csv", algorithm, seed)}
    return by_time["start"], by_time["end"]


def sampled(algorithm: str, seed: int, reward: str) -> tuple[float, float]:
    """The mean of the first rollouts, and of the last."""
    curve = [float(row[reward]) for row in rows("curves.csv", algorithm, seed)]
    return fmean(curve[:ENDS]), fmean(curve[-ENDS:])


@pytest.mark.parametrize(("algorithm", "seed"), RUNS)
def test_curves(algorithm: str, seed: int) -> None:
    """Sixty rollouts, two optimizer steps each, and both rewards higher at the end than at the start."""
    steps = [(int(row["rollout"]), int(row["step"])) for row in rows("curves.csv", algorithm, seed)]
    assert steps == [(rollout, 2 * rollout + 2) for rollout in range(60)]
    for reward in REWARDS:
        for start, end in (likeliest(algorithm, seed, reward), sampled(algorithm, seed, reward)):
            assert start < end


def test_table() -> None:
    """The README's table is that of the data."""
    expected = {}
    for algorithm, seed in RUNS:
        cells = ["{:.3f} → {:.3f}".format(*likeliest(algorithm, seed, reward)) for reward in REWARDS]
        cells += ["{:.2f} → {:.2f}".format(*sampled(algorithm, seed, reward)) for reward in REWARDS]
        expected[algorithm.upper(), str(seed)] = cells
    table = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (EXAMPLE / "README.md").read_text().splitlines()
        if re.match(r"\| G(D|R)PO \| \d \|", line)
    ]
    assert expected == {(name, seed): cells for name, seed, *cells in table}


def test_figure(tmp_path: Path) -> None:
    """The README's figure is that of the data."""
    from matplotlib.image import imread

    folders = []
    for algorithm, seed in RUNS:
        folder = tmp_path / f"{algorithm}-{seed}"
        folder.mkdir()
        (folder / "options.json").write_text(json.dumps({"advantage_estimator": algorithm}))
        with (folder / "metrics.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["rollout", *(f"reward/{reward}" for reward in REWARDS)])
            curves = rows("curves.csv", algorithm, seed)
            writer.writerows([row["rollout"], *(row[reward] for reward in REWARDS)] for row in curves)
        folders.append(folder)
    draw(folders, tmp_path / "drawn.png")
    expected, drawn = imread(EXAMPLE / "rewards.png"), imread(tmp_path / "drawn.png")
    assert expected.shape == drawn.shape
    # reason: the edges of letters and lines, should another build of matplotlib round them otherwise
    assert abs(expected - drawn).mean() < 1e-3
