"""Checkpoints: whole or not there, and refused where a byte is not as it was written."""

from __future__ import annotations

import errno
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from relax.core import checkpoint as module
from relax.core.checkpoint import (
    INDEX,
    CheckpointError,
    checkpoints,
    commit,
    open_checkpoint,
    pending_folder,
    step_called,
    write_part,
)
from relax.core.random_states import random_states, restore_random_states

TENSORS = {
    "weights/a": torch.tensor([[1.5, -0.0], [float("inf"), 1e-45]]),
    "state/b": torch.tensor([2**40, -1]),
    "transposed": torch.arange(6.0).view(2, 3).t(),
    "empty": torch.zeros(0),
}


def written(root: Path, step: int = 7, keep: int | None = None) -> Path:
    """A checkpoint of two parts."""
    pending = pending_folder(root, step)
    write_part(pending, "actor", tensors=TENSORS, facts={"steps": step, "rate": 0.1})
    write_part(pending, "data", tensors={}, facts={"next": 2**60})
    return commit(pending, step, keep=keep)


def test_round_trip(tmp_path: Path) -> None:
    """Tensors come back to the bit, numbers as they were, and no file needs code to be read."""
    folder = written(tmp_path)
    found = open_checkpoint(tmp_path)
    assert (folder, 7) == (found.folder, found.step)
    tensors = found.tensors("actor")
    assert TENSORS.keys() == tensors.keys()
    for name, tensor in TENSORS.items():
        assert (tensor.dtype, tensor.shape) == (tensors[name].dtype, tensors[name].shape)
        assert tensor.contiguous().numpy().tobytes() == tensors[name].numpy().tobytes()
    assert found.facts("actor") == {"steps": 7, "rate": 0.1}
    assert found.facts("data") == {"next": 2**60}
    assert {".json", ".safetensors"} == {path.suffix for path in folder.iterdir()}


def test_latest(tmp_path: Path) -> None:
    """Without a step the latest is opened, with one that one; the folder of a checkpoint names itself."""
    for step in (2, 10, 9):
        folder = written(tmp_path, step)
    assert checkpoints(tmp_path) == [2, 9, 10]
    assert open_checkpoint(tmp_path).step == 10
    assert open_checkpoint(tmp_path, 2).facts("actor")["steps"] == 2
    assert open_checkpoint(folder).step == 9


def test_keep(tmp_path: Path) -> None:
    """Older checkpoints go once a newer one is complete, and never the last."""
    for step in (1, 2, 3):
        written(tmp_path, step, keep=2)
    assert checkpoints(tmp_path) == [2, 3]


def test_keep_after_going_back(tmp_path: Path) -> None:
    """A run that went on from an earlier step keeps what it writes, and the later steps of the run before it."""
    for step in (10, 20, 30):
        written(tmp_path, step)
    folder = written(tmp_path, 11, keep=2)
    assert folder.is_dir()
    assert checkpoints(tmp_path) == [10, 11, 20, 30]
    written(tmp_path, 12, keep=2)
    assert checkpoints(tmp_path) == [11, 12, 20, 30]


def test_again(tmp_path: Path) -> None:
    """A checkpoint that is there is not replaced: the line names it, and it stays as it was."""
    written(tmp_path)
    pending = pending_folder(tmp_path, 7)
    write_part(pending, "actor", tensors={}, facts={"steps": 70})
    with pytest.raises(CheckpointError, match=r"step-00000007 is there already, and is not replaced: give another"):
        commit(pending, 7)
    assert open_checkpoint(tmp_path).facts("actor")["steps"] == 7


def test_after_a_dead_writer(tmp_path: Path) -> None:
    """What an earlier run left unfinished under the same step is no part of the checkpoint."""
    write_part(pending_folder(tmp_path, 7), "critic", tensors={}, facts={})
    assert sorted(path.name for path in written(tmp_path).iterdir()) == [
        "actor.json",
        "actor.safetensors",
        INDEX,
        "data.json",
        "data.safetensors",
    ]


def test_none(tmp_path: Path) -> None:
    """A folder without a checkpoint, with an unfinished one, or with others is told, with what is there."""
    with pytest.raises(CheckpointError, match=r"absent holds no checkpoint, none at all"):
        open_checkpoint(tmp_path / "absent")
    write_part(pending_folder(tmp_path, 3), "actor", tensors={}, facts={})
    with pytest.raises(CheckpointError, match="holds no checkpoint, none at all"):
        open_checkpoint(tmp_path)
    written(tmp_path)
    with pytest.raises(CheckpointError, match="no checkpoint of step 3, only those of steps 7"):
        open_checkpoint(tmp_path, 3)
    with pytest.raises(CheckpointError, match="no part 'critic', only actor, data"):
        open_checkpoint(tmp_path).tensors("critic")


