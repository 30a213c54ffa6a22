"""Distances counted into bins: between bits by judge, and to the exact value by formula."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from verification.report.document import Histogram
from verification.report.summary import TENTHS, Report

BITS = "Distances between bits, by judge"
EXACT = "Distances to the exact value, by formula"
FINE, STEP = 10, 10  # bins double up to 2 to the tenth; from there on each takes ten doublings


def histograms(report: Report, measured: str = EXACT) -> tuple[Histogram, ...]:
    """Every comparison that measured a distance, in the bin of its largest one; ``measured`` names the formulas'."""
    return (*_by_judge(report), *_by_formula(report, measured))


def _by_judge(report: Report) -> tuple[Histogram, ...]:
    distances: dict[str, list[float]] = defaultdict(list)
    for one in report.comparisons:
        if one.ulps is not None and one.judge != "rounding":
            title = one.judge if one.judge == "invariance" else f"{one.judge} against {one.against}"
            distances[title].append(one.ulps)
    return by_distance(BITS, "largest distance of an array, in ulps", distances)


def by_distance(chapter: str, axis: str, distances: Mapping[str, Sequence[float]]) -> tuple[Histogram, ...]:
    """One histogram a title, sorted, up to the last bin that any of them needs."""
    counts = {title: Counter(map(_bin, found)) for title, found in sorted(distances.items())}
    needed = max((_BINS.index(name) for found in counts.values() for name in found), default=0)
    bins = _BINS[: needed + 1]
    return tuple(
        Histogram(chapter, title, axis, bins, tuple(found[name] for name in bins)) for title, found in counts.items()
    )


def _bin(ulps: float) -> str:
    if not math.isfinite(ulps):
        return _BINS[-1]
    doublings = math.ceil(ulps).bit_length()
    return _BINS[doublings if doublings <= FINE else FINE + 1 + (doublings - 1 - FINE) // STEP]


_BINS = (
    "0",
    "1",
    *(f"{2 ** (doublings - 1)} to {2**doublings - 1}" for doublings in range(2, FINE + 1)),
    *(f"from 2^{exponent}" for exponent in range(FINE, 70, STEP)),
    "infinity",
)


def _by_formula(report: Report, chapter: str) -> list[Histogram]:
    tenths = [f"to {share * 100 // TENTHS} %" for share in range(1, TENTHS + 1)]
    return [
        Histogram(
            chapter, one.formula, f"share of the bound of {one.bound:g} ulps", ("0", *tenths, "beyond"), one.shares
        )
        for one in report.formulas
    ]
