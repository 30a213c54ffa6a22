"""What the rank cases showed: the tables by stage and layout, the bounds, and the verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from verification.judges.comparison import Comparison
from verification.ranks.bounds import BOUNDS
from verification.report.sheets import Sheet, ulps
from verification.report.summary import Report


@dataclass(frozen=True)
class LayoutRow:
    """One line of the table by stage and layout."""

    stage: str
    layout: str
    cases: int
    comparisons: int
    differences: int
    ulps: float


@dataclass(frozen=True)
class RankReport(Report):
    """A report whose cases are rank cases. ``ended`` counts ranks by how they ended; ``worlds`` were started."""

    worlds: int = 0
    ended: Mapping[str, int] = field(default_factory=dict)

    @property
    def cases_a_second(self) -> float:
        return self.cases / self.elapsed if self.elapsed else 0.0

    def by_layout(self) -> list[LayoutRow]:
        """By stage and layout, sorted."""
        groups: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
        for one in self.comparisons:
            groups[one.stage, layout_name(one.case)].append(one)
        return [
            LayoutRow(
                stage,
                layout,
                len({one.case for one in found}),
                len(found),
                sum(not one.agrees for one in found),
                max((one.ulps for one in found if one.ulps is not None), default=0.0),
            )
            for (stage, layout), found in sorted(groups.items())
        ]


def layout_name(identity: str) -> str:
    """The layout in the id of a rank case."""
    return identity.rpartition("@")[2].partition("+")[0]


def sheets(report: RankReport) -> list[Sheet]:
    """The tables that have something to show, in reading order."""
    made = [_layouts(report), _against(report), _bounds(report), _facts(report)]
    return [sheet for sheet in made if sheet.rows]


def _layouts(report: RankReport) -> Sheet:
    rows = [
        (row.stage, row.layout, str(row.cases), str(row.comparisons), str(row.differences), ulps(row.ulps))
        for row in report.by_layout()
    ]
    total = ("total", "", str(report.cases), str(len(report.comparisons)), str(len(report.differences)), "")
    columns = ("stage", "layout", "cases", "comparisons", "differences", "largest ulps")
    return Sheet("rank cases", columns, (*rows, total))


def _against(report: RankReport) -> Sheet:
    rows = tuple((against, str(n), str(bad)) for _, against, n, bad in report.by_judge())
    return Sheet("compared with", ("against", "comparisons", "differences"), rows, words=(0,))


def _bounds(report: RankReport) -> Sheet:
    reasons = {bound.formula: bound.reason for bound in BOUNDS}
    rows = tuple(
        (
            one.formula,
            str(one.comparisons),
            str(one.elements),
            str(one.unjudged),
            ulps(one.ulps),
            ulps(one.bound),
            reasons[one.formula],
            one.case,
        )
        for one in report.formulas
    )
    columns = (
        "not in the bits of one rank",
        "comparisons",
        "elements",
        "not judged",
        "largest ulps",
        "bound",
        "reason",
        "seen at",
    )
    return Sheet("distance to one rank", columns, rows, words=(0, 6, 7))


def _facts(report: RankReport) -> Sheet:
    ranks = ", ".join(f"{count} {ended}" for ended, count in sorted(report.ended.items()))
    return Sheet(
        "run",
        ("", ""),
        (
            ("worlds started", str(report.worlds)),
            ("how ranks ended", ranks),
            ("cases a second", f"{report.cases_a_second:.0f}"),
            ("elapsed", f"{report.elapsed:.1f} s"),
        ),
    )


def report_as_dict(report: RankReport) -> dict[str, Any]:
    """What the JSON holds: agreeing comparisons as counts, everything else in full."""
    return {
        "verdict": report.verdict,
        "no_verdict": report.no_verdict or None,
        "exit_code": report.exit_code,
        "cases": report.cases,
        "comparisons": len(report.comparisons),
        "layouts": [asdict(row) for row in report.by_layout()],
        "judges": [
            {"judge": judge, "against": against, "comparisons": count, "differences": differing}
            for judge, against, count, differing in report.by_judge()
        ],
        "bounds": [asdict(formula) for formula in report.formulas],
        "ranks": dict(report.ended),
        "worlds": report.worlds,
        "cases_a_second": round(report.cases_a_second, 2),
        "elapsed_s": round(report.elapsed, 3),
        "differences": [asdict(one) for one in report.differences],
        "problems": [asdict(one) for one in report.problems],
    }
