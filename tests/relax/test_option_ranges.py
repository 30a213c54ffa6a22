"""Every number of the command line has a range, and is held to it."""

from __future__ import annotations

from typing import Any

import pytest

from relax.arguments import parse_args, validate_algorithm_args
from relax.option_ranges import OPTION_RANGES, attribute_of
from relax.options import build_parser
from tests.relax.command_lines import refused
from verification.cases.arguments import DEFAULTS, namespace

SEEDS = f"from 0 to {2**63 - 1}"

# Values just inside each range, and values outside.
INSIDE: dict[str, list[str]] = {
    "from 0 to 1": ["0", "1"],
    "of 0 or more": ["0"],
    "of 1 or more": ["1"],
    "above 0": ["5e-324"],
    "above 1": ["1.0000000000000002"],
    SEEDS: ["0", str(2**63 - 1)],
}
OUTSIDE: dict[str, list[str]] = {
    "from 0 to 1": ["-5e-324", "1.0000000000000002", "nan", "inf", "-inf"],
    "of 0 or more": ["-5e-324", "nan", "inf"],
    "of 1 or more": ["0", "-1"],
    "above 0": ["0", "-1", "nan", "inf"],
    "above 1": ["1", "0.5", "nan", "inf"],
    SEEDS: ["-1", str(2**63), "1" + "0" * 400],
}
WHOLE = {name for name, value in DEFAULTS.items() if type(value) is int} | {"global_batch_size"}


def numbers(values: dict[str, list[str]]) -> list[tuple[str, str]]:
    pairs = [(option, value) for option, allowed in OPTION_RANGES.items() for value in values[str(allowed)]]
    return [
        (option, "-1" if attribute_of(option) in WHOLE and value == "-5e-324" else value)
        for option, value in pairs
        if not (attribute_of(option) in WHOLE and value in ("nan", "inf", "-inf"))
    ]


class TestRanges:
    def test_every_number_has_a_range(self) -> None:
        """No number of the command line goes without a range."""
        numeric = {a.option_strings[0] for a in build_parser()._actions if a.type in (int, float)}
        assert numeric - {"--gdpo-reward-weights"} == set(OPTION_RANGES)

    def test_ranges(self) -> None:
        """The ranges are those that the formulas have a meaning for."""
        assert {
            option: str(allowed) for option, allowed in OPTION_RANGES.items() if attribute_of(option) not in WHOLE
        } == {
            "--gamma": "from 0 to 1",
            "--lambd": "from 0 to 1",
            "--eps-clip": "from 0 to 1",
            "--kl-coef": "of 0 or more",
            "--kl-loss-coef": "of 0 or more",
            "--eps-clip-high": "of 0 or more",
            "--opsm-delta": "of 0 or more",
            "--tis-clip-low": "of 0 or more",
            "--tis-clip": "above 0",
            "--sapo-tau-pos": "above 0",
            "--sapo-tau-neg": "above 0",
            "--eps-clip-c": "above 1",
        }
        no_counts = {"--max-staleness": "of 0 or more", "--seed": SEEDS}
        for option, allowed in OPTION_RANGES.items():
            if attribute_of(option) in WHOLE:
                assert str(allowed) == no_counts.get(option, "of 1 or more")

    @pytest.mark.parametrize(("option", "value"), numbers(INSIDE))
    def test_inside(self, option: str, value: str) -> None:
        """The ends that belong to a range are accepted, in a run that has no other objection."""
        args = ["--advantage-estimator", "ppo", "--use-opsm", "--use-tis", f"{option}={value}"]
        parsed = parse_args(args)
        assert getattr(parsed, attribute_of(option)) == (int if attribute_of(option) in WHOLE else float)(value)

    @pytest.mark.parametrize(("option", "value"), numbers(OUTSIDE))
    @pytest.mark.parametrize("loss_type", ["policy_loss", "sft_loss"])
    def test_outside(self, option: str, value: str, loss_type: str, capsys: pytest.CaptureFixture[str]) -> None:
        """A value outside is refused with option, value and range, for supervised training too."""
        message = refused([f"{option}={value}", "--loss-type", loss_type], capsys)
        shown = value if attribute_of(option) in WHOLE else str(float(value))
        expected = f"{option} {shown} is out of range: give a finite number {OPTION_RANGES[option]}"
        assert expected in message

    @pytest.mark.parametrize("value", [True, "8", None, 1j])
    def test_no_number(self, value: Any) -> None:
        """What is no number is refused like a number out of range."""
        with pytest.raises(ValueError, match=r"--n-samples-per-prompt .* is out of range: give a finite number"):
            validate_algorithm_args(namespace("grpo", n_samples_per_prompt=value))

    def test_beyond_the_largest_double(self, capsys: pytest.CaptureFixture[str]) -> None:
        """An integer that no double holds is compared as an integer."""
        assert parse_args(["--num-rollout", "1" + "0" * 400]).num_rollout == 10**400
        assert "--gamma" in refused(["--gamma", "1" + "0" * 400], capsys)
