"""The golden commands' findings as tables and as a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from verification.cases.case import Case
from verification.explaining.evidence import laid_open
from verification.explaining.explanation import Side
from verification.goldens.changes import CHANGED, KINDS, SAME, Change, by_stage
from verification.goldens.store import GoldenStore
from verification.goldens.verify import ELSEWHERE, FINE, Verification
from verification.report.document import Document, Finding, Sheet, Tried, foremost
from verification.report.histograms import by_distance
from verification.report.sheets import ulps


def changes_sheet(found: Sequence[Change]) -> Sheet:
    """How many goldens of each stage changed, by kind."""
    rows = tuple((one.stage, *(str(one.counts[kind]) for kind in KINDS), ulps(one.ulps)) for one in by_stage(found))
    return Sheet("goldens", ("stage", *KINDS, "largest ulps"), rows, words=(0,))


def changes_verdict(found: Sequence[Change]) -> str:
    """The last line of what a staged recording would change."""
    return f"GOLDENS {sum(one.kind != SAME for one in found)} of {len(found)} would change"


def changes_document(
    found: Sequence[Change], baseline: str, old: GoldenStore, staged: GoldenStore, cases: Mapping[str, Case]
) -> Document:
    """What a staged recording would change; of the goldens with another outcome the first ones laid open."""
    differing = [one for one in found if one.kind != SAME]
    plain = [
        Finding(one.case, one.stage, one.algorithm, f"{KINDS[one.kind]} ({one.platform})", one.detail, one.ulps)
        for one in differing
    ]
    open_ = set(foremost(plain))
    findings = tuple(
        replace(finding, evidence=_before_and_after(one, old, staged, cases[one.case]))
        if one.kind == CHANGED and one.case in open_ and one.case in cases
        else finding
        for one, finding in zip(differing, plain, strict=True)
    )
    distances: dict[str, list[float]] = {}
    for one in differing:
        if one.ulps is not None:
            distances.setdefault(one.stage, []).append(one.ulps)
    return Document(
        title="relax-verify golden diff",
        verdict=changes_verdict(found),
        exit_code=1 if differing else 0,
        facts=(("baseline", baseline), ("goldens", str(len(found)))),
        sheets=(changes_sheet(found),),
        findings=findings,
        histograms=by_distance(
            "Distances of the goldens that change, by stage", "largest distance, in ulps", distances
        ),
        tried=tuple(Tried(one.case, one.stage) for one in found),
    )


def _before_and_after(change: Change, old: GoldenStore, staged: GoldenStore, case: Case) -> tuple[Sheet, ...]:
    sides = []
    for name, store in (("golden", old), ("staged", staged)):
        golden = store.read(change.case, change.platform)
        sides.append(Side(name, None if golden is None else golden.outcome))
    return laid_open(case, *sides)


def verification_sheets(found: Verification) -> tuple[Sheet, ...]:
    """What became of the goldens, by stage and by baseline."""
    kinds = sorted(found.counts, key=lambda kind: (kind not in FINE, kind))
    return tuple(
        Sheet(
            title,
            (title.removeprefix("by "), *kinds),
            tuple(
                (name or "-", *(str(sum(one.found == kind for one in members)) for kind in kinds))
                for name, members in _grouped(found, attribute).items()
            ),
            words=(0,),
        )
        for title, attribute in (("by stage", "stage"), ("by baseline", "baseline"))
    )


def _grouped(found: Verification, attribute: str) -> dict[str, list]:
    groups: dict[str, list] = {}
    for one in found.checked:
        groups.setdefault(getattr(one, attribute), []).append(one)
    return dict(sorted(groups.items()))


def verification_document(found: Verification, platform: str, elapsed: float) -> Document:
    """What `golden verify` found."""
    findings = tuple(
        Finding(
            one.case,
            one.stage,
            one.algorithm,
            f"{one.found} ({one.platform})",
            one.detail,
            one.ulps,
            command=f"relax-verify explain '{one.case}' --subject revision:{one.baseline}" if one.baseline else "",
        )
        for one in found.wrong
    )
    tried = tuple(Tried(one.case, one.stage, one.found if one.found == ELSEWHERE else "") for one in found.checked)
    facts = (("platform", platform), ("goldens", str(len(found.checked))), ("elapsed", f"{elapsed:.1f} s"))
    return Document(
        "relax-verify golden verify",
        found.verdict,
        found.exit_code,
        facts,
        verification_sheets(found),
        findings,
        tried=tried,
    )
