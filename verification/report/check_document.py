"""The document of a check, and of whatever else gives a ``Report``: its tables, findings with evidence, histograms."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from verification.cases.case import Case
from verification.report.document import PROBLEM, Document, Finding, Lines, Sheet, Tried, foremost
from verification.report.histograms import EXACT, histograms
from verification.report.sheets import facts, findings_sheets
from verification.report.summary import Report
from verification.subjects.outcome import Outcome

Evidence = tuple[Sheet | Lines, ...]


def check_document(report: Report, cases: Sequence[Case], run: Callable[[Case], Outcome | None], verb: str) -> Document:
    """The document of a check of ``cases``: ``verb`` is what was typed, ``run`` runs a case of its subject again."""
    from verification.report.evidence import evidence, recordings

    return document_of(
        report,
        cases,
        verb=verb,
        sheets=[*findings_sheets(report), recordings(cases, report.environment.get("platform", ""))],
        facts=facts(report),
        evidence=lambda case: evidence(case, report.subject, run),
    )


def document_of(
    report: Report,
    cases: Sequence[Case],
    *,
    verb: str,
    sheets: Sequence[Sheet],
    facts: Sequence[tuple[str, str]],
    evidence: Callable[[Case], Evidence],
    measured: str = EXACT,
) -> Document:
    """The document with the tables and facts that are given.

    ``evidence`` lays one case open, ``measured`` is what the formulas' distances are called.
    """
    known = {case.id: case for case in cases}
    findings = list(_findings(report, verb, known))
    judged = {one.case for one in report.comparisons} | {one.case for one in report.problems}
    return Document(
        title=f"relax-verify {verb}",
        verdict=report.verdict or f"NO VERDICT: {report.no_verdict}",
        exit_code=report.exit_code,
        facts=tuple(facts),
        sheets=tuple(sheet for sheet in sheets if sheet.rows),
        findings=tuple(_with_evidence(findings, known, evidence)),
        histograms=histograms(report, measured),
        tried=tuple(
            Tried(case.id, case.stage, "" if case.id in judged else f"not there in {report.subject}") for case in cases
        ),
    )


def _findings(report: Report, verb: str, cases: Mapping[str, Case]) -> Iterator[Finding]:
    """Differences by case, then the problems of the harness."""
    for one in sorted(report.differences, key=lambda one: one.case):
        what = f"{one.judge} against {one.against}: {one.what}"
        yield Finding(
            one.case, one.stage, one.algorithm, what, one.detail, one.ulps, command=_command(verb, one.case, cases)
        )
    for problem in report.problems:
        case, command = cases.get(problem.case), _command(verb, problem.case, cases)
        stage, algorithm = (case.stage, case.algorithm) if case is not None else ("", "")
        yield Finding(problem.case, stage, algorithm, problem.where, problem.message, kind=PROBLEM, command=command)


def _command(verb: str, case: str, cases: Mapping[str, Case]) -> str:
    """What runs a case again; what is found of no case, as parity and the lock, belongs to the whole."""
    only = ["--case", glob.escape(case)] if case in cases else []
    return shlex.join(["relax-verify", *shlex.split(verb), *only])


def _with_evidence(
    findings: Sequence[Finding], cases: Mapping[str, Case], evidence: Callable[[Case], Evidence]
) -> Iterator[Finding]:
    """The first finding on each of the foremost cases with that case laid open."""
    closed = {case for case in foremost(findings) if case in cases}
    for finding in findings:
        if finding.case in closed:
            closed.remove(finding.case)
            finding = replace(finding, evidence=_laid_open(cases[finding.case], evidence))
        yield finding


def _laid_open(case: Case, evidence: Callable[[Case], Evidence]) -> Evidence:
    try:
        return evidence(case)
    except Exception as error:  # a page without it says more than no page
        return (Lines("evidence", (f"cannot be gathered: {type(error).__name__}: {error}",)),)
