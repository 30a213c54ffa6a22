"""The folders that a run writes to: whether they are another run's, and that no other run writes there meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from relax.core.checkpoint import checkpoints, root_called, without_unfinished
from relax.core.trace import INDEX as SEALED
from relax.core.trace import options_of_trace
from relax.option_ranges import attribute_of
from relax.progress.watch import METRICS, OPTIONS, SUPERVISED, check_records
from relax.rollout.debug_data import holds_rollouts


class FolderError(ValueError):
    """A folder cannot be used; one line that names option, folder, reason and remedy."""


def written_folders(args: Namespace) -> dict[str, Path]:
    """Option to folder, of those that the run writes to."""
    options = ("--save", "--log-dir", "--trace-folder", "--save-debug-rollout-data")
    given = {option: getattr(args, attribute_of(option)) for option in options}
    return {option: Path(folder) for option, folder in given.items() if folder is not None}


@contextlib.contextmanager
def own_folders(args: Namespace) -> Iterator[None]:
    """Makes the folders and holds them until the block ends, or this process does, in whatever way.

    What an unfinished save left in ``--save`` goes at the start and at the end. Raises `FolderError` where another run
    holds a folder, with its process, and where one has left there what is not this run's; `ProgressError` for records
    that it cannot go on with. Nothing is held where a file system locks no folders, as NFS may not.
    """
    with contextlib.ExitStack() as held:
        taken: list[os.stat_result] = []
        for option, folder in written_folders(args).items():
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)  # which no process that is started inherits
            held.callback(os.close, descriptor)
            found = os.fstat(descriptor)
            if not any(os.path.samestat(found, other) for other in taken):  # two options may name one folder
                _lock(option, folder, descriptor)
                taken.append(found)
        _require_own(args)
        held.enter_context(without_unfinished(args.save))
        yield


def _lock(option: str, folder: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FolderError(
            f"{option} {folder}: another run{_holder(os.fstat(descriptor))} is writing there; give another folder, or "
            "end that run first"
        ) from None
    except OSError:
        return


def _holder(found: os.stat_result) -> str:
    """Which process holds the lock, where the kernel tells (Linux)."""
    file = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/locks").read_text().splitlines():
            _, kind, *_, process, locked, _, _ = line.split()
            if (kind, locked) == ("FLOCK", file):
                return f" (process {process})"
    return ""


def _require_own(args: Namespace) -> None:
    """A run from the start has its folders for itself; one that goes on may use those that it had."""
    folders = written_folders(args)
    loaded = None if args.load is None else root_called(Path(args.load)).resolve()
    save = folders.get("--save")
    if save is not None and save.resolve() != loaded and (there := checkpoints(save)):
        raise FolderError(
            f"--save {save}: it holds checkpoints of another run, the latest of step {there[-1]}; give another folder, "
            f"or --load {save} to go on with that run"
        )
    for option, files, read in (
        ("--log-dir", (METRICS, SUPERVISED), _options_of_records),
        ("--trace-folder", (SEALED,), options_of_trace),
    ):
        folder = folders.get(option)
        for file in files:
            if folder is not None and (folder / file).exists() and loaded not in _checkpoints_of(read(folder)):
                raise FolderError(
                    f"{option} {folder}: it holds {file} of another run; give another folder, or delete it"
                )
    if "--log-dir" in folders:
        check_records(folders["--log-dir"])
    data = folders.get("--save-debug-rollout-data")
    if data is not None and holds_rollouts(data):
        raise FolderError(
            f"--save-debug-rollout-data {data}: it holds rollouts of another run; give another folder, or delete them"
        )


def _checkpoints_of(options: Mapping[str, Any]) -> set[Path]:
    """Where the run with these options kept its checkpoints, and where it had gone on from."""
    folders = [options.get(name) for name in ("save", "load")]
    return {root_called(Path(folder)).resolve() for folder in folders if isinstance(folder, str)}


def _options_of_records(folder: Path) -> Mapping[str, Any]:
    """The options of the run that wrote them; none where they are not told."""
    try:
        options = json.loads((folder / OPTIONS).read_bytes())
    except (OSError, ValueError):
        return {}
    return options if isinstance(options, dict) else {}
