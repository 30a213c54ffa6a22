"""Columns of rewards with a controlled structure, for a group or a batch of ``n`` samples.

Every kind is a function of a stream and a count; the values are doubles, as a reward function would give them.
"""

from __future__ import annotations

from collections.abc import Callable

from verification.cases.integers import Integers

FLOAT32_MAX = (2.0 - 2.0**-23) * 2.0**127
FLOAT32_TINY = 2.0**-149  # the smallest subnormal

Column = Callable[[Integers, int], list[float]]


def binary(stream: Integers, n: int) -> list[float]:
    """0 or 1; the first two differ, so that the column is never flat by chance."""
    return ([0.0, 1.0] + [float(stream.below(2)) for _ in range(n)])[:n]


def halves(stream: Integers, n: int) -> list[float]:
    """0, 0.5 or 1."""
    return ([0.5, 1.0] + [stream.below(3) / 2 for _ in range(n)])[:n]


def tenths(stream: Integers, n: int) -> list[float]:
    """k / 10: doubles that no binary fraction equals."""
    return ([0.1, 0.7] + [stream.below(11) / 10 for _ in range(n)])[:n]


def scores(stream: Integers, n: int) -> list[float]:
    """Values in [-3, 3] with 48 bits behind the point: doubles that a float32 rounds."""
    return stream.quotients(n, -3 << 48, 3 << 48, 48)


def lengths(stream: Integers, n: int) -> list[float]:
    """Whole numbers of tokens, 1 to 8192."""
    return [float(stream.between(1, 8192)) for _ in range(n)]


def offset(stream: Integers, n: int) -> list[float]:
    """A spread of a few units upon 1e9: float32 keeps multiples of 64 there."""
    return [1e9 + stream.below(400) for _ in range(n)]


def tiny_spread(stream: Integers, n: int) -> list[float]:
    """1 plus a few ulps of float32."""
    return ([1.0, 1.0 + 2.0**-23] + [1.0 + stream.below(8) * 2.0**-23 for _ in range(n)])[:n]


def outlier(stream: Integers, n: int) -> list[float]:
    """Small scores, and one sample at a million."""
    values = stream.quotients(n, -1 << 20, 1 << 20, 20)
    values[stream.below(n)] = 1e6
    return values


def flat(stream: Integers, n: int) -> list[float]:
    """One value throughout, which a sum in float32 does not give back."""
    return [stream.choice((0.2, 0.1, 0.7, 1 / 3))] * n


def near_ties(stream: Integers, n: int) -> list[float]:
    """Doubles that differ, most of which share a float32."""
    return ([0.3, 0.3 + 2.0**-50] + [0.3 + stream.below(64) * 2.0**-50 for _ in range(n)])[:n]


def subnormals(stream: Integers, n: int) -> list[float]:
    """Multiples of the smallest float32 subnormal."""
    return [stream.between(-200, 200) * FLOAT32_TINY for _ in range(n)]


def float32_max(stream: Integers, n: int) -> list[float]:
    """The largest float32 of both signs, and zeros."""
    return ([FLOAT32_MAX, 0.0] + [stream.choice((0.0, FLOAT32_MAX, -FLOAT32_MAX)) for _ in range(n)])[:n]


def large_positive(stream: Integers, n: int) -> list[float]:
    """Near the largest float32 and of one sign, so that a deviation from the mean stays in range."""
    return [FLOAT32_MAX / (1 + stream.below(4)) for _ in range(n)]


def anti_ordered(stream: Integers, n: int) -> list[float]:
    """Falling by quarters: the exact opposite of a rising column."""
    return [-(position / 4) for position in range(n)]


def with_nan(stream: Integers, n: int) -> list[float]:
    """Tenths, and one NaN."""
    values = tenths(stream, n)
    values[stream.below(n)] = float("nan")
    return values


def with_infinity(stream: Integers, n: int) -> list[float]:
    """Tenths, and one infinity of either sign."""
    values = tenths(stream, n)
    values[stream.below(n)] = stream.choice((float("inf"), float("-inf")))
    return values


def beyond_float32(stream: Integers, n: int) -> list[float]:
    """Tenths, and one double that a float32 cannot hold."""
    values = tenths(stream, n)
    values[stream.below(n)] = 1e300
    return values


FINITE: dict[str, Column] = {
    "binary": binary,
    "halves": halves,
    "tenths": tenths,
    "scores": scores,
    "lengths": lengths,
    "offset": offset,
    "tiny": tiny_spread,
    "outlier": outlier,
    "flat": flat,
    "nearties": near_ties,
    "subnormal": subnormals,
}

EXTREME: dict[str, Column] = {
    "f32max": float32_max,
    "nan": with_nan,
    "inf": with_infinity,
    "1e300": beyond_float32,
}
