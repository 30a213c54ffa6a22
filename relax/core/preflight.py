"""What a run needs of the machine and of your code, looked at before anything is started."""

from __future__ import annotations

import importlib.util
import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relax.core.one_line import kind_and_line, one_line
from relax.core.registry import ACTOR, ADVANTAGES, SFT_LOSS_TYPE
from relax.option_ranges import attribute_of, option_of

# What a run imports, by the extra that brings it.
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "megatron": ("megatron.core",),
    "runtime": ("safetensors", "rich", "tensorboard", "matplotlib", "reasoning_gym"),
    "ray": ("ray", "fastapi", "transfer_queue", "tensordict"),  # Ray Serve is nothing without fastapi
}
# Sizes that the losses know, and that the model of a run is not cut by.
CROWDED = 4  # processes that compute, to a core
WHOLE = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")


PROCESSES = Path("/proc/self/stat")
"""What Linux has, and what tells whether a process of the run still lives."""


class PreflightError(ValueError):
    """The run cannot start here; one line with the remedy."""


def preflight(args: Namespace) -> list[str]:
    """Raises `PreflightError`, `FolderError` or `CheckpointError` for the first thing that this run lacks, what is
    quick to see before what is not; gives what it warns of, a line each. Starts and writes nothing.
    """
    _check_system()
    _check_packages()
    _check_parallelism(args)
    _check_cpus(args)
    _check_inputs(args)
    _check_beginning(args)
    _check_functions(args)
    _check_device(args)
    task = _task(args)
    from relax.core.folders import check_folders

    check_folders(args, task)
    return _crowded(args)


def logical_cpus(args: Namespace) -> int:
    """How many logical CPUs of Ray the processes of the run reserve, one each.

    They are its roles (each rank of the actor), the queue's controller and storage units; Ray Serve reserves none.
    """
    return _computing(args) + 1 + args.storage_units


def _computing(args: Namespace) -> int:
    """How many processes of the run compute: its roles, each rank of the actor by itself."""
    from relax.core.schedule import roles_of

    return sum(args.data_parallel_size if role == ACTOR else 1 for role in roles_of(args) if role != ADVANTAGES)


def _crowded(args: Namespace) -> list[str]:
    computing, cores = _computing(args), len(os.sched_getaffinity(0))
    if computing <= CROWDED * cores:
        return []
    return [
        f"--data-parallel-size {args.data_parallel_size}: {computing} processes are to compute on {cores} "
        f"core{'s' if cores > 1 else ''}, in turns, each with models of its own in memory; give fewer ranks or train "
        "colocated, or leave it so where that is meant"
    ]


def _check_system() -> None:
    if not PROCESSES.exists():
        raise PreflightError(f"there is no {PROCESSES} here: a run watches its processes by it; train on Linux")


def _check_packages() -> None:
    for extra, names in PACKAGES.items():
        for name in names:
            if not _is_installed(name):
                raise PreflightError(
                    f"the package {name} of the extra {extra!r} is missing: install what a run needs with "
                    f'pip install "relax-verification[{",".join(PACKAGES)}]"'
                )


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # of a package around it
        return False


def _check_parallelism(args: Namespace) -> None:
    for name in WHOLE:
        size = getattr(args, name)
        if size != 1:
            raise PreflightError(
                f"{option_of(name)} {size}: a run trains with whole models and whole responses; give 1, and "
                "--data-parallel-size for more ranks"
            )


def _check_cpus(args: Namespace) -> None:
    if args.ray_logical_cpus is not None and args.ray_logical_cpus < logical_cpus(args):
        raise PreflightError(
            f"--ray-logical-cpus {args.ray_logical_cpus}: the processes of this run reserve {logical_cpus(args)}; give "
            "that many or more (they may be more than the machine has cores), or leave the option out"
        )


