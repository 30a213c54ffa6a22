"""Whether a request states what it makes differ: exactly the goldens of those cases changed, and hold what they give.

A case that differs is settled by the golden of the platform that this runs on. Where it has none, it counts as stated
if its golden of another platform changed: what that holds can only be judged there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from verification.cases.case import Case
from verification.diff.findings import CaseDiff, Diff
from verification.goldens.changes import CHANGED, GONE, INPUTS, NEW, REWRITTEN
from verification.goldens.compare import departure, golden_of
from verification.goldens.digest import input_digest
from verification.goldens.parse import Golden
from verification.goldens.platform import ANY, platform_of
from verification.request.changed import Changed, GoldenChange

# How a case that differs is settled.
STATED, HELD = "its golden changed and holds the new outcome", "its golden did not change, and holds the new outcome"
ELSEWHERE, UNRECORDED = "its golden of another platform changed, to be judged there", "it has no golden"
# What is wrong.
UNCHANGED = "differs, but its golden did not change"
REMOVED = "differs, and its golden was removed"
OTHERWISE = "differs, and its golden changed, but holds another outcome"
NO_SUCH_CASE = "it is the golden of no case"
OTHER_INPUTS = "its golden was recorded from inputs that are not the case's"
NOTHING_DIFFERS = "its golden changed, but nothing differs"
STANDS = "its golden was removed, but the case stands"
# How a golden that changed without a difference is settled.
RECORDED, ANEW, OTHER_TEXT = "newly recorded", "recorded anew, since the case changed", "written anew, same outcome"
NO_CASE, NOT_COMPARED = "removed together with its case", "of a case that one side lacks"
NOT_HERE = "of another platform, to be judged there"


@dataclass(frozen=True)
class Complaint:
    """Something that the request does not state, or states though it is not so."""

    case: str
    stage: str
    algorithm: str
    what: str
    detail: str = ""
    ulps: float | None = None


@dataclass(frozen=True)
class Statement:
    """The answer. ``settled`` holds, by one of the sentences above, the ids of the cases that it is true of."""

    changed: Changed
    diff: Diff
    cases: tuple[Case, ...]
    platform: str
    complaints: tuple[Complaint, ...]
    settled: Mapping[str, tuple[str, ...]]

    @property
    def no_verdict(self) -> str:
        """Why there is no verdict; empty where there is one."""
        if self.complaints:
            return ""
        if self.diff.no_verdict:
            return self.diff.no_verdict
        count = len(self.settled.get(UNRECORDED, ()))
        if count and count == len(self.diff.differing):
            return f"{count} cases differ, and none has a golden that could state it: record them"
        return ""

    @property
    def exit_code(self) -> int:
        """0 where it holds, 1 where something is not stated, 2 where it cannot say."""
        return 1 if self.complaints else 2 if self.no_verdict else 0

    @property
    def verdict(self) -> str:
        """The line to grep."""
        if self.complaints:
            return f"VERDICT unstated ({len(self.complaints)})"
        if self.no_verdict:
            return f"NO VERDICT: {self.no_verdict}"
        return f"VERDICT stated ({len(self.diff.differing)})" if self.diff.differing else "VERDICT equivalent"


def state(changed: Changed, diff: Diff, cases: Sequence[Case], key: str, standing: Mapping[str, Golden]) -> Statement:
    """Settles every case that differs and every golden that changed.

    ``key`` is the platform that ``diff`` was made on; ``standing`` holds the goldens that the differing cases have on
    it, or that hold everywhere, whether or not they changed.
    """
    known = {case.id: case for case in cases}
    goldens: dict[str, dict[str, GoldenChange]] = {}
    for one in changed.goldens:
        goldens.setdefault(one.case, {})[one.platform] = one
    settled: dict[str, list[str]] = {}
    complaints = []
    for found in diff.differing:
        name = found.case.id
        word, detail = _differing(found, goldens.get(name, {}), changed, key, standing.get(name))
        if word in (STATED, HELD, ELSEWHERE, UNRECORDED):
            settled.setdefault(word, []).append(name)
        else:
            complaints.append(_complaint(name, word, detail, found.ulps))
    differing = {found.case.id for found in diff.differing}
    lacking = {name for names in diff.not_there.values() for name in names}
    for one in changed.goldens:
        if one.case not in differing:
            word = _only_recorded(one, known.get(one.case), one.case in lacking, key)
            if word in (NOTHING_DIFFERS, STANDS, NO_SUCH_CASE, OTHER_INPUTS):
                complaints.append(_complaint(one.case, word, one.detail))
            else:
                settled.setdefault(word, []).append(one.case)
    tallies = {word: tuple(names) for word, names in sorted(settled.items())}
    return Statement(changed, diff, tuple(cases), key, tuple(complaints), tallies)


def _differing(
    found: CaseDiff, goldens: Mapping[str, GoldenChange], changed: Changed, key: str, standing: Golden | None
) -> tuple[str, str]:
    """How a case that differs is settled, or what is wrong; and the detail of that."""
    here = platform_of(found.case, key)
    change = goldens.get(here)
    if change is not None and change.kind == GONE:
        return REMOVED, f"on platform {here}"
    if standing is None:
        recorded = changed.recorded.get(found.case.id, frozenset())
        if any(one.kind in (NEW, CHANGED, INPUTS) for one in goldens.values()):
            return ELSEWHERE, ""
        return (UNCHANGED, f"that of platform {', '.join(sorted(recorded))}") if recorded else (UNRECORDED, "")
    wrong = departure(golden_of(found.case, found.b, key), standing)
    moved = change is not None and change.kind in (NEW, CHANGED, INPUTS)
    if wrong is not None:
        return (OTHERWISE if moved else UNCHANGED), wrong.detail
    return (STATED if moved else HELD), ""


def _only_recorded(one: GoldenChange, case: Case | None, lacking: bool, key: str) -> str:
    """What the change of a golden means whose case gives what it gave, or was not run."""
    if one.platform not in (ANY, key):
        return NOT_HERE
    if one.kind == GONE:
        return NO_CASE if case is None or platform_of(case, key) != one.platform else STANDS
    if case is None:
        return NO_SUCH_CASE
    if one.inputs != input_digest(case):
        return OTHER_INPUTS
    if lacking:
        return NOT_COMPARED
    return {NEW: RECORDED, INPUTS: ANEW, REWRITTEN: OTHER_TEXT}.get(one.kind, NOTHING_DIFFERS)


def _complaint(name: str, what: str, detail: str, ulps: float | None = None) -> Complaint:
    stage, algorithm = name.split("/")[:2]
    return Complaint(name, stage, algorithm, what, detail, ulps)


def tally(statement: Statement) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each sentence that is true of some case, the complaints' first, with those cases."""
    for word in dict.fromkeys(one.what for one in statement.complaints):
        yield word, tuple(one.case for one in statement.complaints if one.what == word)
    yield from statement.settled.items()
