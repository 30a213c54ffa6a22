"""The folders that a run writes to: whether they are another run's, and that no other run writes there meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from relax.core.checkpoint import checkpoints, root_called, without_unfinished
from relax.core.trace import INDEX as SEALED
from relax.core.trace import options_of_trace
from relax.option_ranges import attribute_of
from relax.progress.watch import NUMBERED, OPTIONS, check_records
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
    """Makes the folders and holds them until the block ends, or this process does, in whatever way; with ``--check``
    those that are there, and changes nothing.

    What an unfinished save left in ``--save`` goes at the start and at the end. Raises `FolderError` where another run
    holds a folder, with its process, and where one has left there what is not this run's; `ProgressError` for records
    that it cannot go on with. Nothing is held where a file system locks no folders, as NFS may not.
    """
    folders = written_folders(args)
    there = {option: folder for option, folder in folders.items() if folder.exists()}
    with contextlib.ExitStack() as held:
        taken = _hold(there, held, shared=args.check)
        _require_own(args)
        if not args.check:
            for folder in folders.values():
                folder.mkdir(parents=True, exist_ok=True)
            _hold(folders, held, taken=taken)
            _require_own(args)  # of those that were made, another run may have been the first to have them
            held.enter_context(without_unfinished(args.save))
        yield


def _hold(
    folders: Mapping[str, Path],
    held: contextlib.ExitStack,
    *,
    shared: bool = False,
    taken: Sequence[os.stat_result] = (),
) -> list[os.stat_result]:
    """Locks those that are not ``taken``, and gives all that are; two options may name one folder."""
    all_taken = list(taken)
    for option, folder in folders.items():
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)  # which no process that is started inherits
        held.callback(os.close, descriptor)
        found = os.fstat(descriptor)
        if not any(os.path.samestat(found, other) for other in all_taken):
            _lock(option, folder, descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            all_taken.append(found)
    return all_taken


def _lock(option: str, folder: Path, descriptor: int, kind: int) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
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
        ("--log-dir", tuple(NUMBERED), _options_of_records),
        ("--trace-folder", (SEALED,), options_of_trace),
    ):
        folder = folders.get(option)
        for file in files:
            if folder is not None and (folder / file).exists() and not _goes_on(read(folder), loaded):
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


def _goes_on(options: Mapping[str, Any], loaded: Path | None) -> bool:
    """Whether ``loaded`` may be where the run with these options kept its checkpoints, or had gone on from: those
    folders are nowhere any more where they were moved.
    """
    folders = [options.get(name) for name in ("save", "load")]
    kept = {root_called(Path(folder)).resolve() for folder in folders if isinstance(folder, str)}
    return loaded is not None and (loaded in kept or (bool(kept) and not any(folder.exists() for folder in kept)))


def _options_of_records(folder: Path) -> Mapping[str, Any]:
    """The options of the run that wrote them; none where they are not told."""
    try:
        options = json.loads((folder / OPTIONS).read_bytes())
    except (OSError, ValueError):
        return {}
    return options if isinstance(options, dict) else {}
