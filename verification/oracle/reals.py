"""Real numbers and their float32: exact rationals, balls, and the rounding of either to the nearest float32."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from ctypes import c_float
from typing import Any

from flint import arb, fmpq

FLOAT32_MAX = float.fromhex("0x1.fffffep127")
FLOAT32_TINY = 2.0**-126  # the smallest normal number: below it the spacing no longer shrinks
LEAST_BIT = -149  # the exponent of the least subnormal of float32
MANTISSA = 23
MAX_EXPONENT = 127

ZERO = fmpq(0)


def single(value: float) -> float:
    """The float32 nearest a double, as a double; infinity beyond the range."""
    return c_float(value).value


def rational(value: float) -> fmpq:
    """The rational that a finite double is."""
    return fmpq(*value.as_integer_ratio())


def rationals(values: Iterable[float]) -> list[fmpq]:
    """The rationals of finite doubles."""
    return [fmpq(*value.as_integer_ratio()) for value in values]


def floats(array: Any) -> list[float]:
    """The elements of a numpy array, tensor or sequence as Python floats (exact for every float up to 64 bits)."""
    return [float(value) for value in (array.tolist() if hasattr(array, "tolist") else array)]


def masks_or_ones(masks: Iterable[Any] | None, lengths: Iterable[int]) -> list[list[float]]:
    """Loss masks of any dtype as floats; None is one for each of a response's tokens."""
    return [[1.0] * length for length in lengths] if masks is None else [floats(mask) for mask in masks]


def all_finite(rows: Iterable[Sequence[float]]) -> bool:
    """Whether no NaN or infinity is among the numbers of ``rows``."""
    return all(math.isfinite(value) for row in rows for value in row)


def magnitude(value: arb | fmpq) -> float:
    """|value| as a double, infinity beyond its range: for scales, which need a size and not a last bit."""
    return abs(float(value if isinstance(value, arb) else arb(value)))


def reach(value: arb | fmpq) -> float:
    """What a rounding of ``value`` is half an ulp of: |value|, but at least the smallest normal number unless it is 0,
    for the steps of float32 do not shrink below that, and a later factor may enlarge what was lost there."""
    size = magnitude(value)
    return max(size, FLOAT32_TINY) if size else 0.0


def within_format(size: float) -> float:
    """``size``, or infinity where float32 has none of that size: what overflowed is not brought back by a division."""
    return size if size <= FLOAT32_MAX else math.inf


def settled_single(value: arb | fmpq) -> float:
    """The float32 nearest a number that is known to round to one; an ArithmeticError for a ball that does not."""
    nearest = nearest_single(value)
    if nearest is None:
        raise ArithmeticError(f"{value} rounds to more than one float32: evaluate it with more bits")
    return nearest


def nearest_single(value: arb | fmpq) -> float | None:
    """The float32 nearest ``value``, ties to even, zeros positive; None where a ball is too wide to tell."""
    if isinstance(value, fmpq):
        return _round_rational(int(value.p), int(value.q))
    low, high = _ends(value)
    nearest = _round_dyadic(*low)
    return nearest if low == high or nearest == _round_dyadic(*high) else None


def _ends(value: arb) -> tuple[tuple[int, int], tuple[int, int]]:
    """Both ends of a ball as (mantissa, exponent), exactly; ``arb.lower`` rounds to the context's precision."""
    middle, exponent = map(int, value.mid().man_exp())
    radius, radius_exponent = map(int, value.rad().man_exp())
    if radius == 0:
        return (middle, exponent), (middle, exponent)
    least = min(exponent, radius_exponent) if middle else radius_exponent
    middle, radius = middle << max(exponent - least, 0), radius << radius_exponent - least
    return (middle - radius, least), (middle + radius, least)


def _round_dyadic(mantissa: int, exponent: int) -> float:
    """The float32 nearest mantissa * 2^exponent."""
    if mantissa == 0:
        return 0.0
    top = abs(mantissa).bit_length() + exponent - 1
    if top > MAX_EXPONENT:
        return math.copysign(math.inf, mantissa)
    if top < LEAST_BIT - 1:
        return 0.0
    if exponent >= 0:
        return _round_rational(mantissa << exponent, 1)
    return _round_rational(mantissa, 1 << -exponent)


def _round_rational(p: int, q: int) -> float:
    """The float32 nearest p/q: one integer division at the last bit that the result has."""
    if p == 0:
        return 0.0
    size = abs(p)
    top = size.bit_length() - q.bit_length()
    if (size << max(-top, 0)) < (q << max(top, 0)):
        top -= 1  # now 2^top <= |p/q| < 2^(top+1)
    last = max(top - MANTISSA, LEAST_BIT)
    dividend, divisor = size << max(-last, 0), q << max(last, 0)
    whole, rest = divmod(dividend, divisor)
    if 2 * rest > divisor or (2 * rest == divisor and whole & 1):
        whole += 1
    if whole == 0:
        return 0.0
    if whole.bit_length() + last - 1 > MAX_EXPONENT:
        return math.copysign(math.inf, p)
    return math.copysign(math.ldexp(whole, last), p)
