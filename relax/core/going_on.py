"""What a run that is given a checkpoint has before it: where it goes on, or that nothing is left to do."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from relax.core.checkpoint import Checkpoint
from relax.core.schedule import roles_of, schedule
from relax.progress.metrics_file import numbered_rows
from relax.progress.numbers import EVALUATED
from relax.progress.watch import EVALUATIONS


def beginning(args: Namespace, checkpoint: Checkpoint | None) -> str:
    """A line that says where the run goes on; none for one that starts from the beginning, as told."""
    if args.load is None:
        return ""
    if checkpoint is None:
        return f"{args.load} holds no checkpoint yet: the run starts from the beginning\n"
    if checkpoint.step == args.num_rollout:
        return f"only the evaluation at the end is left to do, from {checkpoint.folder}\n"
    done = f"after rollout {checkpoint.step - 1}" if checkpoint.step else "before the first rollout"
    return f"the run goes on {done} of {args.num_rollout}, from {checkpoint.folder}\n"


def nothing_left(args: Namespace, checkpoint: Checkpoint | None) -> bool:
    """Whether all was done when it was saved, or since: the evaluation at the end, which comes after the last
    checkpoint, is in the records of ``--log-dir`` then.
    """
    if checkpoint is None or checkpoint.step < args.num_rollout:
        return False
    units = schedule(args, roles_of(args, resumed=True), resumed=checkpoint.step)
    return not units or _evaluated(args)


def _evaluated(args: Namespace) -> bool:
    path = None if args.log_dir is None else Path(args.log_dir) / EVALUATIONS
    if path is None or not path.exists():
        return False
    return args.num_rollout in (rollouts for rollouts, _ in numbered_rows(path, EVALUATED))
