"""What the rank cases showed: the tables by stage and layout, the bounds, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from verification.explaining.inputs import case_sheets
from verification.ranks.bounds import BOUNDS
from verification.ranks.cases import RankCase
from verification.report import as_json
from verification.report.check_document import document_of
from verification.report.document import Document, Sheet
from verification.report.sheets import formula_sheet, stage_sheet
from verification.report.summary import Report, Tally, tallied


@dataclass(frozen=True)
class LayoutRow(Tally):
    """One line of the table by stage and layout."""

    stage: str
    layout: str


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
        found = tallied(self.comparisons, lambda one: (one.stage, layout_name(one.case)))
        return [LayoutRow(**vars(tally), stage=stage, layout=layout) for (stage, layout), tally in found]


def layout_name(identity: str) -> str:
    """The layout in the id of a rank case."""
    return identity.rpartition("@")[2].partition("+")[0]


def sheets(report: RankReport) -> list[Sheet]:
    """The tables that have something to show, in reading order."""
    return [*_findings_sheets(report), Sheet("run", ("", ""), _facts(report))]


def _findings_sheets(report: RankReport) -> list[Sheet]:
    rows = [((row.stage, row.layout), row) for row in report.by_layout()]
    against = tuple((against, str(n), str(bad)) for _, against, n, bad in report.by_judge())
    reasons = {bound.formula: bound.reason for bound in BOUNDS}
    made = [
        stage_sheet(report, rows, "rank cases", "layout", "largest ulps"),
        Sheet("compared with", ("against", "comparisons", "differences"), against, words=(0,)),
        formula_sheet(report.formulas, "distance to one rank", "not in the bits of one rank", reasons),
    ]
    return [sheet for sheet in made if sheet.rows]


def _facts(report: RankReport) -> tuple[tuple[str, str], ...]:
    return (
        ("worlds started", str(report.worlds)),
        ("how ranks ended", ", ".join(f"{count} {ended}" for ended, count in sorted(report.ended.items()))),
        ("cases a second", f"{report.cases_a_second:.0f}"),
        ("elapsed", f"{report.elapsed:.1f} s"),
    )


def report_as_dict(report: RankReport) -> dict[str, Any]:
    """What the JSON of a check holds, and what only ranks have."""
    return as_json.report_as_dict(
        report,
        layouts=[asdict(row) for row in report.by_layout()],
        ranks=dict(report.ended),
        worlds=report.worlds,
        cases_a_second=round(report.cases_a_second, 2),
    )


def rank_document(report: RankReport, cases: Sequence[RankCase]) -> Document:
    """The report as a document. The evidence is each case's input: to lay more open, its ranks would have to run."""
    return document_of(
        report,
        [case.about for case in cases],
        verb="ranks",
        sheets=_findings_sheets(report),
        facts=(*_facts(report), *report.environment.items()),
        evidence=lambda case: tuple(case_sheets(case)),
        measured="Distances to one rank, by formula",
    )
