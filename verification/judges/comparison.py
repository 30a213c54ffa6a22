"""One comparison: what a judge looked at, and what it found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """The finding of one judge about one named array (or failure, alias, mutation) of one case.

    ``against`` is what it was compared with (``frozen``, ``golden``, ``oracle``, a transformation's name).
    ``ulps`` is the largest distance seen, None where there is none to measure. ``detail`` says, for a difference,
    the first index, both values and both bit patterns.
    """

    case: str
    stage: str
    algorithm: str
    judge: str
    against: str
    what: str
    agrees: bool
    ulps: float | None = None
    detail: str = ""


def largest(ulps: Iterable[float | None]) -> float | None:
    """The largest distance; None where nothing was measured."""
    return max((value for value in ulps if value is not None), default=None)
