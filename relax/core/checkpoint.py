"""Checkpoints of a run: folders that are written whole or not at all, and read only if every byte is as written.

Each role writes a part into a folder that is pending, in any process that shares the file system: ``NAME.safetensors``
for tensors, and ``NAME.json`` for numbers and the hash of the tensors. `commit` lists all parts with their hashes in
``checkpoint.json`` and gives the folder its name, ``step-00000042``, in one rename: what has that name is complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

INDEX = "checkpoint.json"
VERSION = 2
_NAME = re.compile(r"step-(\d{8,})")
_PENDING = re.compile(r"pending-\d{8,}")


class CheckpointError(ValueError):
    """A checkpoint cannot be written or read; names the folder or file, the reason and the remedy."""


def pending_path(root: Path, step: int) -> Path:
    """Where the parts of step ``step`` are written before they are a checkpoint."""
    return root / f"pending-{step:08d}"


def pending_folder(root: Path, step: int) -> Path:
    """The empty folder into which the parts of step ``step`` are to be written; what a dead run left there goes."""
    pending = pending_path(root, step)
    try:
        shutil.rmtree(pending, ignore_errors=True)
        pending.mkdir(parents=True)
    except OSError as error:
        raise _cannot_write(pending, error) from error
    return pending


def unfinished(root: Path) -> list[Path]:
    """What saves that did not come to their end left in ``root``: nobody reads it any more."""
    if not root.is_dir():
        return []
    return [path for path in sorted(root.iterdir()) if _PENDING.fullmatch(path.name)]


@contextlib.contextmanager
def without_unfinished(save: str | None) -> Iterator[None]:
    """For the run that has ``save`` for itself: there is nothing `unfinished` when it starts, nor when it has ended."""
    try:
        _remove_unfinished(save)
        yield
    finally:
        _remove_unfinished(save)


def _remove_unfinished(save: str | None) -> None:
    for path in [] if save is None else unfinished(Path(save)):
        shutil.rmtree(path, ignore_errors=True)


def write_part(pending: Path, name: str, *, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
    """Writes part ``name``: tensors of any dtype, and facts that JSON can hold without loss."""
    from safetensors.torch import save  # here, so that the formulas' side imports without the runtime's packages

    contiguous = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    data = save(contiguous)
    part = {"facts": facts, "tensors": described(data)}
    text = json.dumps(part, indent=1, sort_keys=True, allow_nan=False)
    _write(pending / f"{name}.safetensors", data)
    _write(pending / f"{name}.json", text.encode())


def commit(pending: Path, step: int, *, keep: int | None = None) -> Path:
    """Makes the pending parts checkpoint ``step`` and gives its folder; with ``keep``, older ones beyond that many go.

    One of the same step is not replaced, and those of later steps, left by a run that went on from an earlier one, stay
    as they are. Tensors are not read again: their hashes are of what was to be written.
    """
    root, files = pending.parent, dict[str, Any]()
    final = root / f"step-{step:08d}"
    if final.exists():
        raise CheckpointError(f"{final} is there already, and is not replaced: give another folder to --save")
    try:
        for path in sorted(pending.glob("*.json")):
            data = path.read_bytes()
            files |= {path.name: described(data), f"{path.stem}.safetensors": json.loads(data)["tensors"]}
        index = {"version": VERSION, "step": step, "files": files}
        _write(pending / INDEX, json.dumps(index, indent=1, sort_keys=True).encode())
        _sync_folder(pending)
        pending.rename(final)
        _sync_folder(root)
        until_now = [one for one in checkpoints(root) if one <= step]
        for old in until_now[: -keep if keep else 0]:
            shutil.rmtree(root / f"step-{old:08d}")
    except OSError as error:
        raise _cannot_write(pending, error) from error
    return final


def checkpoints(root: Path) -> list[int]:
    """The steps of which ``root`` holds a checkpoint, in ascending order; none where it does not exist."""
    if not root.is_dir():
        return []
    return sorted(int(found[1]) for path in root.iterdir() if (found := _NAME.fullmatch(path.name)))


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint, each of whose files is checked against its index whenever it is read."""

    folder: Path
    step: int
    files: Mapping[str, Mapping[str, Any]]
    """Name to the size in bytes and the hash that it was written with."""

    def parts(self) -> set[str]:
        """The names of its parts."""
        return {Path(name).stem for name in self.files}

    def require(self, name: str) -> None:
        """Raises `CheckpointError` where it has no part ``name``."""
        if name not in self.parts():
            raise CheckpointError(
                f"{self.folder} has no part {name!r}, only {', '.join(sorted(self.parts()))}: it was saved by a run "
                "with other roles; give the options it was saved with"
            )

    def check(self) -> None:
        """Raises `CheckpointError` for a file that has changed since it was written."""
        for name in self.files:
            self._bytes(name)

    def tensors(self, name: str) -> dict[str, torch.Tensor]:
        """The tensors of part ``name``."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        file = f"{name}.safetensors"
        try:
            return load(self._bytes(file))
        except SafetensorError as error:
            raise CheckpointError(f"{self.folder / file} is no file of tensors: {error}; {_REMEDY}") from error

    def facts(self, name: str) -> dict[str, Any]:
        """The numbers of part ``name``."""
        return json.loads(self._bytes(f"{name}.json"))["facts"]

    def _bytes(self, file: str) -> bytes:
        path = self.folder / file
        self.require(path.stem)
        try:
            expected, data = self.files[file], path.read_bytes()
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror or error}; {_REMEDY}") from error
        if len(data) != expected["bytes"]:
            raise CheckpointError(f"{path} has {len(data)} bytes and was written with {expected['bytes']}; {_REMEDY}")
        if hashlib.sha256(data).hexdigest() != expected["sha256"]:
            raise CheckpointError(f"{path} has changed since it was written (sha256); {_REMEDY}")
        return data


def open_checkpoint(root: Path, step: int | None = None) -> Checkpoint:
    """Checkpoint ``step`` of ``root``, the latest without one; ``root`` may also be a checkpoint's own folder.

    Raises `CheckpointError` where there is none, and for a file that is missing or too many. What it holds is looked at
    when it is read; all at once by `Checkpoint.check`.
    """
    step = step_called(root) if step is None else step
    root = root_called(root)
    steps = checkpoints(root)
    if step is None or step not in steps:
        there = f"only those of steps {', '.join(map(str, steps))}" if steps else "none at all"
        wanted = "checkpoint" if step is None else f"checkpoint of step {step}"
        raise CheckpointError(f"{root} holds no {wanted}, {there}: give the folder that --save wrote to")
    folder = root / f"step-{step:08d}"
    files = _index(folder)
    present = {path.name for path in folder.iterdir()} - {INDEX}
    for name in sorted(present ^ files.keys()):
        reason = "is missing" if name in files else "is not listed in its index"
        raise CheckpointError(f"{folder / name} {reason}; {_REMEDY}")
    return Checkpoint(folder, step, files)


def root_called(root: Path) -> Path:
    """The folder of checkpoints that `open_checkpoint` would look into."""
    return root.parent if _NAME.fullmatch(root.name) else root


def step_called(root: Path) -> int | None:
    """The step that `open_checkpoint` would open, without a look into it; None where there is no checkpoint."""
    found = _NAME.fullmatch(root.name)
    return int(found[1]) if found else max(checkpoints(root), default=None)


_REMEDY = "delete that folder to continue from the checkpoint before it"


def _index(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / INDEX
    try:
        index = json.loads(path.read_bytes())
        version, files = index["version"], index["files"]
        if version == VERSION and all(
            isinstance(one, dict) and {"bytes", "sha256"} <= one.keys() for one in files.values()
        ):
            return files
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}; {_REMEDY}") from error
    raise CheckpointError(
        f"{path} is of version {version!r}, and this program reads {VERSION}; go on with the release that saved it"
    )


def described(data: bytes) -> dict[str, Any]:
    """What an index keeps of a file."""
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _write(path: Path, data: bytes) -> None:
    """Writes and waits until the disk has it."""
    try:
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise _cannot_write(path, error) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot_write(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"{path} cannot be written: {error.strerror or error}; free the disk, or give another folder to --save; "
        "checkpoints that were complete before are untouched"
    )
