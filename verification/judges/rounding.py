"""The rounding judge: how many ulps an outcome lies from the real number, against the bound of its formula."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from flint import arb, ctx

from verification.cases.case import Case
from verification.judges.comparison import Comparison
from verification.judges.ulps import ulp
from verification.oracle import Exact, evaluate
from verification.oracle.exact import Real
from verification.oracle.reals import nearest_single
from verification.subjects.outcome import Outcome

PRECISION = 256  # of the distances: a float32 minus a ball that is narrow already


def judge_rounding(case: Case, outcome: Outcome, expected: Mapping[str, Exact] | None = None) -> list[Comparison]:
    """One comparison an array that the oracle knows; none where it has nothing to say about the case.

    ``ulps`` is the largest distance in ulps of the element's scale. A failure, a missing array, a NaN or an infinity
    where there is a number, another shape or dtype, a zero of the wrong sign where +0 is demanded, a decision that
    differs: each is a difference. ``detail`` of a difference names the first index that breaks the bound.
    ``expected``: what ``evaluate(case)`` gave, for a caller that has it already.
    """
    expected = evaluate(case) if expected is None else expected
    if expected is None:
        return []
    if outcome.failure is not None:
        said = f"{outcome.failure.kind}: {outcome.failure.message}"
        return [_comparison(case, "failure", False, None, f"the oracle has a value where this failed with {said}")]
    return [_judge_array(case, name, exact, outcome.arrays.get(name)) for name, exact in expected.items()]


def _judge_array(case: Case, name: str, exact: Exact, got: torch.Tensor | None) -> Comparison:
    if got is None:
        return _comparison(case, name, False, None, "missing from the outcome", exact)
    if problem := _unlike(exact, got):
        return _comparison(case, name, False, None, problem, exact)
    largest, first = 0.0, ""
    with ctx.workprec(PRECISION):
        for index, number in enumerate(got.reshape(-1).to(torch.float64).tolist()):
            value = exact.values[index]
            if value is None or not exact.judged(index):
                continue
            distance, wrong = _distance(exact, index, value, number)
            largest = max(largest, distance)
            if wrong and not first:
                first = _describe(exact, index, value, number, distance, wrong)
    return _comparison(case, name, not first, largest, first, exact)


def _unlike(exact: Exact, got: torch.Tensor) -> str:
    """What makes the array incomparable: another dtype or shape."""
    if exact.dtype is not None and got.dtype != exact.dtype:
        return f"dtype {got.dtype}, expected {exact.dtype}"
    if tuple(got.shape) != exact.shape:
        return f"shape {tuple(got.shape)}, expected {exact.shape}"
    return ""


def _distance(exact: Exact, index: int, value: Real, number: float) -> tuple[float, str]:
    """The distance in ulps to the nearest value that counts, and what is wrong with it, empty if nothing is."""
    if not math.isfinite(number):
        if not math.isnan(number) and nearest_single(value) == number:
            return 0.0, ""  # the real number itself rounds to that infinity
        return math.inf, "not a finite number"
    candidates = (value, *exact.alternatives.get(index, ()))
    distance = min(_apart(number, candidate) for candidate in candidates) / ulp(exact.scales[index], exact.grid)
    if exact.correctly_rounded:
        if all(nearest_single(candidate) != number for candidate in candidates):
            return distance, "not the nearest float32"
    elif distance > exact.bound_ulps:
        return distance, f"beyond the bound of {exact.bound_ulps:g}"
    if exact.positive_zero and number == 0.0 and math.copysign(1.0, number) < 0:
        return distance, "a zero must be +0"
    return distance, ""


def _apart(number: float, value: Real) -> float:
    """|number - value| as a double, rounded up."""
    difference = arb(number) - (value if isinstance(value, arb) else arb(value))
    return 0.0 if difference.is_zero() else float(difference.abs_upper())


def _describe(exact: Exact, index: int, value: Real, number: float, distance: float, wrong: str) -> str:
    place = _place(exact.shape, index)
    shown = (value if isinstance(value, arb) else arb(value)).str(20, radius=False)
    also = f" (or {len(exact.alternatives[index])} others)" if index in exact.alternatives else ""
    return f"{place}: got {number!r} ({number.hex()}), exact {shown}{also}, {distance:.4g} ulps: {wrong}"


def _place(shape: tuple[int, ...], index: int) -> str:
    places = []
    for size in reversed(shape):
        places.append(index % size)
        index //= size
    return f"index {tuple(reversed(places))}" if len(places) != 1 else f"index {places[0]}"


def _comparison(
    case: Case, what: str, agrees: bool, ulps: float | None, detail: str, exact: Exact | None = None
) -> Comparison:
    if detail and exact is not None:
        detail = f"{exact.formula}: {detail}"
    return Comparison(case.id, case.stage, case.algorithm, "rounding", "oracle", what, agrees, ulps, detail)
