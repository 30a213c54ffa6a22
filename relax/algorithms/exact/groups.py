"""Correctly rounded statistics of prompt groups: whole arrays in float64 with a proven bound, the rest exactly.

The value of sample i is ``sum over k of w_k (x_ik - mean_k) / (std_k + epsilon)``, or without the division where
``epsilon`` is None. Means and standard deviations (n-1) are those of the sample's group, and inputs, weights and
epsilon count as the exact numbers that they are. GDPO's steps 1 and 2 (arXiv 2601.05242, equations 4 and 7), the
exact form of group normalization and the leave-one-out baseline are this one expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from flint import fmpq

from relax.algorithms.exact import tally
from relax.algorithms.exact.nearest import rational, round_rational, round_standardized
from relax.algorithms.exact.subnormals import subnormals_kept

_U = 2.0**-53  # half an ulp of 1 in float64: the relative error of one rounded operation
_REMEMBERED = 128  # numbers: the largest group whose exact result is remembered, so that 4,096 of them stay small
_BLOCK = 16384  # numbers of one component worked on at a time, so that the intermediates stay in cache


def standardize_groups(x: np.ndarray, weights: Sequence[float | Fraction], epsilon: float | None) -> np.ndarray:
    """The float32 nearest each value, ties to even, zero positive; an infinity where float32 overflows.

    ``x``: finite float64 ``[P, G, K]`` (groups, samples, components) of magnitude at most the largest float32, ``G`` at
    least 2 (``G`` of 1 only without division: the value is 0). ``weights``: K finite numbers. Returns float32
    ``[P, G]``.
    Raises ValueError for groups of one sample where there is a division: they have no standard deviation.
    """
    n_groups, group_size, n_components = x.shape
    if epsilon is not None and n_groups and group_size < 2:
        raise ValueError(
            "a prompt group of one sample has no standard deviation: set --n-samples-per-prompt to 2 or more"
        )
    out = np.empty((n_groups, group_size), dtype=np.float32)
    exact_weights = tuple(fmpq(*weight.as_integer_ratio()) for weight in weights)
    exact_epsilon = None if epsilon is None else rational(epsilon)
    exact_group = _exact_small_group if group_size * n_components <= _REMEMBERED else _exact_group
    fallback = 0
    step = max(1, _BLOCK // group_size)
    with subnormals_kept():
        for start in range(0, n_groups, step):
            block = x[start : start + step]
            values, settled = _settle(block, np.array([float(weight) for weight in weights]), epsilon)
            for p in np.flatnonzero(~settled.all(axis=1)):
                group = np.ascontiguousarray(block[p])
                values[p] = exact_group(group.tobytes(), group.shape, exact_weights, exact_epsilon)
                fallback += int(np.count_nonzero(~settled[p]))
            out[start : start + step] = values
    tally.count("groups", out.size, fallback)
    return out


def _settle(x: np.ndarray, w: np.ndarray, epsilon: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Float32 values ``[P, G]`` and whether each is proven to be the nearest one.

    The bound, with u = 2^-53 and first-order terms collected (the factor at the end covers the higher orders; the
    additions of 2^-1040 and 2^-1060 cover underflow). It holds for every order of summation and with fused operations.
      mean:     E_m = (G + 1) u max|x|
      variance: E_v = ((G + 6) u V + G E_m^2) / (G - 1), V the sum of squares: an error of the mean enters squared,
                since the true deviations sum to 0
      std:      E_s = E_v / s + u s;  denominator: E_D = E_s + u D, which must be small against D
      value:    sum over k of |w_k| / D_k * (E_m + max|x - mean| * (E_D / D + (K + 8) u))
    """
    _, group_size, n_components = x.shape
    with np.errstate(all="ignore"):  # an overflow or a nan leaves the value unsettled
        columns = np.ascontiguousarray(x.transpose(1, 2, 0))  # [G, K, P]
        high, low = columns.max(axis=0), columns.min(axis=0)  # [K, P]
        deviations = columns - columns.sum(axis=0) / group_size  # [G, K, P]
        spread = high - low
        mean_error = (group_size + 1) * _U * np.maximum(high, -low) + 2.0**-1060
        if epsilon is None:
            factor = np.broadcast_to(w[:, None], spread.shape)  # [K, P]
            relative = np.zeros_like(spread)
        else:
            squares = np.einsum("gkp,gkp->kp", deviations, deviations)
            std = np.sqrt(squares / (group_size - 1))
            variance_error = ((group_size + 6) * _U * squares + 1.01 * group_size * mean_error**2) / (group_size - 1)
            denominator = std + epsilon
            relative = ((variance_error + 2.0**-1040) / std + _U * std) / denominator + _U
            relative[~(relative < 2.0**-7)] = np.inf
            factor = w[:, None] / denominator
        counted = (spread > 0) & (w[:, None] != 0)  # a flat component contributes exactly 0
        factor = np.where(counted, factor, 0.0)
        bound = np.abs(factor) * (1.01 * mean_error + 1.01 * spread * (1.04 * relative + (n_components + 8) * _U))
        bound = 1.01 * np.where(counted, bound, 0.0).sum(axis=0)  # [P]
        bound += np.where(counted.any(axis=0), 2.0**-1060, 0.0)
        if np.any((w != 0) & ((np.abs(w) < 2.0**-500) | (np.abs(w) > 2.0**500))):
            bound[:] = np.inf  # products with such weights could leave float64's range
        values = np.einsum("gkp,kp->gp", deviations, factor)  # [G, P]
        low32, high32 = (values - bound).astype(np.float32), (values + bound).astype(np.float32)
        return (low32 + np.float32(0)).T, (low32 == high32).T  # adding 0 makes a negative zero positive


def _exact_group(
    data: bytes, shape: tuple[int, int], weights: tuple[fmpq, ...], epsilon: fmpq | None
) -> tuple[float, ...]:
    """One group ``[G, K]`` by rationals and balls."""
    group = np.frombuffer(data).reshape(shape)
    terms: list[list[tuple[fmpq, fmpq]]] = [[] for _ in group]
    for k, weight in enumerate(weights):
        column = [rational(value) for value in group[:, k].tolist()]
        mean = sum(column, fmpq(0)) / len(column)
        deviations = [value - mean for value in column]
        variance = fmpq(0)
        if epsilon is not None:
            variance = sum((deviation * deviation for deviation in deviations), fmpq(0)) / (len(column) - 1)
        for row, deviation in zip(terms, deviations, strict=True):
            row.append((weight * deviation, variance))
    if epsilon is None:
        return tuple(round_rational(sum((term for term, _ in row), fmpq(0))) for row in terms)
    return tuple(round_standardized(row, epsilon) for row in terms)


# Rewards are often few-valued, so that the same undecided groups come again and again.
_exact_small_group = lru_cache(maxsize=4096)(_exact_group)
