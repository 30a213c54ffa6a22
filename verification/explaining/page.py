"""An explanation as a report: what the HTML page of one case is made from."""

from __future__ import annotations

from verification.check import environment
from verification.explaining.explanation import Explanation
from verification.explaining.tables import commands, tables
from verification.report.document import LAID_OPEN, PROBLEM, Document, Finding, Tried


def document_of(explanation: Explanation) -> Document:
    """The page's contents: the tables of the terminal with more elements, and the findings."""
    case, found = explanation.case, explanation.found
    place, command = (case.id, case.stage, case.algorithm), explanation.commands[0]
    differing = [one for one in found.comparisons if not one.agrees]
    findings = [
        Finding(*place, f"{one.judge} against {one.against}: {one.what}", one.detail, one.ulps, command=command)
        for one in differing
    ]
    findings += [Finding(*place, one.where, one.message, kind=PROBLEM, command=command) for one in found.problems]
    return Document(
        title=f"relax-verify explain {case.id}",
        verdict=explanation.verdict,
        exit_code=explanation.exit_code,
        facts=tuple(environment().items()),
        sheets=tuple(sheet for sheet in (*tables(explanation, LAID_OPEN), commands(explanation)) if sheet.rows),
        findings=tuple(findings),
        tried=(Tried(case.id, case.stage),),
    )
