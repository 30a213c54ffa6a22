"""Correctly rounded whitening of optimizer batches, one vote a sample (arXiv 2601.05242, equation 6)."""

from __future__ import annotations

import numpy as np
from flint import fmpq

from relax.algorithms.exact import tally
from relax.algorithms.exact.nearest import rational, round_standardized
from relax.algorithms.exact.subnormals import subnormals_kept

_U = 2.0**-53
_TOO_MANY = 2**26


def whiten_batches(values: np.ndarray, epsilon: float, own: slice = slice(None)) -> np.ndarray:
    """The float32 nearest ``(x_i - mean) / (std + epsilon)`` within each row, ties to even, zero positive.

    ``values``: finite float32 ``[B, n]``, a batch a row, exact as they are; std is unbiased (n-1). A batch of one
    sample gives 0, an empty one is empty. Returns float32 ``[B, m]`` for the samples of ``own``, where not all are this
    rank's to give. Raises ValueError for 2^26 samples or more in a batch, where the bound is not proven.
    """
    n, mine = values.shape[1], values[:, own]
    require_proven(n)
    out, undecided = np.zeros(mine.shape, dtype=np.float32), np.zeros(mine.shape, dtype=bool)
    with subnormals_kept():
        uneven = values.min(axis=1) != values.max(axis=1) if n else np.zeros(len(values), dtype=bool)
        if uneven.any():
            out[uneven], undecided[uneven] = _settle(values[uneven], epsilon, own)
        for row in np.flatnonzero(undecided.any(axis=1)):
            mean, variance = _exact_moments(values[row])
            out[row, undecided[row]] = [
                round_standardized([(rational(value) - mean, variance)], rational(epsilon))
                for value in mine[row, undecided[row]].tolist()
            ]
    tally.count("batch", mine.size, int(undecided.sum()))
    return out


def require_proven(samples: int) -> None:
    """Raises ValueError for a batch of so many samples that the bound of `whiten_batches` is not proven."""
    if samples >= _TOO_MANY:
        raise ValueError(
            f"an optimizer batch of {samples} samples is beyond the {_TOO_MANY - 1} that can be whitened exactly"
        )


