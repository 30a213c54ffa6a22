"""``python -m relax.train`` with functions of one's own that do what they may, and a disk that fills up under it."""

from __future__ import annotations

import errno
import math
import os
from argparse import Namespace
from pathlib import Path

from relax.core.checkpoint import checkpoints, open_checkpoint
from relax.progress.metrics_file import read_rows
from relax.types import Sample
from tests.runtime.small_run import varied_rewards
from tests.runtime.test_train_command import train

HERE = "tests.runtime.test_train_odd_rewards"


def odd_rewards(args: Namespace, sample: Sample) -> dict[str, object]:
    """What training reads, and beside it what nobody can average: text, NaN, and a name that comes and goes."""
    more: dict[str, object] = {"unknown": math.nan, "note": "text"}
    if sample.response_length % 2:
        more["odd"] = 1
    return {**more, **varied_rewards(args, sample)}


def by_length(args: Namespace, samples: list[Sample]) -> None:
    """Advantages of one's own, for a whole rollout at a time."""
    mean = sum(sample.response_length for sample in samples) / len(samples)
    for sample in samples:
        sample.custom_advantage = sample.response_length - mean


def on_a_full_disk(args: Namespace, sample: Sample) -> dict[str, float]:
    """Rewards of a process that can write nothing from now on."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    os.fsync = full
    return varied_rewards(args, sample)


def test_odd_rewards(tmp_path: Path) -> None:
    """Rewards that are not trained on may be anything: the run saves, goes on from there, and shows what it can. With
    advantages of one's own it trains on those."""
    save, log = str(tmp_path / "save"), tmp_path / "log"
    grpo = ("--advantage-estimator", "grpo", "--reward-key", "total", "--agentic-custom-advantage-path")
    own = (*grpo, f"{HERE}:by_length", "--custom-rm-path", f"{HERE}:odd_rewards")
    kept = ("--eval-problems", "4", "--save", save, "--save-interval", "1", "--log-dir", str(log))
    first = train(*own, *kept, "--num-rollout", "1")
    assert first.returncode == 0
    again = train(*own, *kept, "--load", f"{save}/")
    assert again.returncode == 0
    assert checkpoints(tmp_path / "save") == [0, 1, 2]
    (table,) = [line.split() for line in again.stdout.splitlines() if line.startswith("  unknown")]
    assert table == ["unknown", "nan", "nan", "+nan"]
    rows = read_rows(log / "metrics.csv")
    assert [row["rollout"] for row in rows] == ["0", "1"]
    assert [row["reward/unknown"] for row in rows] == ["nan", "nan"]
    assert {"reward/correctness", "reward/format", "reward/odd"} <= rows[0].keys()
    assert "reward/note" not in rows[0]
    evaluations = open_checkpoint(tmp_path / "save", 1).facts("run")["evaluations"]
    assert evaluations["start"]["unknown"] == "nan"


def test_full_disk(tmp_path: Path) -> None:
    """A save that fails ends the run with one line; the checkpoint before it stays, and nothing half-written does."""
    done = train("--custom-rm-path", f"{HERE}:on_a_full_disk", "--save", str(tmp_path), "--save-interval", "1")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "rollout.json cannot be written: No space left on device" in done.stderr or (
        "rollout.safetensors cannot be written: No space left on device" in done.stderr
    )
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000000"]
