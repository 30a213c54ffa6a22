"""A differing case laid open: its input, and what both sides and exact arithmetic make of it, in decimal and bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from verification.cases.case import Case
from verification.diff.findings import A, B, CaseDiff, Diff, GroupDiff, Shrunk
from verification.diff.shrink import size
from verification.diff.ways import NUMBERS
from verification.explaining.evidence import laid_open
from verification.explaining.explanation import Side
from verification.explaining.inputs import case_sheets
from verification.judges.ulps import ulp_distance
from verification.report.document import Sheet
from verification.report.sheets import ulps


def evidence(found: CaseDiff) -> tuple[Sheet, ...]:
    """Options, inputs, outcomes, and every array of A beside that of B."""
    return laid_open(found.case, Side(A, found.a), Side(B, found.b))


@dataclass(frozen=True)
class Smallest:
    """The smallest input of one stage, and the algorithms that it is the smallest of."""

    stage: str
    algorithms: tuple[str, ...]
    shrunk: Shrunk

    @property
    def told(self) -> str:
        """How small it is, what differs on it and how far, and where it comes from."""
        shrunk, of_origin = self.shrunk, size(self.shrunk.origin)
        way = shrunk.way.what if shrunk.way.how in (NUMBERS, "") else f"{shrunk.way.what} ({shrunk.way.how})"
        distance = "" if shrunk.found.ulps is None else f" by {ulps(shrunk.found.ulps)} ulps{_narrow(shrunk.found)}"
        here = _counted(shrunk.found.case, size(shrunk.found.case))
        origin = f"shrunk from {shrunk.origin.id} ({_counted(shrunk.origin, of_origin)})"
        return f"{self.stage} ({', '.join(self.algorithms)}): {way} differs{distance} on {here}, {origin}"


def smallest(diff: Diff) -> Iterator[Smallest]:
    """The smallest input of each stage and algorithm; those that differ in nothing but the algorithm as one."""
    shared: dict[str, list[GroupDiff]] = {}
    for group in diff.groups:
        if group.smallest is not None:
            shared.setdefault(_contents(group.smallest), []).append(group)
    for groups in shared.values():
        assert groups[0].smallest is not None
        yield Smallest(groups[0].stage, tuple(one.algorithm for one in groups), groups[0].smallest)


def _contents(shrunk: Shrunk) -> str:
    """All that is shown of a shrunk input, but for the algorithm and the case that it comes from."""
    _, options, inputs = case_sheets(shrunk.found.case)
    findings = [(one.what, one.detail) for one in shrunk.found.comparisons]
    return repr((shrunk.found.case.stage, shrunk.way, options.rows, inputs.rows, findings))


def _narrow(found: CaseDiff) -> str:
    """The distance in float32 too, where doubles hold nothing but float32 values."""
    apart = []
    for one in found.comparisons:
        a, b = found.a.arrays.get(one.what), found.b.arrays.get(one.what)
        if one.ulps is None or a is None or b is None or not (_is_float32(a) and _is_float32(b)):
            return ""
        apart.append(float(ulp_distance(a.float(), b.float()).max()))
    return f" of float64, {ulps(max(apart))} of float32" if apart else ""


def _is_float32(tensor: torch.Tensor) -> bool:
    return tensor.dtype == torch.float64 and torch.equal(tensor.float().double(), tensor)


def _counted(case: Case, counts: Sequence[int]) -> str:
    """``2 samples with 4 numbers``."""
    words = "argv" in case.inputs or not case.inputs
    unit = ("word" if case.inputs else "option") if words else "sample" if "samples" in case.inputs else "response"
    shown = [
        f"{count} {name}" + ("" if count == 1 else "s") for count, name in zip(counts, (unit, "number"), strict=True)
    ]
    return shown[0] if words else " with ".join(shown)
