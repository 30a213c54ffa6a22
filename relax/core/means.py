"""Means for those who watch a run: of whatever numbers are there, and never an error."""

from __future__ import annotations

import math
import numbers
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def means(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The mean of each name over the rows that have it as a real number, names in the order in which they first appear.

    NaN where there is no mean in float64: of an int beyond it, and of infinities of both signs. A name that no row has
    as a real number is left out.
    """
    found: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, numbers.Real):
                found.setdefault(str(name), []).append(value)
    return {name: _mean(values) for name, values in found.items()}


def _mean(values: Sequence[Any]) -> float:
    try:
        return statistics.fmean(values)
    except (OverflowError, ValueError):
        return math.nan
