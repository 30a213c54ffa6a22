"""The checkpoint that a run goes on from, and whether its options allow it."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from relax.core.checkpoint import Checkpoint, CheckpointError, checkpoints, open_checkpoint
from relax.core.rows import needs_reference
from relax.core.schedule import SAVED

RUN = "run"
"""The part of a checkpoint with the counts of the run, and the options below."""
PUBLISHED = "published"
"""The part with the versions of the weights that later rollouts, or the reference, still need."""

# What a checkpoint's rollouts, versions of the weights and random numbers are counted in.
LASTING = ("rollout_batch_size", "n_samples_per_prompt", "global_batch_size", "max_staleness", "seed")


def checkpoint_of(args: Namespace) -> Checkpoint | None:
    """The latest checkpoint of ``--load``; None without that option, and where ``--save`` is the same folder and holds
    none yet: the run was ended before its first, and starts again.

    Raises `CheckpointError` where there is none, where it is damaged, and where an option that its numbers depend on is
    another now. Before its first rollout a run depends on none.
    """
    if args.load is None or (_goes_on_in_place(args) and not checkpoints(Path(args.save))):
        return None
    checkpoint = open_checkpoint(Path(args.load))
    checkpoint.check()
    _check_options(args, checkpoint)
    _check_reference(args, checkpoint)
    _check_save(args, checkpoint)
    return checkpoint


def _check_options(args: Namespace, checkpoint: Checkpoint) -> None:
    then = checkpoint.facts(RUN)["options"]
    for name in LASTING if checkpoint.step else ():
        now, option = getattr(args, name), f"--{name.replace('_', '-')}"
        if now != then[name]:
            raise CheckpointError(
                f"{option} {now} and --load {checkpoint.folder}: it was saved with {then[name]}, and goes on with no "
                f"other; give {option} {then[name]}"
            )
    if checkpoint.step > args.num_rollout:
        raise CheckpointError(
            f"--num-rollout {args.num_rollout} and --load {checkpoint.folder}: it was saved after {checkpoint.step} "
            "rollouts; give more, or an earlier checkpoint's folder"
        )


def _check_reference(args: Namespace, checkpoint: Checkpoint) -> None:
    """The reference is the policy before its first step, which a run keeps only where an option reads it."""
    if checkpoint.step and needs_reference(args) and 0 not in checkpoint.facts(PUBLISHED)["versions"]:
        option = "--use-kl-loss" if args.use_kl_loss else f"--kl-coef {args.kl_coef}"
        raise CheckpointError(
            f"{option} and --load {checkpoint.folder}: it was saved by a run without them, which kept no reference; "
            f"drop {option.split()[0]}, or start from the beginning"
        )


def _check_save(args: Namespace, checkpoint: Checkpoint) -> None:
    """What goes on from an earlier checkpoint leaves the later ones alone, and must not be taken for them."""
    later = [step for step in checkpoints(Path(args.save)) if step > checkpoint.step] if args.save else []
    if later:
        raise CheckpointError(
            f"--save {args.save} and --load {checkpoint.folder}: --save holds checkpoints of later steps, the latest "
            f"of step {later[-1]}, that a later --load would open; give another folder to --save, or delete them"
        )


def _goes_on_in_place(args: Namespace) -> bool:
    """Whether ``--load`` and ``--save`` are the same folder, however they are spelt."""
    return args.save is not None and Path(args.load).resolve() == Path(args.save).resolve()


def roles_to_load(checkpoint: Checkpoint) -> set[str]:
    """The roles that go on from it: all that have something to go on from, once there was a rollout.

    What was saved before may lack those that only a rollout needs: a supervised run has none of them.
    """
    return set(SAVED) if checkpoint.step else set(SAVED) & checkpoint.parts()


def lasting_options(args: Namespace) -> dict[str, Any]:
    """What a later `checkpoint_of` compares."""
    return {name: getattr(args, name) for name in LASTING}
