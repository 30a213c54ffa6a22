"""The range of each number on the command line, and the refusal of a value outside it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any


@dataclass(frozen=True, slots=True)
class Range:
    """Finite numbers from ``low`` to ``high``; ``open_below`` leaves ``low`` itself out."""

    low: float
    high: float | None = None
    open_below: bool = False

    def holds(self, value: Real) -> bool:
        """Whether the value lies inside; NaN and the infinities never do."""
        if not is_finite(value) or value < self.low or (self.open_below and value == self.low):
            return False
        return self.high is None or value <= self.high

    def __str__(self) -> str:
        if self.high is not None:
            return f"from {self.low} to {self.high}"
        return f"above {self.low}" if self.open_below else f"of {self.low} or more"


UNIT = Range(0, 1)
COUNT = Range(1)
NOT_NEGATIVE = Range(0)
POSITIVE = Range(0, open_below=True)
SEED = Range(0, 2**63 - 1)  # what the generators of tensor libraries take: a signed integer of 64 bits

OPTION_RANGES: Mapping[str, Range] = {
    "--n-samples-per-prompt": COUNT,
    "--rollout-batch-size": COUNT,
    "--global-batch-size": COUNT,
    "--num-rollout": COUNT,
    "--gamma": UNIT,
    "--lambd": UNIT,
    "--kl-coef": NOT_NEGATIVE,
    "--kl-loss-coef": NOT_NEGATIVE,
    "--eps-clip": UNIT,
    "--eps-clip-high": NOT_NEGATIVE,
    "--eps-clip-c": Range(1, open_below=True),
    "--sapo-tau-pos": POSITIVE,
    "--sapo-tau-neg": POSITIVE,
    "--opsm-delta": NOT_NEGATIVE,
    "--tis-clip": POSITIVE,
    "--tis-clip-low": NOT_NEGATIVE,
    "--max-staleness": NOT_NEGATIVE,
    "--num-iters-per-train-update": COUNT,
    "--tensor-model-parallel-size": COUNT,
    "--pipeline-model-parallel-size": COUNT,
    "--context-parallel-size": COUNT,
    "--seed": SEED,
}

# None is a value of these: the option is off, or stands for something that the others decide.
MAY_BE_LEFT_OUT = frozenset({"--global-batch-size", "--eps-clip-c"})


def is_real(value: Any) -> bool:
    """Whether this counts as a number on the command line: a bool does not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_finite(value: Real) -> bool:
    """As ``math.isfinite``, for integers beyond the largest double too."""
    return isinstance(value, int) or math.isfinite(value)


def finite_double(value: Any) -> float | None:
    """The double nearest a finite real number; None for what is no such number, a bool or one beyond the doubles."""
    if not is_real(value):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def check_ranges(
    args: Any, ranges: Mapping[str, Range] = OPTION_RANGES, may_be_left_out: frozenset[str] = MAY_BE_LEFT_OUT
) -> None:
    """Raises ValueError for the first number of ``args`` outside its range, naming option, value and range."""
    for option, allowed in ranges.items():
        value = getattr(args, attribute_of(option))
        if value is not None or option not in may_be_left_out:
            check_number(option, value, allowed)


def check_number(option: str, value: Any, allowed: Range) -> None:
    """Raises ValueError, naming option, value and range, for what is no number or lies outside."""
    if not is_real(value) or not allowed.holds(value):
        raise ValueError(f"{option} {value} is out of range: give a finite number {allowed}")


def attribute_of(option: str) -> str:
    """``--eps-clip`` is ``args.eps_clip``."""
    return option.removeprefix("--").replace("-", "_")


def option_of(attribute: str) -> str:
    """``args.eps_clip`` is ``--eps-clip``."""
    return f"--{attribute.replace('_', '-')}"
