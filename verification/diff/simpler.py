"""Simpler numbers in place of a number: 0, 1, -1, 0.5, fewer bits, nearer to 1."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

PLAIN = {"0": 0.0, "1": 1.0, "-1": -1.0, "0.5": 0.5, "-0.5": -0.5, "2": 2.0}
BITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
NEARER, ONE_BIT_NEARER = "nearer to 1", "1 bit, nearer to 1"
KINDS = (*PLAIN, ONE_BIT_NEARER, *(f"{bits} bits" for bits in BITS), NEARER)  # the simplest first


def cost(value: float) -> float:
    """How much a reader has to take in: 0 for 0, next 1, -1 and 0.5, then by significant bits and distance from 1."""
    if value == 0:
        return 4.0 if math.copysign(1.0, value) < 0 else 0.0
    if value in (1.0, -1.0, 0.5, -0.5):
        return {1.0: 1.0, -1.0: 2.0, 0.5: 3.0, -0.5: 3.5}[value]
    if not math.isfinite(value):
        return 1e4
    mantissa, exponent = math.frexp(abs(value))
    numerator = int(math.ldexp(mantissa, 53))
    bits = 54 - (numerator & -numerator).bit_length()
    return 4.5 + 8 * bits + abs(exponent - 1) + 2 * (value != int(value)) + 0.25 * (value < 0)


def simpler(value: float) -> dict[str, float]:
    """What ``value`` could be instead, by kind: finite, at less cost, and in any format that holds ``value`` and 2."""
    found = dict(PLAIN)
    if math.isfinite(value) and value:
        mantissa, exponent = math.frexp(value)
        found |= {f"{bits} bits": math.ldexp(_cut(mantissa, bits), exponent) for bits in BITS}
        found[NEARER] = math.ldexp(mantissa, int(exponent / 2))
        found[ONE_BIT_NEARER] = math.ldexp(_cut(mantissa, 1), int(exponent / 2))
    return {kind: other for kind, other in found.items() if cost(other) < cost(value)}


def _cut(mantissa: float, bits: int) -> float:
    return math.ldexp(math.trunc(math.ldexp(mantissa, bits)), -bits)


def simpler_objects(value: Any) -> dict[str, Any]:
    """`simpler` for a real number of any type, in that type; nothing for a bool and for what is no number."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool | np.bool_):
        return {}
    try:
        others = simpler(float(value))
    except OverflowError:  # an int beyond float64
        return {}
    kind: Any = type(value)
    whole = isinstance(value, numbers.Integral)
    return {name: kind(int(other) if whole else other) for name, other in others.items() if not whole or other % 1 == 0}
