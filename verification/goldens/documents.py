"""The golden commands' findings as tables and as a report."""

from __future__ import annotations

from collections.abc import Sequence

from verification.goldens.changes import KINDS, Change, by_stage
from verification.goldens.verify import FINE, Verification
from verification.report.document import Document, Finding, Sheet, Tried
from verification.report.sheets import ulps


def changes_sheet(found: Sequence[Change]) -> Sheet:
    """How many goldens of each stage changed, by kind."""
    rows = tuple((one.stage, *(str(one.counts[kind]) for kind in KINDS), ulps(one.ulps)) for one in by_stage(found))
    return Sheet("goldens", ("stage", *KINDS, "largest ulps"), rows, words=(0,))


def changes_document(found: Sequence[Change], baseline: str) -> Document:
    """What a staged recording would change."""
    differing = [one for one in found if one.kind != "same"]
    findings = tuple(
        Finding(one.case, one.stage, one.algorithm, f"{KINDS[one.kind]} ({one.platform})", one.detail, one.ulps)
        for one in differing
    )
    return Document(
        title="relax-verify golden diff",
        verdict=f"GOLDENS {len(differing)} of {len(found)} would change",
        exit_code=1 if differing else 0,
        facts=(("baseline", baseline), ("goldens", str(len(found)))),
        sheets=(changes_sheet(found),),
        findings=findings,
        tried=tuple(Tried(one.case, one.stage) for one in found),
    )


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
    tried = tuple(Tried(one.case, one.stage, "" if one.found != FINE[1] else one.found) for one in found.checked)
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
