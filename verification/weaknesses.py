"""The baseline's known weaknesses, measured: what it gives on the case that shows each, beside the exact value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from flint import arb, fmpq

from verification.cases.case import Case
from verification.subjects.outcome import Outcome


@dataclass(frozen=True)
class Weakness:
    """One weakness that the default keeps for the sake of its bits: the first element of ``array`` of ``case``."""

    what: str
    case: str
    array: str
    exact: Callable[[Case], str]


@dataclass(frozen=True)
class Shown:
    """A weakness as one run shows it."""

    what: str
    case: str
    given: str
    exact: str


def _zero(case: Case) -> str:
    return "0"


def _no_number(case: Case) -> str:
    return "none: one value has no deviation"


def _whitened(case: Case) -> str:
    """``(x - mean) / sqrt(var + 1e-8)`` of the first unmasked token, every token being one response."""
    values = [Fraction(float(tokens[0])) for tokens in case.inputs["advantages"]]
    mean = sum(values, Fraction(0)) / len(values)
    variance = sum(((value - mean) ** 2 for value in values), Fraction(0)) / (len(values) - 1)
    deviation, square = values[0] - mean, variance + Fraction(1e-8)
    return f"{float(_ball(deviation) / _ball(square).sqrt()):.7g}"


def _ball(value: Fraction) -> arb:
    return arb(fmpq(value.numerator, value.denominator))


WEAKNESSES = (
    Weakness(
        "a group of equal rewards keeps what the float32 mean loses, over 1e-6",
        "reward.normalize/grpo/field-flat-fifths",
        "rewards",
        _zero,
    ),
    Weakness(
        "a variance in one float32 pass loses a spread far from zero",
        "advantage.normalize/grpo/offset",
        "advantages[0]",
        _whitened,
    ),
    Weakness(
        "a group of one divides by NaN (the command line refuses it)",
        "reward.normalize/grpo/g1",
        "rewards",
        _no_number,
    ),
)


def known_weaknesses(cases: Sequence[Case], run: Callable[[Case], Outcome | None]) -> tuple[Shown, ...]:
    """Each weakness whose case is among ``cases``, as ``run`` shows it."""
    chosen = {case.id: case for case in cases}
    shown = []
    for weakness in WEAKNESSES:
        case = chosen.get(weakness.case)
        outcome = run(case) if case is not None else None
        if case is None or outcome is None or weakness.array not in outcome.arrays:
            continue
        given = f"{float(outcome.arrays[weakness.array].reshape(-1)[0]):.7g}"
        shown.append(Shown(weakness.what, weakness.case, given, weakness.exact(case)))
    return tuple(shown)
