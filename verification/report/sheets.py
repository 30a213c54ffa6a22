"""The tables of a report, as text cells: what both the terminal and a file show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verification.report.summary import Report


@dataclass(frozen=True)
class Sheet:
    """One table. ``words`` are the columns that hold words and are set flush left; the rest are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[int, ...] = (0, 1)


def sheets(report: Report) -> list[Sheet]:
    """The tables that have something to show, in reading order."""
    made = [_stages(report), _judges(report), _formulas(report), _weaknesses(report), _facts(report)]
    return [sheet for sheet in made if sheet.rows]


def _stages(report: Report) -> Sheet:
    rows = report.rows()
    cells = [
        (row.stage, row.algorithm, str(row.cases), str(row.comparisons), str(row.differences), ulps(row.ulps))
        for row in rows
    ]
    comparisons, differences = len(report.comparisons), len(report.differences)
    largest = max((row.ulps for row in rows if row.ulps is not None), default=None)
    total = ("total", "", str(report.cases), str(comparisons), str(differences), ulps(largest))
    columns = ("stage", "algorithm", "cases", "comparisons", "differences", "largest ulps in bits")
    return Sheet("stages", columns, (*cells, total))


def _judges(report: Report) -> Sheet:
    rows = tuple((judge, against, str(n), str(bad)) for judge, against, n, bad in report.by_judge())
    return Sheet("judges", ("judge", "against", "comparisons", "differences"), rows)


def _formulas(report: Report) -> Sheet:
    rows = tuple(
        (
            one.formula,
            str(one.comparisons),
            str(one.elements),
            str(one.unjudged),
            ulps(one.ulps),
            ulps(one.bound),
            one.case,
        )
        for one in report.formulas
    )
    columns = ("formula", "comparisons", "elements", "not judged", "largest ulps", "bound", "seen at")
    return Sheet("distance to the exact value", columns, rows, words=(0, 6))


def _weaknesses(report: Report) -> Sheet:
    rows = tuple((one.what, one.given, one.exact, one.case) for one in report.weaknesses)
    columns = ("what the baseline loses, kept for its bits", "given", "exact", "seen at")
    return Sheet("known weaknesses", columns, rows, words=(0, 2, 3))


def _facts(report: Report) -> Sheet:
    goldens = ", ".join(f"{count} {name}" for name, count in sorted(report.goldens.items())) or "none asked for"
    rows = [("goldens", goldens)]
    if report.absent:
        rows.append(("not there", ", ".join(f"{name}: {count} cases" for name, count in sorted(report.absent.items()))))
    rows += [("exact engine", line) for line in fallback_lines(report.counters)]
    rows += [(name, value) for name, value in report.environment.items()]
    rows.append(("elapsed", f"{report.elapsed:.1f} s"))
    return Sheet("run", ("", ""), tuple(rows))


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
