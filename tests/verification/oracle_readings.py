"""Inputs for the oracle's tests, and its exact values as floats."""

from __future__ import annotations

import numpy as np
from flint import arb

from verification.cases.case import Case
from verification.oracle import Exact
from verification.oracle.reals import nearest_single


def floats_of(exact: Exact) -> list[float | None]:
    """The float32 nearest each value."""
    return [None if value is None else nearest_single(value) for value in exact.values]


def doubles_of(exact: Exact) -> list[float]:
    """The double nearest each value, for comparison with formulas computed in float64."""
    return [float(value) if isinstance(value, arb) else float(arb(value)) for value in exact.values]


def rewards_case(algorithm: str, rewards: list, *, size: int | None = None, **options) -> Case:
    """One or more groups of ``size`` rewards in order."""
    size = size or len(rewards)
    samples = [{"index": i, "group_index": i // size, "reward": reward} for i, reward in enumerate(rewards)]
    return Case(
        "oracle/rewards", "reward.normalize", algorithm, {"samples": samples}, {"n_samples_per_prompt": size, **options}
    )


def tokens(*rows: list[float], dtype=np.float32) -> list[np.ndarray]:
    """One array a response."""
    return [np.array(row, dtype=dtype) for row in rows]
