"""Reward post-processing functions of one's own, which cases name by import path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def doubled(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Raw rewards as they are, training rewards doubled: the result is to be passed on untouched."""
    raw = [float(sample.reward) for sample in samples]
    return raw, [2.0 * reward for reward in raw]


def ranked(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Training rewards are ranks over all samples, whatever group they belong to; 0.1 is kept as a double."""
    raw = [float(sample.reward) for sample in samples]
    order = sorted(raw)
    return raw, [order.index(reward) + 0.1 for reward in raw]
