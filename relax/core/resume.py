"""The checkpoint that a run goes on from, and whether its options allow it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from relax.core.checkpoint import Checkpoint, CheckpointError, checkpoints, open_checkpoint
from relax.core.rows import needs_reference
from relax.core.schedule import SAVED, roles_of
from relax.option_ranges import attribute_of

RUN = "run"
"""The part of a checkpoint with the counts of the run, and the options below."""
PUBLISHED = "published"
"""The part with the versions of the weights that later rollouts, or the reference, still need."""

# What a checkpoint's rollouts, versions of the weights and random numbers are counted in.
LASTING = ("--rollout-batch-size", "--n-samples-per-prompt", "--global-batch-size", "--max-staleness", "--seed")
# What the shapes of its weights follow from, where the model is not that of a folder.
SIZES = ("--num-layers", "--hidden-size", "--num-attention-heads", "--ffn-hidden-size", "--max-length")


def checkpoint_of(args: Namespace) -> Checkpoint | None:
    """The latest checkpoint of ``--load``; None without that option, and where ``--save`` is the same folder and holds
    none yet: the run was ended before its first, and starts again.

    Raises `CheckpointError` where there is none, where it is damaged, where it lacks a role's part, and where its model
    or an option that its numbers depend on is another now. Before its first rollout a run depends on no option.
    """
    if args.load is None or (_goes_on_in_place(args) and not checkpoints(Path(args.save))):
        return None
    checkpoint = open_checkpoint(Path(args.load))
    checkpoint.check()
    for part in sorted(roles_to_load(checkpoint) & roles_of(args, resumed=True).keys()):
        checkpoint.require(part)
    _check_options(args, checkpoint)
    _check_reference(args, checkpoint)
    _check_save(args, checkpoint)
    return checkpoint


def _check_options(args: Namespace, checkpoint: Checkpoint) -> None:
    then = checkpoint.facts(RUN).get("options", {})
    for option, now in lasting_options(args).items():
        if option not in then:
            raise CheckpointError(
                f"--load {checkpoint.folder}: another release saved it, which kept no {option}; go on with that release"
            )
        if now != then[option] and (checkpoint.step or option not in LASTING):
            raise CheckpointError(
                f"{option} {now} and --load {checkpoint.folder}: it was saved with {then[option]}, and goes on with no "
                f"other; give {option} {then[option]}"
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
    """What a later `checkpoint_of` compares, in this order, by option; or by key of the ``config.json`` of a model."""
    if args.hf_checkpoint is None:
        model = {"--hf-checkpoint": "(not given)", **_values(args, SIZES)}
    else:
        from relax.backends.megatron.qwen3_shape import Qwen3Shape

        shape = asdict(Qwen3Shape.read(Path(args.hf_checkpoint) / "config.json"))
        model = {"--hf-checkpoint": "(given)", **{f"--hf-checkpoint's {key}": value for key, value in shape.items()}}
    return {**model, **_values(args, LASTING)}


def _values(args: Namespace, options: Iterable[str]) -> dict[str, Any]:
    return {option: getattr(args, attribute_of(option)) for option in options}