def _settle(values: np.ndarray, epsilon: float, own: slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
    """Float32 values of the samples of ``own`` in each row, and where they are not proven to be the nearest ones.

    With u = 2^-53 and L the depth of the pairwise sum (the additions of 2^-1040 and 2^-1060 cover underflow):
      mean:      held as two doubles, E_m (see ``_mean``); a deviation is then off by E_m + 2 u |x - mean|
      variance:  E_v = ((L + 8) u V + 2 sqrt(n V) E_m + n E_m^2) / (n - 1), V the sum of squares (Cauchy-Schwarz)
      std:       E_s = E_v / s + u s;  denominator: E_D = E_s + u D
      value:     E_m / D + |value| * (E_D / D + 7 u)
    One bound for all values of a row comes first, from the largest deviation; what it leaves open is looked at one by
    one.
    """
    n = values.shape[1]
    with np.errstate(all="ignore"):
        x = values.astype(np.float64)  # [B, n]; what belongs to a row is [B, 1]
        high, low, mean_error = _mean(x)
        x -= high
        x -= low
        depth = (n - 1).bit_length()
        squares = _pairwise_sum(x * x)
        std = np.sqrt(squares / (n - 1))
        x = x[:, own]
        shift_error = np.sqrt(n) * mean_error
        variance_error = (depth + 8) * _U * squares + 1.01 * shift_error * (2 * np.sqrt(squares) + shift_error)
        variance_error = variance_error / (n - 1) + 2.0**-1040
        denominator = std + epsilon
        relative = (variance_error / std + _U * std) / denominator + _U
        no_bound = ~(relative < 2.0**-7)
        relative = 1.05 * (relative + 7 * _U)
        absolute = 1.05 * mean_error / denominator + 2.0**-1060
        largest = np.maximum(x.max(axis=1, keepdims=True, initial=0), -x.min(axis=1, keepdims=True, initial=0))
        x = x * (1.0 / denominator)
        bound = absolute + largest / denominator * relative
        low32, high32 = (x - bound).astype(np.float32), (x + bound).astype(np.float32)
        undecided = (low32 != high32) | no_bound
        row, some = np.nonzero(undecided)[0], x[undecided]
        bounds = absolute[row, 0] + np.abs(some) * relative[row, 0]
        low_some, high_some = (some - bounds).astype(np.float32), (some + bounds).astype(np.float32)
        low32[undecided] = low_some
        low32 += np.float32(0)  # makes a negative zero positive
        undecided[undecided] = (low_some != high_some) | no_bound[row, 0]
        return low32, undecided


def _mean(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean of each row of float64 ``x`` as an unevaluated sum of two doubles, and a bound of its error: ``[B, 1]``.

    Each value is split at a power of two so large that the upper parts are multiples of one unit and their sum, below
    2^53 units, is exact in any order (Rump, Ogita, Oishi 2008). The lower parts, at most a unit each, are summed with
    an error of at most (n - 1) u times the sum of their magnitudes. The bound also covers what the first of the two
    subtractions ``(x - high) - low`` rounds away of ``low``. n is below 2^26.
    """
    n = x.shape[1]
    largest = np.maximum(x.max(axis=1, keepdims=True), -x.min(axis=1, keepdims=True))
    shift = np.ldexp(1.0, np.frexp(largest)[1] + n.bit_length())  # at least n max|x|
    upper = (x + shift) - shift
    lower_sum = (x - upper).sum(axis=1, keepdims=True)
    total = upper.sum(axis=1, keepdims=True)
    unit = shift * _U
    high = total / n
    # total - high * n, exactly: high * n has more than 53 bits, so high is split at 26 bits and n is below 2^26
    head = (high + high * 2.0**27) - high * 2.0**27
    rest = (total - head * n) - (high - head) * n
    low = (rest + lower_sum) / n
    error = n * _U * unit + 3 * _U * (abs(rest) + abs(lower_sum) + n * unit) / n + 2 * _U * abs(low) + 2.0**-1060
    return high, low, error


def _pairwise_sum(terms: np.ndarray) -> np.ndarray:
    """The sum of each row by halving, which adds each term at most ceil(log2 n) times; ``terms`` is overwritten."""
    n = terms.shape[1]
    while n > 1:
        half = (n + 1) // 2
        terms[:, : n - half] += terms[:, half:n]
        n = half
    return terms[:, :1]


def _exact_moments(values: np.ndarray) -> tuple[fmpq, fmpq]:
    """Mean and variance (n-1) of float32 values as rationals; exact sums of the mantissas by exponent."""
    n = values.size
    mantissas, exponents = np.frexp(values.astype(np.float64))
    mantissas = np.ldexp(mantissas, 24).astype(np.int64)  # 24 bits, exactly
    powers = exponents.astype(np.int64) - 24
    lowest = int(powers.min())
    places = powers - lowest
    squares = mantissas * mantissas  # 48 bits, summed in two halves so that no sum leaves 53 bits
    total = _weighted_sum(places, mantissas)
    total_squares = (_weighted_sum(2 * places, squares >> 24) << 24) + _weighted_sum(2 * places, squares & (2**24 - 1))
    unit = fmpq(1 << max(lowest, 0), 1 << max(-lowest, 0))
    variance = fmpq(n * total_squares - total * total, n * (n - 1))
    return unit * fmpq(total, n), unit * unit * variance


def _weighted_sum(places: np.ndarray, counts: np.ndarray) -> int:
    """The sum of ``counts * 2**places``; the sum at each place stays below 2^53 for up to 2^28 counts of 24 bits."""
    sums = np.bincount(places, weights=counts.astype(np.float64))
    return sum(int(value) << place for place, value in enumerate(sums.tolist()) if value)
