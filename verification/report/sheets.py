"""The tables of a report, as text cells: what both the terminal and a file show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verification.judges.comparison import largest
from verification.report.document import Sheet
from verification.report.summary import Measured, Report, Tally

COUNTS_OF_BAD = ("differences", "differing", "differs", "problems")


def sheets(report: Report) -> list[Sheet]:
    """The tables that have something to show, in reading order."""
    return [sheet for sheet in (*findings_sheets(report), Sheet("run", ("", ""), facts(report))) if sheet.rows]


def findings_sheets(report: Report) -> list[Sheet]:
    """Those on what was found; how and where the run went is left to ``facts``."""
    made = [
        stage_sheet(
            report,
            [((row.stage, row.algorithm), row) for row in report.rows()],
            "stages",
            "algorithm",
            "largest ulps in bits",
        ),
        _judges(report),
        formula_sheet(report.formulas),
        _weaknesses(report),
    ]
    return [sheet for sheet in made if sheet.rows]


def stage_sheet(
    report: Report, rows: Sequence[tuple[tuple[str, str], Tally]], title: str, part: str, distance: str
) -> Sheet:
    """Counts by stage and ``part``, and their total; ``distance`` says what the largest ulps lie between."""
    cells = [
        (*names, str(row.cases), str(row.comparisons), str(row.differences), ulps(row.ulps)) for names, row in rows
    ]
    most = largest(row.ulps for _, row in rows)
    comparisons, differences = len(report.comparisons), len(report.differences)
    total = ("total", "", str(report.cases), str(comparisons), str(differences), ulps(most))
    columns = ("stage", part, "cases", "comparisons", "differences", distance)
    return Sheet(title, columns, (*cells, total))


def _judges(report: Report) -> Sheet:
    rows = tuple((judge, against, str(n), str(bad)) for judge, against, n, bad in report.by_judge())
    return Sheet("judges", ("judge", "against", "comparisons", "differences"), rows)


def formula_sheet(
    formulas: Sequence[Measured],
    title: str = "distance to the exact value",
    first: str = "formula",
    reasons: Mapping[str, str] | None = None,
) -> Sheet:
    """The largest distance of each formula beside its bound, with the bounds' ``reasons`` where they are given."""
    because = [] if reasons is None else ["reason"]
    columns = (first, "comparisons", "elements", "not judged", "largest ulps", "bound", *because, "seen at")
    rows = tuple(
        (
            one.formula,
            str(one.comparisons),
            str(one.elements),
            str(one.unjudged),
            ulps(one.ulps),
            ulps(one.bound),
            *(() if reasons is None else (reasons[one.formula],)),
            one.case,
        )
        for one in formulas
    )
    return Sheet(title, columns, rows, words=(0, *range(6, len(columns))))


def _weaknesses(report: Report) -> Sheet:
    rows = tuple((one.what, one.given, one.exact, one.case) for one in report.weaknesses)
    columns = ("what the baseline loses, kept for its bits", "given", "exact", "seen at")
    return Sheet("known weaknesses", columns, rows, words=(0, 2, 3))


def facts(report: Report) -> tuple[tuple[str, str], ...]:
    """How and where the run went, as names and values."""
    goldens = ", ".join(f"{count} {name}" for name, count in sorted(report.goldens.items())) or "none asked for"
    rows = [("goldens", goldens)]
    if report.absent:
        rows.append(("not there", ", ".join(f"{name}: {count} cases" for name, count in sorted(report.absent.items()))))
    rows += [("exact engine", line) for line in fallback_lines(report.counters)]
    rows += report.environment.items()
    rows.append(("elapsed", f"{report.elapsed:.1f} s"))
    return tuple(rows)


def fallback_lines(counters: Mapping[str, int]) -> list[str]:
    """``groups: 12 of 2400 outputs by exact arithmetic (0.50 %)``, one line a statistic."""
    lines = []
    for name in sorted({key.rpartition(" ")[0] for key in counters}):
        outputs, fallback = counters.get(f"{name} outputs", 0), counters.get(f"{name} fallback", 0)
        if outputs:
            share = 100 * fallback / outputs
            lines.append(f"{name}: {fallback} of {outputs} outputs by exact arithmetic ({share:.2f} %)")
    return lines


def ulps(value: float | None) -> str:
    """A distance with as many digits as it deserves."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value < 1e6 and value == int(value) else f"{value:.3g}"


def is_bad(sheet: Sheet, row: Sequence[str]) -> bool:
    """Whether a line of a table counts something that differs."""
    return any(
        name in COUNTS_OF_BAD and cell not in ("", "0", "-") for name, cell in zip(sheet.columns, row, strict=True)
    )
