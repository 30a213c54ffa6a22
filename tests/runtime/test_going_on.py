"""What a run that is given a checkpoint has before it, and what it says of that."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from relax.core.checkpoint import Checkpoint, commit, open_checkpoint, pending_folder, write_part
from relax.core.going_on import beginning, nothing_left
from tests.runtime.in_process import tiny


def loading(folder: Path, *options: str) -> Namespace:
    """A run of four rollouts that goes on from ``folder``."""
    return tiny("gdpo", "--num-rollout", "4", "--load", str(folder), *options)


def saved(folder: Path, step: int) -> Checkpoint:
    """A checkpoint of this step."""
    pending = pending_folder(folder, step)
    write_part(pending, "run", tensors={}, facts={})
    commit(pending, step)
    return open_checkpoint(folder)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (0, "the run goes on before the first rollout of 4, from {}/step-00000000\n"),
        (3, "the run goes on after rollout 2 of 4, from {}/step-00000003\n"),
        (4, "only the evaluation at the end is left to do, from {}/step-00000004\n"),
    ],
)
def test_beginning(tmp_path: Path, step: int, said: str) -> None:
    """A run says from where it goes on, and after which rollout."""
    assert beginning(loading(tmp_path), saved(tmp_path, step)) == said.format(tmp_path)


def test_from_the_beginning(tmp_path: Path) -> None:
    """A run that was ended before its first checkpoint says that it starts again; one that loads none says nothing."""
    said = f"{tmp_path} holds no checkpoint yet: the run starts from the beginning\n"
    assert beginning(loading(tmp_path), None) == said
    assert beginning(tiny("gdpo"), None) == ""


def test_nothing_left(tmp_path: Path) -> None:
    """After the last rollout nothing is left, but for an evaluation that the records lack."""
    save, log = tmp_path / "save", tmp_path / "log"
    log.mkdir()
    evaluated = ("--eval-problems", "4", "--log-dir", str(log))
    assert not nothing_left(loading(save), None)
    assert not nothing_left(loading(save), saved(save, 3))
    last = saved(save, 4)
    assert nothing_left(loading(save, "--log-dir", str(log)), last)
    assert not nothing_left(loading(save, *evaluated[:2]), last)
    assert not nothing_left(loading(save, *evaluated), last)
    for rows, done in (("", False), ("0,0\n", False), ("0,0\n4,8\n", True)):
        (log / "evaluations.csv").write_text(f"rollouts,step\n{rows}")
        assert nothing_left(loading(save, *evaluated), last) is done
