"""What can go wrong around a run, in ``python -m relax.train``: one line each, and the exit status. No Ray is started:
a controller of the test's own does what a run would."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from relax.core import cluster, controller, guard
from relax.core.checkpoint import CheckpointError, checkpoints, commit, pending_folder, write_part
from relax.core.execution import RunError
from relax.core.trace import start_trace
from relax.progress.summary import Summary
from relax.train import main
from relax.transport import queue
from tests.runtime.in_process import TINY

LINE = ("--advantage-estimator", "gdpo", "--gdpo-reward-keys", "correctness", "format", *TINY)
ROW = {"rollout": 0, "step": 1, "reward/format": 0.5}
HERE = "tests.runtime.test_train_errors"
Run = Callable[[Namespace, Any], None]


class Finished(Summary):
    """Of a run that lost nothing."""

    def __init__(self) -> None:
        pass

    nothing_lost = True

    def text(self) -> str:
        """What is printed at the end."""
        return "done\n"


def interrupted(args: Namespace) -> None:
    """A task during whose making somebody presses Ctrl-C."""
    raise KeyboardInterrupt


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs ``run(args, progress)`` in place of a controller; gives exit status, stdout and stderr."""

    def call(run: Run, *options: str) -> tuple[int, str, str]:
        class Controller:
            def __init__(self, args: Namespace, queue: Any, progress: Any, folder: Any, **more: Any) -> None:
                self.run = lambda: run(args, progress) or Finished()

        monkeypatch.setattr(controller, "Controller", Controller)
        monkeypatch.setattr(guard, "guarded", lambda advice: nullcontext(Namespace(remove=None)))
        monkeypatch.setattr(cluster, "cluster", lambda *args, **more: nullcontext(Path()))
        monkeypatch.setattr(queue, "start_queue", lambda *args, **more: nullcontext(None))
        status = main([*LINE, *options])
        return status, *capsys.readouterr()

    return call


def reported(args: Namespace, progress: Any) -> None:
    """A run of one rollout."""
    progress.step(ROW)


def failed(args: Namespace, progress: Any) -> None:
    """A run in which a role raises."""
    raise RunError("rollout failed", "Traceback of a role")


def traced(args: Namespace, progress: Any) -> None:
    """A run whose driver makes the folder of its trace."""
    start_trace(args)


def half_saved(args: Namespace, progress: Any) -> None:
    """A run that saves once, and whose next save finds the disk full."""
    for step in (0, 1):
        pending = pending_folder(Path(args.save), step)
        write_part(pending, "run", tensors={}, facts={})
        if step == 1:
            raise CheckpointError("the disk is full")
        commit(pending, step)


def test_done(train: Callable[..., tuple[int, str, str]]) -> None:
    """What a person sees first is that something is being started, and how much of it."""
    status, out, err = train(reported)
    assert (status, err) == (0, "")
    told = re.sub(r"after \d\.\d s", "after 0.0 s", out).splitlines()
    assert told == ["starting Ray and 5 processes", "Ray is up after 0.0 s", "rollout 0  step 1  format 0.5000", "done"]


@pytest.mark.parametrize(
    ("in_the_way", "run", "status", "words"),
    [
        ("options.json", reported, 1, "error: --log-dir .*options.json cannot be written: Is a directory; free"),
        ("rewards.png", reported, 0, "warning: .*rewards.png is not drawn: Is a directory"),
        ("failure.txt", failed, 1, "error: rollout failed .the traceback is lost: .*failure.txt cannot be written: Is"),
        ("other", failed, 1, "error: rollout failed .traceback in .*failure.txt"),
    ],
)
def test_log_folder(
    train: Callable[..., tuple[int, str, str]], tmp_path: Path, in_the_way: str, run: Run, status: int, words: str
) -> None:
    """A file that cannot be written is a line; a run that is done is done all the same, without its figure."""
    (tmp_path / in_the_way).mkdir(parents=True)
    found, _, err = train(run, "--log-dir", str(tmp_path))
    assert status == found
    assert err.count("\n") == 1
    assert re.match(f"relax: {words}", err)


def test_trace_folder(train: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    """A trace that cannot be written is a line."""
    (tmp_path / "actor-0.policy.loss.0000.json").mkdir()
    status, _, err = train(traced, "--trace-rollout", "0", "--trace-folder", str(tmp_path))
    assert status == 1
    assert err.startswith(f"relax: error: {tmp_path} cannot be written: Is a directory; give another folder to --trace")
    assert err.count("\n") == 1


def test_failed_save(train: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    """What a failed save has written does not stay on the disk that is full; nor does that of a run killed before."""
    write_part(pending_folder(tmp_path, 7), "actor", tensors={}, facts={})
    status, _, err = train(half_saved, "--save", str(tmp_path))
    assert status == 1
    assert err.startswith("relax: error: the disk is full")
    assert checkpoints(tmp_path) == [0]
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000000"]


def test_interrupted_before_the_start(train: Callable[..., tuple[int, str, str]]) -> None:
    """Ctrl-C while the options are looked at is a line, and nothing was started."""
    status, out, err = train(reported, "--task-path", f"{HERE}:interrupted")
    assert (status, out) == (130, "")
    assert err == "relax: error: interrupted before anything was started\n"


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    """``--help`` names this command, says what it does, and which options a run takes one value of only."""
    with pytest.raises(SystemExit):
        main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("usage: python -m relax.train [options] Trains a policy")
    assert text.count("a training run takes 1") == 3
