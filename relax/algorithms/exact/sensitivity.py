"""Whether a group's scores say more than the rounding of its rewards to doubles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from flint import arb, ctx

from relax.algorithms.exact.gdpo import EPSILON

_PRECISION = 128


def within_input_rounding(group: np.ndarray, scores: np.ndarray, weights: Sequence[float]) -> bool:
    """Whether all of a group's combined scores could be 0 were each reward off by half an ulp of its double.

    ``group``: finite float64 ``[G, K]``, ``G`` at least 2; ``scores``: its float32 ``[G]``. False for a group whose
    scores are all 0 as they stand: it has no signal to doubt. Evaluated with balls: True where each score's contains 0.
    """
    if not scores.any() or np.abs(scores).max() > _largest_effect(group, weights):
        return False
    with ctx.workprec(_PRECISION):
        balls = [arb(0)] * len(group)
        for column, weight in zip(group.T, weights, strict=True):
            wide = [arb(value, 0.5 * float(np.spacing(abs(value)))) for value in column.tolist()]
            mean = sum(wide, arb(0)) / len(wide)
            deviations = [value - mean for value in wide]
            variance = sum((deviation**2 for deviation in deviations), arb(0)) / (len(wide) - 1)
            denominator = variance.nonnegative_part().sqrt() + arb(EPSILON)
            shares = [arb(weight) * deviation / denominator for deviation in deviations]
            balls = [ball + share for ball, share in zip(balls, shares, strict=True)]
        return all(0 in ball for ball in balls)


def _largest_effect(group: np.ndarray, weights: Sequence[float]) -> float:
    """More than any score can move: a cheap way to answer for all but the rarest groups."""
    ulps = np.spacing(np.abs(group).max(axis=0))  # [K]
    return float((np.abs(weights) * ulps * (8 * len(group)) / EPSILON).sum())