def _check_device(args: Namespace) -> None:
    if args.device != "cuda":
        return
    import torch

    if not torch.cuda.is_available():
        raise PreflightError("--device cuda: torch finds no GPU here; give --device cpu")
    if args.data_parallel_size > 1:
        raise PreflightError(
            f"--device cuda and --data-parallel-size {args.data_parallel_size}: ranks exchange numbers over gloo and "
            "share one GPU; give --data-parallel-size 1"
        )


def _check_inputs(args: Namespace) -> None:
    for option, path, what in (
        ("--hf-checkpoint", args.hf_checkpoint, "folder"),
        ("--task-data", args.task_data, "file"),
        ("--load-debug-rollout-data", args.load_debug_rollout_data, "folder"),
    ):
        if path is not None and not (Path(path).is_dir() if what == "folder" else Path(path).is_file()):
            raise PreflightError(f"{option} {path}: there is no such {what}; nothing is downloaded")
    if args.debug_train_only and args.load_debug_rollout_data is None:
        raise PreflightError(
            "--debug-train-only (on) and --load-debug-rollout-data (not given): there is nothing to train on; give the "
            "folder that --save-debug-rollout-data of a run with --debug-rollout-only named"
        )


def _check_beginning(args: Namespace) -> None:
    """Whether the run can begin with the rollout that it would."""
    from relax.core.checkpoint import step_called
    from relax.core.resume import goes_on_in_place
    from relax.rollout.debug_data import require_rollouts

    loaded = None if args.load is None else step_called(Path(args.load))
    there = args.load is not None and Path(args.load).is_dir()
    if args.load is not None and not (there and loaded is not None) and not goes_on_in_place(args):
        what = "it holds no checkpoint" if there else "there is no such folder"
        raise PreflightError(f"--load {args.load}: {what}; give the folder that --save wrote to")
    if args.loss_type == SFT_LOSS_TYPE and loaded is not None:
        raise PreflightError(
            f"--load {args.load} and --loss-type {args.loss_type}: supervised training is saved at its end, and starts "
            "from the beginning; drop --load"
        )
    if args.debug_train_only:
        require_rollouts(Path(args.load_debug_rollout_data), range(loaded or 0, args.num_rollout))


def _task(args: Namespace) -> Any:
    """The task, whose first prompt leaves room for a response."""
    from relax.rollout.collect import prompt_tokens
    from relax.tasks.task import FIRST_SAMPLED

    make = _function("--task-path", args.task_path)
    try:
        task = make(args)
        prompt = len(prompt_tokens(task, task.problem(FIRST_SAMPLED)))
    except (Exception, SystemExit) as error:
        raise PreflightError(f"--task-path {args.task_path}: the task cannot be made: {_told(error)}") from error
    least = prompt + args.max_new_tokens
    if least > args.max_length:
        raise PreflightError(
            f"--max-length {args.max_length}: the first prompt of {args.task_path} has {prompt} tokens, and "
            f"--max-new-tokens {args.max_new_tokens} are to follow; give --max-length {least} or more"
        )
    return task


def _check_functions(args: Namespace) -> None:
    if args.loss_type == SFT_LOSS_TYPE or args.debug_train_only:
        return  # no response is sampled
    if args.custom_rm_path is None:
        raise PreflightError(
            "--custom-rm-path (not given): a run needs a function that scores responses; give one, such as "
            "relax.tasks.sums:sum_rewards for the task of sums"
        )
    for option in (
        "--custom-rm-path",
        "--dynamic-sampling-filter-path",
        "--custom-reward-post-process-path",
        "--agentic-custom-advantage-path",
    ):
        path = getattr(args, attribute_of(option))
        if path is not None:
            _function(option, path)


def _function(option: str, path: str) -> Any:
    from relax.rollout.own_functions import FunctionPathError, load_function

    try:
        return load_function(path)
    except FunctionPathError as error:
        raise PreflightError(f"{option} {error}") from error
    except (Exception, SystemExit) as error:  # whatever a module of one's own raises as it is imported
        raise PreflightError(f"{option} {path}: it cannot be imported: {_told(error)}") from error


def _told(error: BaseException) -> str:
    return one_line(error) if isinstance(error, ValueError) else kind_and_line(error)
