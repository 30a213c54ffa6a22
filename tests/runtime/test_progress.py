"""What a person sees of a run: terminal, CSV and TensorBoard, and that there is a figure."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path

import pytest

from relax.arguments import build_parser
from relax.progress import Progress
from relax.progress.metrics_file import MetricsFile, read_rows
from relax.progress.numbers import shown, watched
from relax.progress.watch import ProgressError

ROW = {
    "rollout": 0,
    "step": 2,
    "reward/correctness": 0.1 + 0.2,
    "reward/format": 0.5,
    "rollout/gdpo/zero_std/correctness": 3.0,
    "rollout/gdpo/zero_std/combined": 1.0,
    "train/loss": -0.25,
    "train/ppo_kl": 1e-9,
    "train/grad_norm": 0.75,
    "samples": 16,
    "samples_per_second": 123.456,
}
WARM_UP = {"supervised_step": 7, "supervised/loss": 1.5}


class Screen(io.StringIO):
    """A terminal that remembers what was written to it."""

    def isatty(self) -> bool:
        return True


def row(rollout: int, **changes: float) -> dict[str, float]:
    return {**ROW, "rollout": rollout, "step": 2 * rollout + 2, **changes}


def run(folder: Path, rollouts: range, *, algorithm: str = "gdpo", first: int | None = None, gain: float = 0.1) -> None:
    """Rows of these rollouts, as a run would tell them."""
    args = build_parser().parse_args(["--log-dir", str(folder), "--num-rollout", "5"])
    args.advantage_estimator = algorithm
    with Progress(args, first=first, out=io.StringIO()) as progress:
        for rollout in rollouts:
            progress.step(row(rollout, **{"reward/correctness": gain * rollout}))


class TestTerminal:
    def test_watched(self) -> None:
        """The numbers people watch, in one order, under short names; what a row lacks is left out."""
        assert list(watched(ROW)) == [
            "rollout", "step", "correctness", "format", "loss", "KL", "gradient norm", "flat: correctness",
            "flat: combined", "samples/s",
        ]  # fmt: skip
        assert watched(WARM_UP) == {"warm-up step": 7, "loss": 1.5}

    def test_lines(self) -> None:
        """Elsewhere than on a terminal each row is one plain line."""
        out = io.StringIO()
        with Progress(build_parser().parse_args([]), out=out) as progress:
            progress.step(WARM_UP)
            progress.step(ROW)
        assert out.getvalue().splitlines() == [
            "warm-up step 7  loss 1.5000",
            "rollout 0  step 2  correctness 0.3000  format 0.5000  loss -0.2500  KL 1.0e-09  gradient norm 0.7500  "
            "flat: correctness 3  flat: combined 1  samples/s 123.5",
        ]

    @pytest.mark.parametrize(("width", "columns"), [(200, 12), (80, 5), (20, 1)])
    def test_table(self, width: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
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

    @pytest.mark.parametrize(
        ("number", "text"),
        [(7, "7"), (0.0, "0.0000"), (-0.0123456, "-0.0123"), (1e-5, "1.0e-05"), (412.34, "412.3"), (1e12, "1.0e+12")],
    )
    def test_digits(self, number: float, text: str) -> None:
        """A number has as many digits as one looks at."""
        assert shown(number) == text

    def test_dumb_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A terminal that can show nothing in place gets lines."""
        monkeypatch.setenv("TERM", "dumb")
        out = Screen()
        Progress(build_parser().parse_args([]), out=out).step(ROW)
        assert out.getvalue().startswith("rollout 0  step 2")


class TestMetricsFile:
    def test_bits(self, tmp_path: Path) -> None:
        """Numbers come back as they were."""
        file = MetricsFile(tmp_path / "metrics.csv", "rollout")
        numbers = {"rollout": 0, "a": 0.1 + 0.2, "b": 5e-324, "c": -0.0, "d": math.inf, "e": 10**20}
        file.step(numbers)
        (found,) = read_rows(tmp_path / "metrics.csv")
        assert {name: type(numbers[name])(text) for name, text in found.items()} == numbers
        assert found["c"] == "-0.0"

    def test_new_columns(self, tmp_path: Path) -> None:
        """A column that comes later is empty in the rows before it, and one that goes is empty after."""
        file = MetricsFile(tmp_path / "metrics.csv", "rollout")
        file.step({"rollout": 0, "a": 1.0})
        file.step({"rollout": 1, "b": 2.0})
        file.step({"rollout": 2, "b": 3.0, "a": 4.0})
        assert (tmp_path / "metrics.csv").read_text() == "rollout,a,b\n0,1.0,\n1,,2.0\n2,4.0,3.0\n"

    def test_cut(self, tmp_path: Path) -> None:
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


class TestFolder:
    def test_files(self, tmp_path: Path) -> None:
        """Rows of training and of the warm-up go to files of their own, the options beside them."""
        args = build_parser().parse_args(["--log-dir", str(tmp_path / "a" / "b"), "--seed", "3"])
        with Progress(args, out=io.StringIO()) as progress:
            progress.step(WARM_UP)
            progress.step(ROW)
        folder = tmp_path / "a" / "b"
        assert json.loads((folder / "options.json").read_text())["seed"] == 3
        with (folder / "metrics.csv").open(newline="") as file:
            assert list(csv.DictReader(file)) == [{name: repr(value) for name, value in ROW.items()}]
        assert (folder / "supervised.csv").read_text() == "supervised_step,supervised/loss\n7,1.5\n"
        assert (folder / "rewards.png").read_bytes().startswith(b"\x89PNG")
        assert scalars(folder / "tensorboard" / "supervised", "supervised/loss") == {7: 1.5}

    def test_resume(self, tmp_path: Path) -> None:
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

    def test_warm_up_again(self, tmp_path: Path) -> None:
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

    def test_no_figure(self, tmp_path: Path) -> None:
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

    @pytest.mark.parametrize("full", ["options.json", ".metrics.csv.part", "tensorboard/training"])
    def test_cannot_be_written(self, tmp_path: Path, full: str) -> None:
        """A file that cannot be written is named, with its reason and the remedy, whichever it is."""
        (tmp_path / full).parent.mkdir(exist_ok=True)
        (tmp_path / full).symlink_to(tmp_path / "no" / "such" if "/" in full else "/dev/full")
        args = build_parser().parse_args(["--log-dir", str(tmp_path)])

        def told() -> None:
            with Progress(args, out=io.StringIO(), err=io.StringIO()) as progress:
                progress.step(ROW)

        with pytest.raises(ProgressError, match=rf"^--log-dir {tmp_path}: .* cannot be written: .*; free the disk, or"):
            told()

    def test_nothing_without_a_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without --log-dir no file is written."""
        monkeypatch.chdir(tmp_path)
        with Progress(build_parser().parse_args([]), out=io.StringIO()) as progress:
            progress.step(ROW)
        assert list(tmp_path.iterdir()) == []


def scalars(folder: Path, tag: str) -> dict[int, float]:
    """Step to value, as TensorBoard shows them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {event.step: event.value for event in events.Scalars(tag)}
