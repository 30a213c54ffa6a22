"""What a run refuses before anything is started: options that a command line may hold, and no run can do."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from relax.algorithms.spec import get_algorithm
from relax.core.checkpoint import Checkpoint
from relax.core.registry import SFT_LOSS_TYPE
from relax.core.rows import samples_of_rollout
from relax.core.schedule import roles_of, schedule
from relax.rollout.debug_data import require_rollouts


def refuse_run(args: Namespace, checkpoint: Checkpoint | None) -> None:
    """Raises ValueError for the first thing that cannot be done: one line, with the options and the remedy."""
    supervised = args.loss_type == SFT_LOSS_TYPE
    spec = None if supervised else get_algorithm(args.advantage_estimator)
    if supervised and args.debug_train_only:
        raise ValueError(
            f"--debug-train-only (on) and --loss-type {args.loss_type}: its data are demonstrations, which the task "
            "makes; drop --debug-train-only"
        )
    if supervised and not args.sft_steps:
        raise ValueError(
            f"--sft-steps 0 and --loss-type {args.loss_type}: there is nothing to train on; give the steps"
        )
    if supervised and checkpoint is not None:
        raise ValueError(
            f"--load {args.load} and --loss-type {args.loss_type}: supervised training is saved at its end, and starts "
            "from the beginning; drop --load"
        )
    if spec is not None and spec.needs_critic and args.debug_train_only:
        raise ValueError(
            f"--debug-train-only (on) and --advantage-estimator {spec.name}: it needs the values of a critic, and the "
            "actor is started alone; choose another algorithm, or drop --debug-train-only"
        )
    if args.max_staleness and not (args.hybrid or args.fully_async or args.debug_train_only):
        raise ValueError(
            f"--max-staleness {args.max_staleness} and --colocate: its roles work in turn, and no rollout is stale; "
            "give --hybrid or --fully-async, or drop --max-staleness"
        )
    if args.debug_rollout_only and args.save is not None:
        raise ValueError(f"--debug-rollout-only (on) and --save {args.save}: nothing is trained; drop --save")
    spanned = max(1, args.global_batch_size // samples_of_rollout(args))
    if args.save_interval % spanned:
        raise ValueError(
            f"--save-interval {args.save_interval} and --global-batch-size {args.global_batch_size}: an optimizer "
            f"batch holds the samples of {spanned} rollouts, and nothing is saved within one; give a --save-interval "
            f"that {spanned} divides"
        )
    resumed = None if checkpoint is None else checkpoint.step
    schedule(args, roles_of(args, resumed=checkpoint is not None), resumed=resumed)
    if args.debug_train_only:
        require_rollouts(Path(args.load_debug_rollout_data), range(resumed or 0, args.num_rollout))
