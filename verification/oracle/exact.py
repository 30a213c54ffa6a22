"""What the oracle says about one array: the real number of each element, and how far a float may be from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from flint import arb, fmpq

from verification.oracle.bounds import BOUNDS

Real = arb | fmpq


@dataclass(frozen=True)
class Exact:
    """The exact array of one outcome name.

    ``values``: flat, row-major; None where the formula has no real value that float32 could be held to (a non-finite
    input, an intermediate beyond the format, a variance lost to conditioning): such elements are counted, not judged.
    ``scales``: flat; the magnitude in whose ulps the error of that element is stated; infinity, or anything beyond
    the format, leaves the element unjudged as well, unless the result is correctly rounded.
    ``dtype``: of the outcome; None where decisions may come as bool or as 0.0 and 1.0.
    ``grid``: the dtype whose ulps count (Python floats that hold float32 results have dtype float64, grid float32).
    ``bound_ulps``, ``reason``: from the one table in ``bounds.py``, under ``formula``.
    ``correctly_rounded``: the element must be the grid's nearest number, ties to even.
    ``positive_zero``: a zero must be +0.
    ``alternatives``: by flat index, further values that count as well, where a branch (clip, mask, bound) lies
    within the rounding of its own inputs and either side is a faithful answer.
    """

    values: tuple[Real | None, ...]
    scales: tuple[float, ...]
    shape: tuple[int, ...]
    formula: str
    dtype: torch.dtype | None = torch.float32
    grid: torch.dtype = torch.float32
    correctly_rounded: bool = False
    positive_zero: bool = False
    alternatives: Mapping[int, tuple[Real, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.formula not in BOUNDS:
            raise ValueError(f"formula {self.formula!r} has no entry in verification/oracle/bounds.py")
        if len(self.values) != len(self.scales):
            raise ValueError(f"{self.formula}: {len(self.values)} values, {len(self.scales)} scales")

    @property
    def bound_ulps(self) -> float:
        """The largest error that the formula is allowed, in ulps of the scale."""
        return BOUNDS[self.formula].ulps

    @property
    def reason(self) -> str:
        """Why the bound is what it is."""
        return BOUNDS[self.formula].reason

    def judged(self, index: int) -> bool:
        """Whether an element is held to a value: there is one, and the scale that states its error is in the format."""
        if self.values[index] is None:
            return False
        return self.correctly_rounded or self.scales[index] <= torch.finfo(self.grid).max

    @property
    def unjudged(self) -> int:
        """How many elements are not judged."""
        return sum(not self.judged(index) for index in range(len(self.values)))

    @property
    def undecided(self) -> int:
        """How many elements lie so close to a branch that more than one value counts."""
        return len(self.alternatives)
