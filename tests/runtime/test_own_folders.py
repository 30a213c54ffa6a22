"""The folders of a run are its own: another run's are refused, and nobody else writes there while it lives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from relax.core.checkpoint import commit, pending_folder, write_part
from relax.core.own_folders import FolderError, own_folders
from relax.core.trace import keep, seal_trace, start_trace, tracing
from tests.runtime.test_preflight import options

# Of the options that name them, with what makes them allowed.
FOLDERS = {
    "--save": [],
    "--log-dir": [],
    "--trace-folder": ["--trace-rollout", "0"],
    "--save-debug-rollout-data": ["--debug-rollout-only"],
}


def checkpoint(root: Path, step: int) -> None:
    """A small checkpoint."""
    pending = pending_folder(root, step)
    write_part(pending, "run", tensors={}, facts={})
    commit(pending, step)


def run_into(folder: Path, *option: str) -> Namespace:
    """A run that writes to the folder by one option."""
    return options(*option, str(folder), *FOLDERS[option[0]])


def require_own(args: Namespace) -> None:
    """Whether the run may have its folders."""
    with own_folders(args):
        pass


class TestOwn:
    def test_checkpoints_of_another_run(self, tmp_path: Path) -> None:
        """A new run does not write among another's checkpoints; one that goes on with them does."""
        checkpoint(tmp_path / "old", 4)
        save = ["--save", str(tmp_path / "old")]
        with pytest.raises(FolderError, match=r"--save .*another run, the latest of step 4; give another folder, or"):
            require_own(options(*save))
        checkpoint(tmp_path / "other", 2)
        with pytest.raises(FolderError, match=r"--save .*another run"):
            require_own(options(*save, "--load", str(tmp_path / "other")))
        require_own(options(*save, "--load", str(tmp_path / "old")))
        require_own(options(*save, "--load", str(tmp_path / "old" / "step-00000004")))

    @pytest.mark.parametrize("file", ["metrics.csv", "supervised.csv", "evaluations.csv"])
    def test_records_of_another_run(self, tmp_path: Path, file: str) -> None:
        """The records of a run are for those that go on from its checkpoints, or from where it had gone on itself."""
        (tmp_path / file).write_text("rollout,supervised_step,rollouts\n")
        log = ["--log-dir", str(tmp_path)]
        mine, first, other = (str(tmp_path / name) for name in ("mine", "first", "other"))
        Path(mine).mkdir()
        words = f"^--log-dir {tmp_path}: it holds {file} of another run; give another folder, or delete it$"
        for written in ("", "[]", "{}", json.dumps({"save": mine, "load": f"{first}/step-00000002"})):
            (tmp_path / "options.json").write_text(written)
            for load in ([], ["--load", other]):
                with pytest.raises(FolderError, match=words):
                    require_own(options(*log, *load))
        for folder in (mine, f"{mine}/", f"{mine}/step-00000004", first):
            require_own(options(*log, "--load", folder))
        Path(mine).rename(tmp_path / "moved")
        require_own(options(*log, "--load", str(tmp_path / "moved")))

    def test_damaged_records(self, tmp_path: Path) -> None:
        """Records that a run cannot go on with are refused, with the file and the column."""
        (tmp_path / "options.json").write_text(json.dumps({"save": str(tmp_path)}))
        argv = ["--log-dir", str(tmp_path), "--load", str(tmp_path)]
        for data in (b"a,b\n1,2\n", b"\0\0\0,b\n1,2\n", b"rollout,b\nx,2\n", b"rollout,b\n1,\xff\n"):
            (tmp_path / "metrics.csv").write_bytes(data)
            with pytest.raises(
                ValueError, match=r"^.*metrics.csv is damaged, .* column 'rollout' is missing or holds no"
            ):
                require_own(options(*argv))
        (tmp_path / "metrics.csv").unlink()
        (tmp_path / "supervised.csv").write_text("step\n1\n")
        with pytest.raises(
            ValueError, match=r"supervised.csv is damaged, .* 'supervised_step' .*; move it away, or give"
        ):
            require_own(options(*argv))

    def test_trace_of_another_run(self, tmp_path: Path) -> None:
        """A trace that is sealed is for those that go on from the checkpoints of the run that wrote it."""
        argv = ["--trace-folder", str(tmp_path / "trace"), "--trace-rollout", "0"]
        args = options(*argv, "--save", str(tmp_path / "mine"))
        (tmp_path / "mine").mkdir()
        start_trace(args)
        with tracing(args, [0], "actor-0"):
            keep("policy.loss", args, {}, {})
        require_own(options(*argv))  # not sealed: worth nothing
        seal_trace(args)
        require_own(options(*argv, "--load", str(tmp_path / "mine")))
        for load in ([], ["--load", str(tmp_path / "other")]):
            with pytest.raises(FolderError, match=r"--trace-folder .* holds trace.json of another run"):
                require_own(options(*argv, *load))
        for damaged in ("{}", "[]", ""):
            for call in (tmp_path / "trace").glob("*policy*.json"):
                call.write_text(damaged)
            with pytest.raises(FolderError, match=r"--trace-folder .* holds trace.json of another run"):
                require_own(options(*argv, "--load", str(tmp_path / "mine")))

    def test_a_refused_run_makes_no_folder(self, tmp_path: Path) -> None:
        """What is refused for one folder leaves none of the others."""
        checkpoint(tmp_path / "old", 4)
        with pytest.raises(FolderError):
            require_own(options("--log-dir", str(tmp_path / "new"), "--save", str(tmp_path / "old")))
        assert [path.name for path in tmp_path.iterdir()] == ["old"]

    def test_rollouts_of_another_run(self, tmp_path: Path) -> None:
        """Rollouts in files are never mixed: whoever reads them could not tell."""
        write_part(tmp_path, "rollout-00000003", tensors={}, facts={})
        for load in ([], ["--load", str(tmp_path)]):
            args = options("--debug-rollout-only", "--save-debug-rollout-data", str(tmp_path), *load)
            with pytest.raises(FolderError, match=r"^--save-debug-rollout-data .* holds rollouts of another run; give"):
                require_own(args)


