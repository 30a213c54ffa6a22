"""The folders that a run writes to: whether it may, whether they are another run's, and whether there is room."""

from __future__ import annotations

import shutil
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

from relax.algorithms.spec import get_algorithm
from relax.core.checkpoint import checkpoints
from relax.core.registry import SFT_LOSS_TYPE
from relax.core.trace import INDEX as SEALED
from relax.progress.watch import METRICS

FLOAT = 4  # bytes
STATES = 3  # of a parameter: its weight and Adam's two moments
SPARE = 2**20  # bytes of a checkpoint beside its tensors


class FolderError(ValueError):
    """A folder cannot be used; one line that names option, folder, reason and remedy."""


def check_folders(args: Namespace, task: Any) -> None:
    """Raises `FolderError` for the first folder of the run's that it should not, or could not, write to."""
    for option in ("--save", "--log-dir", "--trace-folder", "--save-debug-rollout-data"):
        path = getattr(args, option.removeprefix("--").replace("-", "_"))
        if path is not None:
            _require_writable(option, Path(path))
    _require_own(args)
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


def checkpoints_at_once(args: Namespace) -> int:
    """The most checkpoints that lie on the disk at one time, the one that is being written included."""
    written = args.num_rollout // args.save_interval + 1 if args.save_interval else 1
    return written if args.keep_checkpoints is None else min(written, args.keep_checkpoints + 1)


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


def _require_own(args: Namespace) -> None:
    """A run from the start has its folders for itself; one that goes on may use those that it had."""
    loaded = None if args.load is None else Path(args.load).resolve()
    if args.save is not None:
        there, save = checkpoints(Path(args.save)), Path(args.save).resolve()
        if there and loaded not in (save, *(save / f"step-{step:08d}" for step in there)):
            raise FolderError(
                f"--save {args.save}: it holds checkpoints of another run, the latest of step {there[-1]}; give "
                f"another folder, or --load {args.save} to go on with that run"
            )
    for option, folder, file in (
        ("--log-dir", args.log_dir, METRICS),
        ("--trace-folder", args.trace_folder, SEALED),
    ):
        if folder is not None and loaded is None and (Path(folder) / file).exists():
            raise FolderError(f"{option} {folder}: it holds {file} of another run; give another folder, or delete it")


def _require_room(args: Namespace, count: int) -> None:
    each, number = checkpoint_bytes(args, count), checkpoints_at_once(args)
    free = shutil.disk_usage(_nearest(Path(args.save))).free
    if each * number > free:
        raise FolderError(
            f"--save {args.save}: {number} checkpoints of about {_shown(each)} do not fit into the {_shown(free)} that "
            "are free there; free the disk, raise --save-interval or lower --keep-checkpoints"
        )


def _shown(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
