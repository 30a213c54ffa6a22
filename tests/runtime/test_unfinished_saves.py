"""Saves that did not come to their end: what a killed process leaves is whole or not there, and goes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from relax.core.checkpoint import (
    commit,
    open_checkpoint,
    pending_folder,
    unfinished,
    without_unfinished,
    write_part,
)


def written(root: Path, step: int) -> Path:
    """A checkpoint of one part."""
    pending = pending_folder(root, step)
    write_part(pending, "actor", tensors={}, facts={"steps": step})
    return commit(pending, step)


def test_unfinished_goes(tmp_path: Path) -> None:
    """Whatever a save that was killed, or failed, left in the folder goes when a run starts there, and when it ends;
    checkpoints stay, and so does what is no part of one."""
    written(tmp_path, 5)
    write_part(pending_folder(tmp_path, 9), "actor", tensors={}, facts={})
    (tmp_path / "pending-notes").mkdir()
    assert [path.name for path in unfinished(tmp_path)] == ["pending-00000009"]
    left = ["pending-notes", "step-00000005"]

    def fails() -> None:
        with without_unfinished(str(tmp_path)):
            assert left == sorted(path.name for path in tmp_path.iterdir())
            write_part(pending_folder(tmp_path, 9), "actor", tensors={}, facts={})
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert left == sorted(path.name for path in tmp_path.iterdir())
    for nothing in (None, str(tmp_path / "absent")):
        with without_unfinished(nothing):
            pass


WRITER = """
import os, signal, sys
from pathlib import Path
import torch
from relax.core import checkpoint

step, calls, fatal = 1, 0, 0


def struck(original):
    def call(*arguments, **named):
        global calls
        calls += step == 2
        if calls == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **named)

    return call


for owner, name in ((os, "fsync"), (os, "open"), (Path, "rename"), (Path, "read_bytes"), (Path, "open")):
    setattr(owner, name, struck(getattr(owner, name)))
while True:
    fatal += 1
    writer = os.fork()
    if writer:
        _, status = os.waitpid(writer, 0)
        print(fatal, os.waitstatus_to_exitcode(status), flush=True)
        if status == 0:
            break
        continue
    for step in (1, 2):
        pending = checkpoint.pending_folder(Path(sys.argv[1]) / str(fatal), step)
        checkpoint.write_part(pending, "actor", tensors={"a": torch.full((64,), float(step))}, facts={"step": step})
        checkpoint.commit(pending, step, keep=1)
    os._exit(0)
"""


def test_killed(tmp_path: Path) -> None:
    """A writer killed at any of its calls to the file system leaves the old checkpoint or the new one, whole."""
    writers = subprocess.run(
        [sys.executable, "-c", WRITER, str(tmp_path)], capture_output=True, text=True, timeout=120, check=True
    )
    seen = set()
    for fatal, ended in (map(int, line.split()) for line in writers.stdout.splitlines()):
        found = open_checkpoint(tmp_path / str(fatal))
        found.check()
        seen.add((found.step, ended))
        assert found.facts("actor")["step"] == found.step
        assert torch.equal(torch.full((64,), float(found.step)), found.tensors("actor")["a"])
    assert {(1, -signal.SIGKILL), (2, -signal.SIGKILL), (2, 0)} == seen


FULL = """
import resource, sys
from pathlib import Path
import torch
from relax.core.checkpoint import commit, pending_folder, write_part
from relax.core.own_folders import own_folders
from relax.arguments import build_parser

with own_folders(build_parser().parse_args(["--save", sys.argv[1]])):
    for step in (1, 2):
        pending = pending_folder(Path(sys.argv[1]), step)
        write_part(pending, "rollout", tensors={}, facts={"step": step})
        write_part(pending, "actor", tensors={"a": torch.zeros(2**16)}, facts={"step": step})
        commit(pending, step)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16))
"""


def test_no_room_for_the_whole(tmp_path: Path) -> None:
    """A file that the system takes a part of is told by name; its part goes, and the checkpoint before it stays."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    *_, last = done.stderr.splitlines()
    path = tmp_path / "pending-00000002" / "actor.safetensors"
    assert last.startswith(f"relax.core.checkpoint.CheckpointError: {path} cannot be written: File too large; free the")
    assert [one.name for one in tmp_path.iterdir()] == ["step-00000001"]
    open_checkpoint(tmp_path).check()