@pytest.mark.parametrize("name", ["actor.safetensors", "actor.json", "data.json", INDEX])
def test_damage(tmp_path: Path, name: str) -> None:
    """One flipped bit, a lost end and a lost file are each refused, naming the file."""
    path = written(tmp_path) / name
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0x80
    for damaged in (bytes(flipped), whole[:-1], b""):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=rf"{name} .*delete that folder"):
            open_checkpoint(tmp_path).check()
    path.unlink()
    with pytest.raises(CheckpointError, match=rf"{name} (is missing|cannot be read)"):
        open_checkpoint(tmp_path)


def test_tensors_are_not_read_to_be_listed(tmp_path: Path) -> None:
    """The index has the hash of the tensors that were to be written: what the disk made of them is told on reading."""
    pending = pending_folder(tmp_path, 7)
    write_part(pending, "actor", tensors=TENSORS, facts={})
    path = pending / "actor.safetensors"
    path.write_bytes(path.read_bytes()[::-1])
    commit(pending, 7)
    with pytest.raises(CheckpointError, match=r"actor.safetensors has changed since it was written \(sha256\)"):
        open_checkpoint(tmp_path).check()


def test_only_what_is_read_is_looked_at(tmp_path: Path) -> None:
    """Each part is checked as it is read: a role meets the damage of its own part, and of no other."""
    path = written(tmp_path) / "actor.safetensors"
    path.write_bytes(path.read_bytes()[::-1])
    found = open_checkpoint(tmp_path)
    assert found.facts("data") == {"next": 2**60}
    with pytest.raises(CheckpointError, match=r"actor.safetensors has changed since it was written \(sha256\); delete"):
        found.tensors("actor")
    path.unlink()
    with pytest.raises(CheckpointError, match=r"actor.safetensors cannot be read: No such file"):
        found.tensors("actor")


def test_step_called(tmp_path: Path) -> None:
    """Which step a folder stands for is told by its name, or by the latest in it."""
    assert step_called(tmp_path / "absent") is None
    assert step_called(tmp_path) is None
    folder = written(tmp_path, 3)
    written(tmp_path, 10)
    assert (step_called(tmp_path), step_called(folder)) == (10, 3)


def test_index_of_another_kind(tmp_path: Path) -> None:
    """A stranger's file, a newer version and an index that is no index are refused."""
    folder = written(tmp_path)
    (folder / "extra").touch()
    with pytest.raises(CheckpointError, match="extra is not listed"):
        open_checkpoint(tmp_path)
    index = json.loads((folder / INDEX).read_text())
    for changed, said in (({**index, "version": 1}, "version 1"), ([], "cannot be read"), ({}, "cannot be read")):
        (folder / INDEX).write_text(json.dumps(changed))
        with pytest.raises(CheckpointError, match=said):
            open_checkpoint(tmp_path)


def test_not_a_number(tmp_path: Path) -> None:
    """A number that JSON cannot hold is refused when it is written, not when it is read."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_part(pending_folder(tmp_path, 1), "actor", tensors={}, facts={"loss": float("nan")})


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full is one line that names the file, and the checkpoint before it stays the latest."""
    written(tmp_path, 6)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"pending-00000007/actor.safetensors cannot be written: No space left"):
        written(tmp_path, 7)
    monkeypatch.undo()
    assert open_checkpoint(tmp_path).step == 6


@pytest.mark.parametrize("name", ["actor.safetensors", "actor.json"])
def test_full_device(tmp_path: Path, name: str) -> None:
    """What the system says of a device without room comes through, for either file of a part."""
    pending = pending_folder(tmp_path, 7)
    (pending / name).symlink_to("/dev/full")
    with pytest.raises(
        CheckpointError, match=rf"pending-00000007/{name} cannot be written: No space left on device; fr"
    ):
        write_part(pending, "actor", tensors=TENSORS, facts={})


def test_no_folder(tmp_path: Path) -> None:
    """A place where no folder can be made is told at once."""
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="file/pending-00000001 cannot be written: Not a directory"):
        pending_folder(tmp_path / "file", 1)


def test_random_states(tmp_path: Path) -> None:
    """The global generators continue where they were, after a way through the files."""

    def draw() -> list[float]:
        drawn = [random.random(), random.gauss(0, 1), np.random.random(), np.random.standard_normal()]
        return [*drawn, *torch.rand(2).tolist()]

    draw()  # the odd one of each pair of normal numbers is now kept for later
    pending = pending_folder(tmp_path, 1)
    write_part(pending, "actor", tensors=random_states(), facts={})
    commit(pending, 1)
    expected = draw()
    assert expected != draw()
    restore_random_states(open_checkpoint(tmp_path).tensors("actor"))
    assert expected == draw()
