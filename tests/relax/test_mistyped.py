"""Names that are mistyped: the one that was probably meant is told."""

from __future__ import annotations

import pytest

from relax.spelling import closest
from tests.relax.command_lines import refused


def test_closest() -> None:
    """The most like of the known names, and none where all are far."""
    assert closest("gdop", ["grpo", "gdpo", "ppo"]) == "gdpo"
    assert closest("zzz", ["grpo", "gdpo", "ppo"]) is None
    assert closest("gdpo", []) is None


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--num-rolout", "3"], "unrecognized arguments: --num-rolout 3; did you mean --num-rollout? (--help"),
        (["--num-rolout=3"], "unrecognized arguments: --num-rolout=3; did you mean --num-rollout? (--help"),
        (["--lrr", "1", "--sede", "2"], "unrecognized arguments: --lrr 1 --sede 2; did you mean --lr? (--help"),
        (["3", "--sede", "2"], "unrecognized arguments: 3 --sede 2; did you mean --seed? (--help"),
        (["--zzzzzz"], "unrecognized arguments: --zzzzzz (--help"),
        (["run.yaml"], "unrecognized arguments: run.yaml (--help"),
        (["--advantage-estimator", "gdop"], "did you mean 'gdpo'?"),
    ],
)
def test_refused(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The line says what was meant where something was, and how to list the options once."""
    message = refused(argv, capsys)
    assert words in message
    assert message.count("--help lists the options") == 1
