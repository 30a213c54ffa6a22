"""The whole comparison as a document for pages, and as data for JSON."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from verification.cases.case import Case
from verification.diff.evidence import evidence, smallest
from verification.diff.findings import CaseDiff, Diff, GroupDiff, Shrunk
from verification.diff.shrink import size
from verification.diff.tables import facts, sheets
from verification.explaining.as_json import outcome_as_dict
from verification.explaining.inputs import case_as_data
from verification.report.document import Document, Finding, Lines, Sheet, Tried, foremost
from verification.report.histograms import by_distance
from verification.revisions.source import WORKING_TREE, Source

SMALLEST = "smallest inputs that differ"


def verb(diff: Diff) -> str:
    """What was typed, without filters."""
    return shlex.join(["diff", diff.a.label, *([] if diff.b.label == WORKING_TREE else [diff.b.label])])


def command(diff: Diff, case: str) -> str:
    """What compares both sides on one case again."""
    return f"relax-verify {verb(diff)} --case {shlex.quote(case)}"


def document_of(diff: Diff, cases: Sequence[Case]) -> Document:
    """The page's contents; each stage and algorithm begins with the case whose smallest input is laid open."""
    told = tuple((one.told, one.shrunk.stopped) for one in smallest(diff))
    inputs = Sheet(SMALLEST, ("", ""), told, words=(0, 1))
    distances: dict[str, list[float]] = defaultdict(list)
    for one in diff.differing:
        if one.ulps is not None:
            distances[one.case.stage].append(one.ulps)
    absent = {case: f"not there in {side}" for side, ids in diff.not_there.items() for case in ids}
    return Document(
        title=f"relax-verify {verb(diff)}",
        verdict=diff.verdict or f"NO VERDICT: {diff.no_verdict}",
        exit_code=diff.exit_code,
        facts=facts(diff),
        sheets=tuple(one for one in (inputs, *sheets(diff)) if one.rows),
        findings=tuple(_findings(diff)),
        histograms=by_distance("Distances of the cases that differ, by stage", "largest distance, in ulps", distances),
        tried=() if diff.same_tree else tuple(Tried(one.id, one.stage, absent.get(one.id, "")) for one in cases),
    )


def _findings(diff: Diff) -> Iterator[Finding]:
    """Every difference, those of a case side by side, of each group first those of the case that was shrunk."""
    origins = {group.smallest.origin.id: group.smallest for group in diff.groups if group.smallest is not None}
    differing = sorted(diff.differing, key=lambda one: (one.case.stage, one.case.algorithm, one.case.id not in origins))
    plain = [
        Finding(found.case.id, found.case.stage, found.case.algorithm, one.what, one.detail, one.ulps)
        for found in differing
        for one in found.comparisons
    ]
    open_ = set(foremost(plain))
    of_case = {found.case.id: found for found in differing}
    for finding in plain:
        found = of_case.pop(finding.case, None)  # the first finding of a case carries what belongs to it
        if found is None or finding.case not in open_:
            yield finding
        else:
            more = {"evidence": _evidence(found, origins.get(finding.case)), "command": command(diff, finding.case)}
            yield Finding(**{**vars(finding), **more})


def _evidence(found: CaseDiff, shrunk: Shrunk | None) -> tuple[Sheet | Lines, ...]:
    if shrunk is None or shrunk.found is found:
        return evidence(found)
    title = "the smallest input that differs in the same way"
    return (
        Lines(title, (shrunk.found.case.id,)),
        *evidence(shrunk.found),
        Lines("as found", (found.case.id,)),
        *evidence(found),
    )


def as_dict(diff: Diff) -> dict[str, Any]:
    """All of it but the arrays of cases that were not shrunk: those are what the command gives."""
    return {
        "verdict": diff.verdict,
        "no_verdict": diff.no_verdict or None,
        "exit_code": diff.exit_code,
        "a": _source(diff.a),
        "b": _source(diff.b),
        "same_tree": diff.same_tree or None,
        "cases": diff.cases,
        "compared": diff.compared,
        "not_there": {side: list(ids) for side, ids in diff.not_there.items()},
        "groups": [_group(one, diff) for one in diff.groups],
        "differing": [_case(one, diff) for one in diff.differing],
        "reworded": [asdict(one) for one in diff.reworded],
        "environment": dict(diff.environment),
        "elapsed_s": round(diff.elapsed, 3),
    }


def _source(source: Source) -> dict[str, Any]:
    return {name: getattr(source, name) for name in ("name", "label", "kind", "commit", "relax_tree", "dirty")}


def _case(found: CaseDiff, diff: Diff) -> dict[str, Any]:
    return {
        "case": found.case.id,
        "stage": found.case.stage,
        "algorithm": found.case.algorithm,
        "ulps": found.ulps,
        "differences": _differences(found),
        "command": command(diff, found.case.id),
    }


def _differences(found: CaseDiff) -> list[dict[str, Any]]:
    return [{"what": one.what, "ulps": one.ulps, "detail": one.detail} for one in found.comparisons]


def _group(group: GroupDiff, diff: Diff) -> dict[str, Any]:
    counts = {name: getattr(group, name) for name in ("stage", "algorithm", "cases", "differing", "ulps")}
    return {**counts, "largest_at": group.where or None, "smallest": group.smallest and _shrunk(group.smallest)}


def _shrunk(shrunk: Shrunk) -> dict[str, Any]:
    found = shrunk.found
    return {
        "origin": shrunk.origin.id,
        "what": shrunk.way.what,
        "how": shrunk.way.how,
        "size": list(size(found.case)),
        "size_of_origin": list(size(shrunk.origin)),
        "stopped": shrunk.stopped or None,
        "ulps": found.ulps,
        "differences": _differences(found),
        "case": case_as_data(found.case),
        "a": outcome_as_dict(found.a),
        "b": outcome_as_dict(found.b),
    }
