"""Rows as a run tells them, and how TensorBoard reads what became of them."""

from __future__ import annotations

import io
from pathlib import Path

from relax.arguments import build_parser
from relax.progress import Progress

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
EVALUATION = {"rollouts": 0, "step": 0, "evaluation/correctness": 0.1 + 0.2, "evaluation/format": 0.5}


def row(rollout: int, **changes: float) -> dict[str, float]:
    """`ROW` of this rollout."""
    return {**ROW, "rollout": rollout, "step": 2 * rollout + 2, **changes}


def run(folder: Path, rollouts: range, *, algorithm: str = "gdpo", first: int | None = None, gain: float = 0.1) -> None:
    """Rows of these rollouts, as a run would tell them."""
    args = build_parser().parse_args(["--log-dir", str(folder), "--num-rollout", "5"])
    args.advantage_estimator = algorithm
    with Progress(args, first=first, out=io.StringIO()) as progress:
        for rollout in rollouts:
            progress.step(row(rollout, **{"reward/correctness": gain * rollout}))


def scalars(folder: Path, tag: str) -> dict[int, float]:
    """Step to value, as TensorBoard shows them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {event.step: event.value for event in events.Scalars(tag)}
