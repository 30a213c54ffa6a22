"""Sums of standardised columns as real numbers whose float32 is certain: GDPO, its batch step, exact group scores.

The number of sample i is sum over columns k of w_k (x_ik - mean_k) / (std_k + eps), with the unbiased std. Means and
variances are rationals; only the roots are not. Balls settle nearly every element. Where they do not, the sum is
rewritten as r + sum of q_j sqrt(d_j), with rational r and q_j and with d_j in different square classes of the
rationals. Roots of different square classes are linearly independent over the rationals (Besicovitch 1940), hence:
the sum is rational exactly if every q_j is 0, and then it is an fmpq whose rounding is plain arithmetic; otherwise it
is irrational, no float32 and no midpoint of two, so that doubling the precision must come to an end.
"""

from __future__ import annotations

from collections.abc import Sequence

from flint import arb, ctx, fmpq

from verification.oracle.reals import ZERO, nearest_single

FIRST_PRECISION = 128
LAST_PRECISION = 1 << 20


def standardized_sum(columns: Sequence[Sequence[fmpq]], weights: Sequence[fmpq], eps: fmpq) -> list[arb | fmpq]:
    """One number a sample for columns of equal length: an fmpq, or a ball that rounds to one float32.

    A group of one sample gives 0 (there is no spread to divide by).
    """
    count = len(columns[0])
    merged: dict[fmpq, list[fmpq]] = {}  # variance -> per sample, the weighted deviations over it
    for column, weight in zip(columns, weights, strict=True):
        deviations, variance = deviations_and_variance(column)
        if variance == 0:
            continue  # a flat column: every deviation is 0
        row = merged.setdefault(variance, [ZERO] * count)
        for position, deviation in enumerate(deviations):
            row[position] += weight * deviation
    variances = list(merged)
    numerators = [[merged[variance][position] for variance in variances] for position in range(count)]
    with ctx.workprec(FIRST_PRECISION):
        factors = _inverse_spreads(variances, eps)
        first = [_ball(row, factors) for row in numerators]
        return [
            value if nearest_single(value) is not None else _settle(row, variances, eps)
            for value, row in zip(first, numerators, strict=True)
        ]


def deviations_and_variance(column: Sequence[fmpq]) -> tuple[list[fmpq], fmpq]:
    """x - mean for each x, and the unbiased variance; the variance of a single number is 0."""
    mean = sum(column, ZERO) / len(column)
    deviations = [value - mean for value in column]
    if len(column) == 1:
        return deviations, ZERO
    return deviations, sum((deviation * deviation for deviation in deviations), ZERO) / (len(column) - 1)


def rational_root(square: fmpq) -> fmpq | None:
    """The non-negative square root of a rational where that is rational, else None."""
    p, q = square.p, square.q
    if not (p.is_square() and q.is_square()):
        return None
    return fmpq(p.isqrt(), q.isqrt())


def _inverse_spreads(variances: Sequence[fmpq], eps: fmpq) -> list[arb]:
    return [1 / (arb(variance).sqrt() + arb(eps)) for variance in variances]


def _ball(numerators: Sequence[fmpq], factors: Sequence[arb]) -> arb:
    return sum((arb(top) * factor for top, factor in zip(numerators, factors, strict=True) if top != 0), arb(0))


def _settle(numerators: Sequence[fmpq], variances: Sequence[fmpq], eps: fmpq) -> arb | fmpq:
    """The rational itself where the sum is one; else a ball narrow enough to round."""
    constant, classes = _by_square_class(numerators, variances, eps)
    if all(coefficient == 0 for coefficient, _ in classes):
        return constant
    precision = 2 * FIRST_PRECISION
    while precision <= LAST_PRECISION:
        with ctx.workprec(precision):
            value = arb(constant)
            for coefficient, square in classes:
                value += arb(coefficient) * arb(square).sqrt()
            if nearest_single(value) is not None:
                return value
        precision *= 2
    raise ArithmeticError(f"no float32 decided at {LAST_PRECISION} bits for {numerators} over {variances}")


def _by_square_class(
    numerators: Sequence[fmpq], variances: Sequence[fmpq], eps: fmpq
) -> tuple[fmpq, list[tuple[fmpq, fmpq]]]:
    """The sum of c / (sqrt(v) + eps) as a rational, and (q_j, d_j) for the roots of each square class."""
    constant = ZERO
    classes: list[tuple[fmpq, fmpq]] = []
    for top, variance in zip(numerators, variances, strict=True):
        if top == 0:
            continue
        root = rational_root(variance)
        if root is not None:
            constant += top / (root + eps)
            continue
        # c / (sqrt(v) + eps) = c (sqrt(v) - eps) / (v - eps^2); v is no square, so v differs from eps^2.
        coefficient = top / (variance - eps * eps)
        constant -= coefficient * eps
        for index, (total, square) in enumerate(classes):
            quotient = rational_root(variance / square)
            if quotient is not None:  # sqrt(v) = quotient * sqrt(square)
                classes[index] = (total + coefficient * quotient, square)
                break
        else:
            classes.append((coefficient, variance))
    return constant, classes
