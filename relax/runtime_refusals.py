"""What a run refuses of its options alone, whatever the machine and the folders: each is one line with the remedy."""

from __future__ import annotations

from typing import Any

from relax.algorithms.spec import get_algorithm
from relax.core.registry import SFT_LOSS_TYPE
from relax.core.rows import samples_of_rollout
from relax.option_ranges import check_ranges
from relax.refusals import check_texts
from relax.runtime_options import RUNTIME_MAY_BE_LEFT_OUT, RUNTIME_NEVER_BLANK, RUNTIME_RANGES


def validate_runtime_args(args: Any) -> None:
    """Refuses runtime options that are out of range, or that no run can do together.

    ``args`` is read, never changed, and has passed ``relax.refusals``; its batch size is filled in.

    Raises:
        ValueError: the first contradiction found; one line that names the options, their values and the remedy.
    """
    check_ranges(args, RUNTIME_RANGES, RUNTIME_MAY_BE_LEFT_OUT)
    check_texts(args, RUNTIME_NEVER_BLANK)
    for check in (_check_model, _check_phases, _check_rollouts, _check_ranks, _check_checkpoints, _check_records):
        check(args)


def _check_model(args: Any) -> None:
    hidden, heads, longest, new = args.hidden_size, args.num_attention_heads, args.max_length, args.max_new_tokens
    if hidden % heads:
        raise ValueError(
            f"--hidden-size {hidden} and --num-attention-heads {heads}: the heads do not divide the width; "
            "change one of the two"
        )
    if new >= longest:
        raise ValueError(
            f"--max-new-tokens {new} and --max-length {longest}: no room is left for a prompt; raise --max-length or "
            "lower --max-new-tokens"
        )


def _check_phases(args: Any) -> None:
    supervised = args.loss_type == SFT_LOSS_TYPE
    if supervised and args.debug_train_only:
        raise ValueError(
            f"--debug-train-only (on) and --loss-type {args.loss_type}: its data are demonstrations, which the task "
            "makes; drop --debug-train-only"
        )
    if supervised and not args.sft_steps:
        raise ValueError(
            f"--sft-steps 0 and --loss-type {args.loss_type}: there is nothing to train on; give the steps"
        )
    if args.debug_train_only and get_algorithm(args.advantage_estimator).needs_critic:
        raise ValueError(
            f"--debug-train-only (on) and --advantage-estimator {args.advantage_estimator}: it needs the values of a "
            "critic, and the actor is started alone; choose another algorithm, or drop --debug-train-only"
        )


def _check_rollouts(args: Any) -> None:
    if args.max_staleness and not (args.hybrid or args.fully_async or args.debug_train_only):
        raise ValueError(
            f"--max-staleness {args.max_staleness} and --colocate: its roles work in turn, and no rollout is stale; "
            "give --hybrid or --fully-async, or drop --max-staleness"
        )
    trains = args.loss_type != SFT_LOSS_TYPE and not args.debug_rollout_only
    samples = samples_of_rollout(args)
    if trains and args.num_rollout * samples % args.global_batch_size:
        raise ValueError(
            f"--num-rollout {args.num_rollout} and --global-batch-size {args.global_batch_size}: {args.num_rollout} "
            f"rollouts of {samples} samples fill no whole number of optimizer batches; change one of the two"
        )


def _check_ranks(args: Any) -> None:
    ranks, shared = args.data_parallel_size, {"--global-batch-size": args.global_batch_size}
    if args.sft_steps:
        shared["--sft-batch-size"] = args.sft_batch_size
    for option, size in shared.items():
        if size % ranks:
            raise ValueError(
                f"--data-parallel-size {ranks} and {option} {size}: the ranks have no equal shares of a batch; "
                f"give a {option} that {ranks} divides"
            )


def _check_checkpoints(args: Any) -> None:
    for option, value in (("--save-interval", args.save_interval), ("--keep-checkpoints", args.keep_checkpoints)):
        if value and args.save is None:
            raise ValueError(
                f"{option} {value} and --save (not given): no checkpoint is written; add --save, or drop {option}"
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


def _check_records(args: Any) -> None:
    rollout, folder = args.trace_rollout, args.trace_folder
    if rollout is None and folder is not None:
        raise ValueError(f"--trace-folder {folder} and --trace-rollout (not given): add the rollout to trace")
    if rollout is not None and folder is None:
        raise ValueError(f"--trace-rollout {rollout} and --trace-folder (not given): add the folder for the trace")
    if rollout is not None and rollout >= args.num_rollout:
        raise ValueError(
            f"--trace-rollout {rollout} and --num-rollout {args.num_rollout}: there is no such rollout, as the first "
            "is 0; lower --trace-rollout"
        )
    for data, path, mode, on in (
        ("--save-debug-rollout-data", args.save_debug_rollout_data, "--debug-rollout-only", args.debug_rollout_only),
        ("--load-debug-rollout-data", args.load_debug_rollout_data, "--debug-train-only", args.debug_train_only),
    ):
        if path is not None and not on:
            raise ValueError(f"{data} {path} and {mode} (off): the option has no effect; add {mode}, or drop {data}")
