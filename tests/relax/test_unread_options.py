"""An option that the run reads nowhere is accepted, and told in one line; where it is read, nothing is said."""

from __future__ import annotations

import warnings

import pytest

from relax.arguments import build_parser, main, parse_args
from relax.option_ranges import attribute_of
from relax.unread_options import READ_WITH

# The least that makes a reader what it says.
READERS = {
    "--use-opsm": ["--use-opsm"],
    "--use-tis": ["--use-tis"],
    "--use-kl-loss": ["--use-kl-loss", "--kl-loss-coef=0.5"],
    "--kl-coef": ["--advantage-estimator=ppo", "--kl-coef=0.5"],
    "--fully-async": ["--fully-async"],
    "--sft-steps": ["--sft-steps=2"],
    "--loss-type policy_loss": ["--loss-type=policy_loss"],
}
SUPERVISED = ["--loss-type=sft_loss", "--sft-steps=2"]
OTHER = {"--tis-mode": "icepop", "--kl-loss-type": "k3", "--sft-batch-size": "32", "--tis-clip-low": "0.5"}
PAIRS = [(option, reader) for option, readers in READ_WITH.items() for reader in readers]


def given(option: str) -> list[str]:
    """``option`` with another value than its default."""
    action = next(action for action in build_parser()._actions if option in action.option_strings)
    if action.nargs == 0:
        return [option]
    folder = ["--trace-folder=kept"] if option == "--trace-rollout" else []
    return [f"{option}={OTHER.get(option, '0' if action.default is None else '4')}", *folder]


def warned(argv: list[str]) -> list[str]:
    """What a command line that is accepted is warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parse_args(argv)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("option", READ_WITH)
def test_unread(option: str) -> None:
    """One line names the option with its value, what does not read it as it is, and the remedy."""
    readers = READ_WITH[option]
    off = SUPERVISED if "--loss-type policy_loss" in readers else []
    (line,) = warned([*given(option), *off])
    value = getattr(build_parser().parse_args(given(option)), attribute_of(option))
    assert line.startswith(f"{option} {'(on)' if value is True else value} and {readers[0].split()[0]} ")
    assert line.endswith(f": {option} has no effect; give {' or '.join(readers)}, or drop {option}")
    assert "\n" not in line


@pytest.mark.parametrize(("option", "reader"), PAIRS)
def test_read(option: str, reader: str) -> None:
    """Beside any of its readers an option is accepted without a word."""
    assert warned([*given(option), *READERS[reader]]) == []


def test_default() -> None:
    """Defaults, given or not, are not warned of, in supervised training either."""
    assert warned(["--tis-clip=2.0", "--sft-lr=3e-3", "--num-iters-per-train-update=1"]) == []
    assert warned(SUPERVISED) == []


def test_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The command that checks a line says on stderr what a run would."""
    assert main(["--tis-clip=3"]) == 0
    expected = "--tis-clip 3.0 and --use-tis (off): --tis-clip has no effect; give --use-tis, or drop --tis-clip"
    assert capsys.readouterr().err == f"relax: warning: {expected}\n"
