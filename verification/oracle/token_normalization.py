"""Token-level normalisation as real numbers (baseline: Token-level normalisation), 1e-8 as the float32 nearest it.

The float32 formulas lose their variance to rounding when the mean is large against the spread. The scale carries that
condition to first order; where the variance itself is uncertain by more than a few per cent no element is judged.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from flint import arb, fmpq

from verification.oracle.exact import Exact
from verification.oracle.reals import (
    FLOAT32_MAX,
    FLOAT32_TINY,
    ZERO,
    all_finite,
    floats,
    magnitude,
    masks_or_ones,
    rational,
    rationals,
    single,
)
from verification.oracle.routes import ROUTES

FLOOR = single(1e-8)
ROUNDING = 2.0**-24
WORST_CONDITION = 2.0**18  # of the variance: beyond it 32 roundings of 2^-24 amount to half of it

Numbers = list[tuple[arb | fmpq | None, float]]


def normalize(args: Namespace, inputs: dict[str, Any]) -> dict[str, Exact] | None:
    """``advantages[i]`` ``[R_i]``; as given without ``normalize_advantages``; None where malformed or not finite."""
    advantages = [floats(row) for row in inputs["advantages"]]
    lengths = [len(row) for row in advantages]
    if not all_finite(advantages):
        return None
    if not args.normalize_advantages:
        same: list[Numbers] = [[(rational(value), abs(value)) for value in row] for row in advantages]
        return _named("advantage.as_given", same)
    masks = masks_or_ones(inputs.get("loss_masks"), lengths)
    if [len(row) for row in masks] != lengths or not all_finite(masks):
        return None
    flat = [value for row in advantages for value in row]
    weights = [weight for row in masks for weight in row]
    if sum(weights) <= 0.0:
        return None
    kind = ROUTES[args.advantage_estimator].token_normalization
    numbers = (_whiten if kind == "whiten" else _token_global)(flat, weights)
    rows, start = [], 0
    for length in lengths:
        rows.append(numbers[start : start + length])
        start += length
    return _named(f"advantage.{kind}", rows)


def _whiten(flat: Sequence[float], weights: Sequence[float]) -> Numbers:
    """(a - mean) / sqrt(var + 1e-8), var with n / (n - 1); scale: |a| and the mean magnitude, divided alike, and the
    result times the condition of the one-pass variance, (mean of squares) / (var + 1e-8)."""
    numbers, masses = rationals(flat), rationals(weights)
    count = sum(masses, ZERO)
    weighted = [number * mass for number, mass in zip(numbers, masses, strict=True)]
    mean = sum(weighted, ZERO) / count
    squares = sum((part * number for part, number in zip(weighted, numbers, strict=True)), ZERO) / count
    bessel = count / (count - 1) if count >= 2 else fmpq(1)
    variance = (squares - mean * mean) * bessel + rational(FLOOR)
    if variance <= 0:
        return [(None, 0.0)] * len(flat)
    condition = magnitude(squares * bessel) / magnitude(variance)
    beyond = max((abs(value) for value in flat), default=0.0) ** 2 * max(len(flat), 1) > FLOAT32_MAX
    if beyond or condition > WORST_CONDITION:
        return [(None, 0.0)] * len(flat)
    inverse = 1 / arb(variance).sqrt()
    gain, centre = magnitude(inverse), _mean_magnitude(flat, weights)
    results: Numbers = []
    for number, value in zip(numbers, flat, strict=True):
        result = arb(number - mean) * inverse
        results.append((result, gain * max(abs(value) + centre, FLOAT32_TINY) + magnitude(result) * condition))
    return results


def _token_global(flat: Sequence[float], weights: Sequence[float]) -> Numbers:
    """(a - mean) / sqrt(max(var, 1e-8)) * m, var = sum(((a - mean) m)^2) / n; scale: |a| and the mean magnitude,
    divided alike, and the result times what a mean that is off by d does to the variance: d^2, and 2 d times the
    masked sum of the centred values over n, which is 0 for masks of 0 and 1."""
    numbers, masses = rationals(flat), rationals(weights)
    count = sum(masses, ZERO)
    mean = sum((number * mass for number, mass in zip(numbers, masses, strict=True)), ZERO) / count
    centred = [(number - mean) * mass for number, mass in zip(numbers, masses, strict=True)]
    variance = sum((part * part for part in centred), ZERO) / count
    floored = max(variance, rational(FLOOR))
    centre = _mean_magnitude(flat, weights)
    off = 8.0 * ROUNDING * centre
    skew = sum((part * mass for part, mass in zip(centred, masses, strict=True)), ZERO) / count
    drift = off * (off + 2.0 * magnitude(skew)) / magnitude(floored)
    beyond = max((abs(value) for value in flat), default=0.0) ** 2 * max(len(flat), 1) > FLOAT32_MAX
    if beyond or drift > 2.0**-5:
        return [(None, 0.0)] * len(flat)
    inverse = 1 / arb(floored).sqrt()
    gain = magnitude(inverse)
    results: Numbers = []
    for number, mass, value, weight in zip(numbers, masses, flat, weights, strict=True):
        result = arb((number - mean) * mass) * inverse
        scale = gain * max(abs(value) + centre, FLOAT32_TINY) * abs(weight) + magnitude(result) * drift / ROUNDING
        results.append((result, scale))
    return results


def _mean_magnitude(flat: Sequence[float], weights: Sequence[float]) -> float:
    """sum |a m| / sum m: what the rounding of the mean is an ulp of, however far the mean itself cancels."""
    terms = sum(abs(value * weight) for value, weight in zip(flat, weights, strict=True))
    return terms / sum(weights)


def _named(formula: str, rows: list[Numbers]) -> dict[str, Exact]:
    named = {}
    for i, row in enumerate(rows):
        values, scales = zip(*row, strict=True) if row else ((), ())
        named[f"advantages[{i}]"] = Exact(tuple(values), tuple(scales), (len(row),), formula)
    return named
