"""What a run says of the files that it left."""

from __future__ import annotations

import io
from pathlib import Path

from relax.arguments import build_parser
from relax.progress import Progress
from relax.progress.kept import kept
from tests.runtime.progress_rows import EVALUATION, ROW, WARM_UP


def test_all(tmp_path: Path) -> None:
    """Every file is named as it can be opened, TensorBoard by its command, and the latest checkpoint."""
    log, save = tmp_path / "the log", tmp_path / "save"
    for step in (9, 12):
        (save / f"step-{step:08d}").mkdir(parents=True)
    args = build_parser().parse_args(["--log-dir", str(log), "--save", str(save)])
    with Progress(args, out=io.StringIO()) as progress:
        for row in (WARM_UP, EVALUATION, ROW):
            progress.step(row)
    assert kept(args).splitlines() == [
        f"numbers      {log}/metrics.csv",
        f"numbers      {log}/supervised.csv",
        f"numbers      {log}/evaluations.csv",
        f"figure       {log}/rewards.png",
        f"TensorBoard  tensorboard --logdir '{log}'",
        f"checkpoint   {save}/step-00000012",
    ]


def test_nothing(tmp_path: Path) -> None:
    """Nothing is said of what is not there."""
    assert kept(build_parser().parse_args([])) == ""
    assert kept(build_parser().parse_args(["--log-dir", str(tmp_path), "--save", str(tmp_path)])) == ""
