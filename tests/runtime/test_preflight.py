"""What is looked at before a run starts: each objection is one line that names the option and the remedy."""

from __future__ import annotations

import importlib.util
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

from relax.arguments import parse_args
from relax.core import preflight as preflight_module
from relax.core.checkpoint import commit, pending_folder
from relax.core.preflight import PACKAGES, logical_cpus, preflight

REWARDS = ["--custom-rm-path", "relax.tasks.sums:sum_rewards", "--reward-key", "total"]


def options(*argv: str, rewards: bool = True) -> Namespace:
    return parse_args([*(REWARDS if rewards else []), *argv])


def broken_task(args: Namespace) -> Any:
    raise RuntimeError("no\nproblems")


def test_nothing_to_object(tmp_path: Path) -> None:
    """A run that lacks nothing passes, and nothing is written."""
    folders = ["--save", tmp_path / "a" / "b", "--log-dir", tmp_path / "c", "--trace-folder", tmp_path / "d"]
    preflight(options(*map(str, folders), "--trace-rollout", "0"))
    preflight(options("--loss-type", "sft_loss", "--sft-steps", "1", rewards=False))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--tensor-model-parallel-size", "2"], "--tensor-model-parallel-size 2: a run trains with whole models"),
        (["--context-parallel-size", "2"], "--context-parallel-size 2"),
        (["--ray-logical-cpus", "4"], "--ray-logical-cpus 4: the processes of this run reserve 5"),
        (["--hf-checkpoint", "nowhere"], "--hf-checkpoint nowhere: there is no such folder; nothing is downloaded"),
        (["--task-data", "nowhere.jsonl"], "--task-data nowhere.jsonl: there is no such file"),
        (["--debug-train-only"], "--load-debug-rollout-data (not given): there is nothing to train on"),
        (
            ["--debug-train-only", "--load-debug-rollout-data", "nowhere"],
            "--load-debug-rollout-data nowhere: there is no such folder",
        ),
        (["--task-path", "nowhere:task"], "--task-path nowhere:task: it cannot be imported: no function at"),
        (["--task-path", "relax.tasks.sums:nothing"], "--task-path relax.tasks.sums:nothing: it cannot be imported"),
        (
            ["--task-path", "tests.runtime.test_preflight:broken_task"],
            "--task-path tests.runtime.test_preflight:broken_task: the task cannot be made: RuntimeError: no problems",
        ),
        (["--max-length", "16"], "--max-length 16: the first prompt of relax.tasks.sums:sums_task has 8 tokens"),
        (["--custom-rm-path", "my.rewards:score"], "--custom-rm-path my.rewards:score: it cannot be imported"),
        (["--dynamic-sampling-filter-path", "my:keep"], "--dynamic-sampling-filter-path my:keep: it cannot be"),
        (["--custom-reward-post-process-path", "os:sep"], "--custom-reward-post-process-path os:sep: it cannot be"),
    ],
)
def test_refused(argv: list[str], words: str) -> None:
    """What cannot go well is told before anything starts."""
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the words are looked at below
        preflight(options(*argv))
    message = str(refusal.value)
    assert words in message
    assert "\n" not in message


def test_rollouts_that_were_not_kept(tmp_path: Path) -> None:
    """Training alone needs every rollout that it is to train on, and of these no earlier ones."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "rollout-00000001.json").touch()
    alone = ["--debug-train-only", "--load-debug-rollout-data", str(data), "--num-rollout"]
    with pytest.raises(ValueError, match="data holds no rollout 0: give --load-debug-rollout-data the folder"):
        preflight(options(*alone, "2"))
    commit(pending_folder(tmp_path, 1), 1)
    preflight(options(*alone, "2", "--load", str(tmp_path)))
    with pytest.raises(ValueError, match=r"data holds no rollout 2: .* --num-rollout no more than it holds"):
        preflight(options(*alone, "3", "--load", str(tmp_path)))


def test_supervised_training_goes_on_from_nothing(tmp_path: Path) -> None:
    """A supervised run whose checkpoint is there is over; one that was killed before starts again."""
    supervised = ["--loss-type", "sft_loss", "--sft-steps", "1", "--save", str(tmp_path), "--load", str(tmp_path)]
    preflight(options(*supervised))
    commit(pending_folder(tmp_path, 0), 0)
    with pytest.raises(ValueError, match="--loss-type sft_loss: supervised training is saved at its end, and starts"):
        preflight(options(*supervised))


def test_no_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without what tells living processes from dead ones is told, before anything is taken for dead."""
    monkeypatch.setattr(preflight_module, "PROCESSES", Path("/no/proc/self/stat"))
    with pytest.raises(ValueError, match=r"^there is no /no/proc/self/stat here: .*; train on Linux$"):
        preflight(options())


def test_no_reward_function() -> None:
    """A run that samples needs a reward function, and one that does not needs none."""
    with pytest.raises(ValueError, match=r"^--custom-rm-path \(not given\): a run needs a function that scores"):
        preflight(options(rewards=False))


def test_module_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of one's own that raises as it is imported is told with its option and its error."""
    (tmp_path / "broken_rewards.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"--custom-rm-path broken_rewards:score: .*ZeroDivisionError"):
        preflight(options("--custom-rm-path", "broken_rewards:score"))


@pytest.mark.parametrize("extra", PACKAGES)
def test_missing_package(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is not installed is named with its extra, and with the command that installs it."""
    found, missing = importlib.util.find_spec, PACKAGES[extra][-1]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else found(name))
    with pytest.raises(ValueError, match=rf"the package {missing} of the extra '{extra}' is missing: .* pip install"):
        preflight(options())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_no_gpu() -> None:
    """A GPU that is not there is told."""
    with pytest.raises(ValueError, match="--device cuda: torch finds no GPU here; give --device cpu"):
        preflight(options("--device", "cuda"))


class TestLogicalCpus:
    def test_colocated(self) -> None:
        """Actor, rollout, the queue's controller and two storage units; a rank more is one more, so is a critic."""
        assert logical_cpus(options()) == 2 + 1 + 2
        assert logical_cpus(options("--data-parallel-size", "2", "--storage-units", "1")) == 3 + 1 + 1
        assert logical_cpus(options("--advantage-estimator", "ppo", "--sft-steps", "1")) == 4 + 1 + 2

    def test_fully_async(self) -> None:
        """Actor, rollout, reference and actor_fwd, and the queue; Serve reserves none."""
        assert logical_cpus(options("--fully-async")) == 4 + 1 + 2
