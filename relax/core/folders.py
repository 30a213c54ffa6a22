"""The folders that a run writes to: whether it may, and whether there is room for its checkpoints."""

from __future__ import annotations

import shutil
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

from relax.algorithms.spec import get_algorithm
from relax.core.checkpoint import checkpoints, step_called, unfinished
from relax.core.own_folders import FolderError, written_folders
from relax.core.registry import SFT_LOSS_TYPE

FLOAT = 4  # bytes
STATES = 3  # of a parameter: its weight and Adam's two moments
SPARE = 2**20  # bytes of a checkpoint beside its tensors


def check_folders(args: Namespace, task: Any) -> None:
    """Raises `FolderError` for the first folder of the run's that it could not write to."""
    for option, folder in written_folders(args).items():
        _require_writable(option, folder)
    if args.save is not None:
        _require_room(args, parameters(args, task))


def parameters(args: Namespace, task: Any) -> int:
    """About how many parameters the policy has; of a model on disk from the size of its files, two bytes each."""
    if args.hf_checkpoint is not None:
        return sum(path.stat().st_size for path in Path(args.hf_checkpoint).glob("*.safetensors")) // 2
    hidden, inside = args.hidden_size, args.ffn_hidden_size
    layer = 4 * hidden * hidden + 2 * hidden * inside + 9 * hidden + inside
    return args.num_layers * layer + (2 * task.tokenizer.size + args.max_length) * hidden


def checkpoint_bytes(args: Namespace, count: int) -> int:
    """About how large one checkpoint is, for a policy of ``count`` parameters."""
    supervised = args.loss_type == SFT_LOSS_TYPE
    trained = 1 if supervised or not get_algorithm(args.advantage_estimator).needs_critic else 2
    published = 1 + args.max_staleness
    return (trained * STATES + published) * count * FLOAT + SPARE


def checkpoints_to_come(args: Namespace) -> list[int]:
    """The steps of which the run will write a checkpoint, in order; steps count rollouts."""
    last = 0 if args.loss_type == SFT_LOSS_TYPE else args.num_rollout
    done = None if args.load is None else step_called(Path(args.load))
    every = range(0, last + 1, args.save_interval) if args.save_interval else ()
    return [step for step in sorted({*every, last}) if step > (-1 if done is None else done)]


def most_needed(args: Namespace, each: int) -> int:
    """The most bytes by which ``--save`` grows at any moment of the run, with checkpoints of ``each`` bytes.

    A new one is whole before one of its step, or one beyond ``--keep-checkpoints``, goes.
    """
    root = Path(args.save)
    held = {step: _size(root / f"step-{step:08d}") for step in checkpoints(root)}
    before, most = sum(held.values()), 0
    for step in checkpoints_to_come(args):
        most = max(most, sum(held.values()) + each - before)
        held[step] = each
        until_now = sorted(one for one in held if one <= step)
        for old in until_now[: -args.keep_checkpoints if args.keep_checkpoints else 0]:
            del held[old]
    return most


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _require_writable(option: str, folder: Path) -> None:
    try:
        # A file without a name: it is gone when it is closed, and nothing is made that the run does not make.
        with tempfile.TemporaryFile(dir=_nearest(folder)):
            pass
    except OSError as error:
        raise FolderError(
            f"{option} {folder}: it cannot be written to ({error.strerror or error}); give another folder"
        ) from None


def _nearest(folder: Path) -> Path:
    """The folder itself, or the first above it that is there."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return folder


def _require_room(args: Namespace, count: int) -> None:
    root, each = Path(args.save), checkpoint_bytes(args, count)
    needed = most_needed(args, each)
    free = shutil.disk_usage(_nearest(root)).free + sum(map(_size, unfinished(root)))  # which go first
    if needed > free:
        raise FolderError(
            f"--save {args.save}: checkpoints of about {_shown(each)} each take {_shown(needed)} more at once, and "
            f"{_shown(free)} are free there; free the disk, raise --save-interval or lower --keep-checkpoints"
        )


def _shown(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
