"""The float32 nearest an exact number: rationals by integer division, sums of quotients with square roots by balls."""

from __future__ import annotations

import math
from collections.abc import Iterable

from flint import arb, ctx, fmpq

_FIRST_PRECISION = 128


def rational(value: float) -> fmpq:
    """A finite double (or an int) as the rational number that it is."""
    return fmpq(*value.as_integer_ratio())


def round_rational(value: fmpq) -> float:
    """``value`` rounded to float32, ties to even; zero is positive, beyond the largest float32 it is an infinity."""
    numerator, denominator = int(value.p), int(value.q)
    if numerator == 0:
        return 0.0
    magnitude, sign = abs(numerator), 1 if numerator > 0 else -1
    exponent = magnitude.bit_length() - denominator.bit_length()  # 2**exponent <= |value| * 2
    if (magnitude << max(-exponent, 0)) < (denominator << max(exponent, 0)):
        exponent -= 1
    quantum = max(exponent - 23, -149)  # the weight of the last bit of a float32 of this size, subnormals included
    count, rest = divmod(magnitude << max(-quantum, 0), denominator << max(quantum, 0))
    half = denominator << max(quantum, 0)
    if 2 * rest > half or (2 * rest == half and count & 1):
        count += 1
    if count == 0:
        return 0.0
    if count.bit_length() + quantum > 128:
        return sign * math.inf
    return sign * math.ldexp(count, quantum)


def square_root(value: fmpq) -> fmpq | None:
    """The square root of a rational of 0 or more where it is rational, else None."""
    numerator, denominator = int(value.p), int(value.q)
    root, base = math.isqrt(numerator), math.isqrt(denominator)
    return fmpq(root, base) if root * root == numerator and base * base == denominator else None


def round_standardized(terms: Iterable[tuple[fmpq, fmpq]], epsilon: fmpq) -> float:
    """The float32 nearest the sum of ``c / (sqrt(v) + epsilon)`` over terms ``(c, v)``, ``v >= 0``, ``epsilon > 0``.

    Whether the sum is rational is decided exactly, so that every input ends. With ``sqrt(v)`` irrational,
    ``c / (sqrt(v) + e) = c (sqrt(v) - e) / (v - e^2)``: a rational plus a rational multiple of a square root. Square
    roots of rationals whose quotients are no squares are linearly independent over the rationals (Besicovitch 1940).
    So the sum is rational exactly when the coefficient of each class of roots is 0, and is then rounded as a rational;
    an irrational number lies on no boundary between float32 roundings, so that a ball of rising precision settles it.
    """
    by_variance: dict[fmpq, fmpq] = {}
    for coefficient, variance in terms:
        by_variance[variance] = by_variance.get(variance, fmpq(0)) + coefficient
    rational_part = fmpq(0)
    irrational: list[tuple[fmpq, fmpq]] = []
    root_classes: dict[fmpq, fmpq] = {}  # representative v -> coefficient of sqrt(v)
    for variance, coefficient in by_variance.items():
        if coefficient == 0:
            continue
        root = square_root(variance)
        if root is not None:
            rational_part += coefficient / (root + epsilon)
            continue
        irrational.append((coefficient, variance))
        slope = coefficient / (variance - epsilon * epsilon)
        for representative in root_classes:
            ratio = square_root(variance / representative)
            if ratio is not None:
                root_classes[representative] += slope * ratio
                break
        else:
            root_classes[variance] = slope
    if not any(root_classes.values()):
        for coefficient, variance in irrational:
            rational_part -= coefficient * epsilon / (variance - epsilon * epsilon)
        return round_rational(rational_part)
    return _round_by_balls(rational_part, irrational, epsilon)


def _round_by_balls(rational_part: fmpq, irrational: list[tuple[fmpq, fmpq]], epsilon: fmpq) -> float:
    precision = _FIRST_PRECISION
    while True:
        with ctx.workprec(precision):
            ball = arb(rational_part)
            for coefficient, variance in irrational:
                ball += arb(coefficient) / (arb(variance).sqrt() + arb(epsilon))
            low, high = round_rational(_dyadic(ball.lower())), round_rational(_dyadic(ball.upper()))
        if low == high:
            return low
        precision *= 2


def _dyadic(point: arb) -> fmpq:
    mantissa, exponent = point.man_exp()
    power = int(exponent)
    return fmpq(int(mantissa) << max(power, 0), 1 << max(-power, 0))
