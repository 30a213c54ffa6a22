"""Command lines for tests: the least that each algorithm asks for, and what a refused one prints."""

from __future__ import annotations

import pytest

from relax.arguments import parse_args

KEYS = ["--gdpo-reward-keys", "correct", "format"]

# The least that each algorithm's command line must say.
LEAST: dict[str, list[str]] = {
    "grpo": [],
    "gspo": [],
    "sapo": [],
    "cispo": [],
    "ppo": [],
    "reinforce_plus_plus": ["--normalize-advantages"],
    "reinforce_plus_plus_baseline": ["--normalize-advantages"],
    "rloo": ["--calculate-per-token-loss"],
    "gdpo": KEYS,
}


def line(algorithm: str, *options: str) -> list[str]:
    return ["--advantage-estimator", algorithm, *LEAST[algorithm], *options]


def refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr of a command line that ends with exit status 2."""
    with pytest.raises(SystemExit) as end:
        parse_args(argv)
    assert end.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("relax: error: ")
    assert captured.err.count("\n") == 1
    return captured.err
