"""How a run fails: one line that names the role, its process and its work; and nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from argparse import Namespace
from pathlib import Path
from threading import Thread
from time import sleep

import pytest

from relax.core.cluster import processes_of_ray
from relax.core.controller import STOP_BEFORE, STOPPED_FILE
from relax.core.execution import RunError
from relax.core.processes import is_running
from relax.transport.queue import Queue
from relax.types import Sample
from tests.runtime.in_process import tiny
from tests.runtime.real_run import controller

HERE = "tests.runtime.test_controller"


def bad_rewards(args: Namespace, sample: Sample) -> float:
    """A reward function with a mistake in it."""
    return {}["no such entry"]


def leaving_rewards(args: Namespace, sample: Sample) -> float:
    """A reward function that ends its process, or would like to."""
    sys.exit("I am done here")


def bad_task(args: Namespace) -> None:
    """A task that is none."""
    raise OSError("the problems are on another disk")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--custom-rm-path", f"{HERE}:bad_rewards"),
            r"rollout \(process \d+\) failed at 'generate rollout 0': KeyError: 'no such entry'",
        ),
        (
            ("--custom-rm-path", f"{HERE}:leaving_rewards"),
            r"rollout \(process \d+\) failed at 'generate rollout 0': SystemExit: I am done here",
        ),
        (("--task-path", f"{HERE}:bad_task"), r"(actor|rollout) cannot be made: OSError: the problems are on another"),
        (("--lr", "1e30"), r"actor \(process \d+\) failed at 'train on batch 1': NonFiniteGradient: optimizer step 1:"),
    ],
)
def test_a_role_fails(queue: Queue, tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    """A role's own exception is one line, with its traceback kept apart."""
    run = controller(tiny("grpo", *options), queue, tmp_path)
    with pytest.raises(RunError) as failure:
        run.run()
    assert re.match(said, str(failure.value))
    assert "\n" not in str(failure.value)
    assert failure.value.trace is not None
    assert "Traceback (most recent call last)" in failure.value.trace
    queue.drop(queue.keys())


@pytest.mark.parametrize(
    ("options", "victim", "before"),
    [
        ((), "rollout", "train on batch 1"),
        (("--data-parallel-size", "2"), "actor rank 1", "train on batch 1"),
        (("--fully-async",), "advantages", "generate rollout 1"),
    ],
)
def test_a_process_dies(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], victim: str, before: str
) -> None:
    """The process that was killed is named, with its id, whoever else felt it; no other process is left."""
    table = tmp_path / "processes.json"
    monkeypatch.setenv(STOP_BEFORE, before)
    monkeypatch.setenv(STOPPED_FILE, str(table))
    found: dict[str, int] = {}

    def kill() -> None:
        while not table.exists() or not table.read_text():
            sleep(0.05)
        found.update(json.loads(table.read_text()))
        os.kill(found[victim], signal.SIGKILL)

    killer = Thread(target=kill)
    killer.start()
    run = controller(tiny("grpo", "--num-rollout", "2", *options), queue, tmp_path)
    with pytest.raises(RunError) as failure:
        run.run()
    killer.join()
    assert victim in str(failure.value)
    assert f"(process {found[victim]}) died" in str(failure.value)
    assert "\n" not in str(failure.value)
    others = ("driver", *queue.processes, *processes_of_ray())
    own = [pid for name, pid in found.items() if name not in others]
    for _ in range(100):
        if not any(map(is_running, own)):
            break
        sleep(0.1)
    assert [pid for pid in own if is_running(pid)] == []
    assert all(is_running(pid) for pid in found.values() if pid not in own)
    queue.drop(queue.keys())
