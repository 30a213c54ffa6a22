"""What a run keeps below ``--log-dir``: CSV files, TensorBoard and the figure."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from relax.arguments import build_parser
from relax.progress import Progress
from relax.progress.metrics_file import read_rows
from relax.progress.watch import ProgressError
from tests.runtime.progress_rows import EVALUATION, ROW, WARM_UP, row, run, scalars


def test_files(tmp_path: Path) -> None:
    """Rows of training, of the warm-up and of evaluations go to files of their own, the options beside them."""
    args = build_parser().parse_args(["--log-dir", str(tmp_path / "a" / "b"), "--seed", "3"])
    with Progress(args, out=io.StringIO()) as progress:
        progress.step(WARM_UP)
        progress.step(EVALUATION)
        progress.step(ROW)
    folder = tmp_path / "a" / "b"
    assert json.loads((folder / "options.json").read_text())["seed"] == 3
    with (folder / "metrics.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [{name: repr(value) for name, value in ROW.items()}]
    assert (folder / "supervised.csv").read_text() == "supervised_step,supervised/loss\n7,1.5\n"
    assert (folder / "rewards.png").read_bytes().startswith(b"\x89PNG")
    assert scalars(folder / "tensorboard" / "supervised", "supervised/loss") == {7: 1.5}
    assert (folder / "evaluations.csv").read_text() == (
        "rollouts,step,evaluation/correctness,evaluation/format\n0,0,0.30000000000000004,0.5\n"
    )
    assert scalars(folder / "tensorboard" / "evaluation", "evaluation/format") == {0: 0.5}


def test_resume(tmp_path: Path) -> None:
    """A run that goes on leaves what an uninterrupted one does, in the CSV and in TensorBoard."""
    run(tmp_path / "whole", range(5))
    run(tmp_path / "cut", range(4))
    run(tmp_path / "cut", range(2, 5), first=2)
    whole, cut = ((tmp_path / name / "metrics.csv").read_text() for name in ("whole", "cut"))
    assert whole == cut
    tags = [tmp_path / name / "tensorboard" / "training" for name in ("whole", "cut")]
    expected, found = (scalars(folder, "reward/correctness") for folder in tags)
    assert expected == found
    assert sorted(expected) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("first", "made", "expected"),
    [
        (None, (0, 5), {0: 2.5, 5: 2.5}),
        (0, (0, 5), {0: 2.5, 5: 2.5}),
        (1, (5,), {0: 1.5, 5: 2.5}),
        (5, (9,), {0: 1.5, 5: 1.5, 9: 2.5}),  # of more rollouts than the run that it goes on from
    ],
)
def test_evaluations_again(
    tmp_path: Path, first: int | None, made: tuple[int, ...], expected: dict[int, float]
) -> None:
    """A run that goes on keeps the evaluations up to its checkpoint, and has those since once."""
    args = build_parser().parse_args(["--log-dir", str(tmp_path)])
    with Progress(args, out=io.StringIO()) as progress:
        for rollouts in (0, 5):
            progress.step({**EVALUATION, "rollouts": rollouts, "evaluation/format": 1.5})
    with Progress(args, first=first, out=io.StringIO()) as progress:
        for rollouts in made:
            progress.step({**EVALUATION, "rollouts": rollouts, "evaluation/format": 2.5})
    rows = read_rows(tmp_path / "evaluations.csv")
    assert expected == {int(row["rollouts"]): float(row["evaluation/format"]) for row in rows}
    assert expected == scalars(tmp_path / "tensorboard" / "evaluation", "evaluation/format")


def test_warm_up_again(tmp_path: Path) -> None:
    """A run that starts again before its first checkpoint has its warm-up once, in the CSV and in TensorBoard; one
    that goes on from a checkpoint keeps the warm-up that it had."""
    args = build_parser().parse_args(["--log-dir", str(tmp_path)])
    for loss in (1.5, 2.5):
        with Progress(args, out=io.StringIO()) as progress:
            progress.step({**WARM_UP, "supervised/loss": loss})
    with Progress(args, first=0, out=io.StringIO()) as progress:
        progress.step(ROW)
    assert (tmp_path / "supervised.csv").read_text() == "supervised_step,supervised/loss\n7,2.5\n"
    assert scalars(tmp_path / "tensorboard" / "supervised", "supervised/loss") == {7: 2.5}


def test_no_figure(tmp_path: Path) -> None:
    """A run that samples nothing has metrics and no figure; one whose figure cannot be drawn says so, and that is
    all: it is done."""
    args = build_parser().parse_args(["--log-dir", str(tmp_path)])
    with Progress(args, out=io.StringIO()) as progress:
        progress.step({"rollout": 0, "step": 1, "train/loss": 0.5})
    figure = tmp_path / "rewards.png"
    assert not figure.exists()
    figure.mkdir()
    for lost, reason in ((None, "Is a directory"), ("metrics.csv", f"{tmp_path} holds no metrics of a run")):
        err = io.StringIO()
        with Progress(args, first=1, out=io.StringIO(), err=err) as progress:
            progress.step(row(1))
            if lost:
                (tmp_path / lost).unlink()
        assert err.getvalue().startswith(f"relax: warning: {figure} is not drawn: {reason}")
        assert err.getvalue().count("\n") == 1


@pytest.mark.parametrize(
    "full", [".options.json.part", ".metrics.csv.part", ".evaluations.csv.part", "tensorboard/training"]
)
def test_cannot_be_written(tmp_path: Path, full: str) -> None:
    """A file that cannot be written is named, with its reason and the remedy, whichever it is."""
    (tmp_path / full).parent.mkdir(exist_ok=True)
    (tmp_path / full).symlink_to(tmp_path / "no" / "such" if "/" in full else "/dev/full")
    args = build_parser().parse_args(["--log-dir", str(tmp_path)])

    def told() -> None:
        with Progress(args, out=io.StringIO(), err=io.StringIO()) as progress:
            progress.step(EVALUATION)
            progress.step(ROW)

    with pytest.raises(ProgressError, match=rf"^--log-dir {tmp_path}: .* cannot be written: .*; free the disk, or"):
        told()


def test_nothing_without_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --log-dir no file is written."""
    monkeypatch.chdir(tmp_path)
    with Progress(build_parser().parse_args([]), out=io.StringIO()) as progress:
        progress.step(ROW)
    assert list(tmp_path.iterdir()) == []
