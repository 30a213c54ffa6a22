"""The report for programs: one JSON object with tallies, every difference and every problem."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from verification.report.summary import Report


def as_json(report: Report) -> str:
    """The report as JSON text."""
    return strict_json(report_as_dict(report))


def strict_json(value: Any) -> str:
    """JSON text of ``value``; numbers that JSON has no word for stand as the strings "inf", "-inf" and "nan"."""
    return json.dumps(_finite(value), indent=2, allow_nan=False) + "\n"


def report_as_dict(report: Report, **more: Any) -> dict[str, Any]:
    """What the JSON holds: agreeing comparisons as counts, everything else in full; ``more`` before the findings."""
    return {
        "verdict": report.verdict,
        "no_verdict": report.no_verdict or None,
        "exit_code": report.exit_code,
        "subject": report.subject,
        "cases": report.cases,
        "not_there": report.not_there,
        "comparisons": len(report.comparisons),
        "stages": [asdict(row) for row in report.rows()],
        "judges": [
            {"judge": judge, "against": against, "comparisons": count, "differences": differing}
            for judge, against, count, differing in report.by_judge()
        ],
        "formulas": [asdict(formula) for formula in report.formulas],
        "goldens": dict(report.goldens),
        "absent": dict(report.absent),
        "exact_engine": dict(report.counters),
        "known_weaknesses": [asdict(weakness) for weakness in report.weaknesses],
        "environment": dict(report.environment),
        "elapsed_s": round(report.elapsed, 3),
        **more,
        "differences": [asdict(difference) for difference in report.differences],
        "problems": [asdict(problem) for problem in report.problems],
    }


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value