HOLDER = """
import subprocess, sys
from relax.core.own_folders import own_folders
from relax.arguments import build_parser

with own_folders(build_parser().parse_args(["--save", sys.argv[1]])):
    child = subprocess.Popen([sys.executable, "-c", "input()"], close_fds=False)
    print(child.pid, flush=True)
    child.wait()
"""


class TestAlone:
    @pytest.mark.parametrize("option", FOLDERS)
    def test_one_run_a_folder(self, tmp_path: Path, option: str) -> None:
        """A second run on a folder is refused, with the process of the first; after the first it is not."""
        folder = tmp_path / "a" / "b"
        words = (
            rf"^{option} {folder}: another run \(process {os.getpid()}\) is writing there; give another folder, or end"
        )
        args = run_into(folder, option)
        with own_folders(args), pytest.raises(FolderError, match=words), own_folders(args):
            pass
        assert list(folder.iterdir()) == []
        require_own(args)

    def test_two_looks(self, tmp_path: Path) -> None:
        """Looks side by side disturb one another no more than they disturb a run that is to come."""
        args = options("--check", "--save", str(tmp_path))
        with own_folders(args), own_folders(args):
            pass
        require_own(options("--save", str(tmp_path)))

    def test_one_folder_for_all(self, tmp_path: Path) -> None:
        """A run may have one folder for all that it writes, however it is spelt."""
        args = options("--save", str(tmp_path), "--log-dir", f"{tmp_path}/../{tmp_path.name}")
        require_own(args)

    def test_unfinished_save_of_the_first(self, tmp_path: Path) -> None:
        """A second run leaves alone what the first is about to save."""
        args = options("--save", str(tmp_path))
        with own_folders(args):
            write_part(pending_folder(tmp_path, 3), "actor", tensors={}, facts={})
            with pytest.raises(FolderError), own_folders(args):
                pass
            commit(tmp_path / "pending-00000003", 3)
        assert [path.name for path in tmp_path.iterdir()] == ["step-00000003"]

    def test_killed(self, tmp_path: Path) -> None:
        """A run that is killed holds nothing any more, though a process that it started lives on; no file is left."""
        args = options("--save", str(tmp_path))
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert holder.stdin is not None
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        with pytest.raises(FolderError, match=rf"another run \(process {holder.pid}\)"), own_folders(args):
            pass
        holder.kill()
        holder.wait()
        os.kill(child, 0)  # it lives
        require_own(args)
        assert list(tmp_path.iterdir()) == []
        holder.communicate()  # ends the child's wait for its input
