"""A statement for people and programs: tables, a document for pages and step summaries, data for JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from verification.report.document import Document, Finding, Sheet, Tried
from verification.report.sheets import ulps
from verification.request.statement import Statement, tally

NAMED = 20


def sheets(statement: Statement) -> list[Sheet]:
    """The tables that have something to show, in reading order."""
    made = [_facts(statement), _stages(statement), _tally(statement), _frozen(statement), _complaints(statement)]
    return [sheet for sheet in made if sheet.rows]


def _facts(statement: Statement) -> Sheet:
    diff = statement.diff
    rows = [
        ("base", statement.changed.base),
        ("head", statement.changed.head),
        ("tree of relax/ in the base", diff.a.relax_tree),
        ("tree of relax/ in the head", diff.b.relax_tree),
        ("platform", statement.platform),
        ("cases", str(diff.cases)),
        ("compared", "none, the trees of relax/ are the same" if diff.same_tree else str(diff.compared)),
        ("differing", str(len(diff.differing))),
        ("goldens that changed", str(len(statement.changed.goldens))),
        ("elapsed", f"{diff.elapsed:.1f} s"),
    ]
    rows += [(f"not there in {side}", f"{len(names)} cases") for side, names in diff.not_there.items() if names]
    return Sheet("request", ("", ""), tuple(rows))


def _stages(statement: Statement) -> Sheet:
    unstated = Counter((one.stage, one.algorithm) for one in statement.complaints)
    rows = tuple(
        (
            one.stage,
            one.algorithm,
            str(one.cases),
            str(one.differing),
            ulps(one.ulps),
            str(unstated[one.stage, one.algorithm]),
        )
        for one in statement.diff.groups
        if one.differing
    )
    return Sheet("what differs", ("stage", "algorithm", "cases", "differing", "largest ulps", "unstated"), rows)


def _tally(statement: Statement) -> Sheet:
    rows = tuple((word, str(len(names)), _some(names)) for word, names in tally(statement))
    note = _remedy(statement) if statement.complaints else ""
    return Sheet("cases and goldens", ("", "cases", "named"), rows, words=(0, 2), note=note)


def _frozen(statement: Statement) -> Sheet:
    changed = statement.changed
    note = (
        "edited together with relax/: what the code is held to moved with the code" if changed.reference_moved else ""
    )
    return Sheet("frozen copies", ("edited",), tuple((path,) for path in changed.frozen), words=(0,), note=note)


def _complaints(statement: Statement) -> Sheet:
    rows = [(one.case, one.what, ulps(one.ulps), one.detail) for one in statement.complaints[:NAMED]]
    left = len(statement.complaints) - NAMED
    note = f"{left} more: --json FILE lists them all" if left > 0 else ""
    return Sheet("not stated", ("case", "what", "ulps", "detail"), tuple(rows), words=(0, 1, 3), note=note)


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _remedy(statement: Statement) -> str:
    """What to do about complaints."""
    return (
        "If it is meant: relax-verify golden regen --baseline HEAD, golden diff and accept; commit golden/ on top.\n"
        f"If not, see what moved: relax-verify diff {statement.changed.base[:12]}"
    )


def document_of(statement: Statement) -> Document:
    """The page, the JUnit file and the step summary."""
    base = statement.changed.base[:12]
    findings = tuple(
        Finding(
            one.case,
            one.stage,
            one.algorithm,
            one.what,
            one.detail,
            one.ulps,
            command=f"relax-verify explain {one.case} --subject revision:{base}",
        )
        for one in statement.complaints
    )
    tables = tuple(sheet for sheet in sheets(statement) if sheet.title not in ("request", "not stated"))
    facts = {row[0]: row[1] for row in _facts(statement).rows} | dict(statement.diff.environment)
    lacking = {name for names in statement.diff.not_there.values() for name in names}
    tried = [
        Tried(case.id, case.stage, "not there on one side" if case.id in lacking else "") for case in statement.cases
    ]
    known = {case.id for case in statement.cases}
    tried += [Tried(one.case, one.stage) for one in statement.complaints if one.case not in known]
    return Document(
        title=f"relax-verify request {base}",
        verdict=statement.verdict,
        exit_code=statement.exit_code,
        facts=tuple(facts.items()),
        sheets=tables,
        findings=findings,
        tried=tuple(tried),
    )


def as_dict(statement: Statement) -> dict[str, Any]:
    """What the JSON holds: every case that differs and every golden that changed, by what was found of it."""
    changed, diff = statement.changed, statement.diff
    return {
        "verdict": statement.verdict,
        "exit_code": statement.exit_code,
        "base": changed.base,
        "head": changed.head,
        "platform": statement.platform,
        "relax_trees": [diff.a.relax_tree, diff.b.relax_tree],
        "cases": diff.cases,
        "compared": diff.compared,
        "not_there": {side: list(names) for side, names in diff.not_there.items()},
        "differing": [one.case.id for one in diff.differing],
        "settled": {word: list(names) for word, names in statement.settled.items()},
        "complaints": [asdict(one) for one in statement.complaints],
        "goldens": [
            {"case": one.case, "platform": one.platform, "kind": one.kind, "detail": one.detail}
            for one in changed.goldens
        ],
        "frozen": list(changed.frozen),
        "frozen_moved_with_relax": changed.reference_moved,
        "environment": dict(diff.environment),
        "elapsed_s": round(diff.elapsed, 3),
    }
