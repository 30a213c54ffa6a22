"""Both sides over the same cases; then, of each stage and algorithm that differs, the smallest input."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from verification.cases.case import Case
from verification.check import environment
from verification.diff import SHRINK_SECONDS
from verification.diff.findings import A, B, CaseDiff, Diff, GroupDiff, Reworded, Shrunk
from verification.diff.shrink import Stopped, shrink, size
from verification.diff.ways import Way, ways
from verification.judges.bits import judge_bits
from verification.revisions.source import Source
from verification.subjects.outcome import Outcome
from verification.subjects.process import SubjectFailed
from verification.subjects.protocol import Subject
from verification.subjects.side_by_side import Outcomes, Progress, side_by_side

Name = tuple[str, str]  # of a stage and an algorithm
Shrinking = Callable[[int, int, str], None]
NOT_ASKED = "shrinking was not asked for"
NOT_AGAIN = "asked again, the sides no longer differ on a smaller one"


def run_diff(
    a: tuple[Source, Subject],
    b: tuple[Source, Subject],
    cases: Sequence[Case],
    *,
    shrink_seconds: float = SHRINK_SECONDS,
    progress: Progress = lambda done, total: None,
    shrinking: Shrinking = lambda done, total, name: None,
) -> Diff:
    """What two sources make of ``cases``, each run by its subject.

    ``shrink_seconds`` bounds the search for smaller inputs, all together; with 0 there is none. ``progress(done,
    total)`` counts the cases of both sides; ``shrinking(done, total, name)`` counts the stages and algorithms of which
    a smaller input was looked for, and names the next. A SubjectFailed of either side goes through: nothing can be
    said then.
    """
    started = time.monotonic()
    subjects = (a[1], b[1])
    of_a, of_b = side_by_side(*subjects, cases, progress)
    compared = [case for case in cases if of_a[case.id] is not None and of_b[case.id] is not None]
    differing = [found for case in compared if (found := compare(case, of_a[case.id], of_b[case.id])) is not None]
    by_group: dict[Name, list[CaseDiff]] = defaultdict(list)
    for found in differing:
        by_group[found.case.stage, found.case.algorithm].append(found)
    smallest = _all_shrunk(by_group, subjects, shrink_seconds, shrinking)
    return Diff(
        a=a[0],
        b=b[0],
        cases=len(cases),
        compared=len(compared),
        not_there={side: tuple(c.id for c in cases if of[c.id] is None) for side, of in ((A, of_a), (B, of_b))},
        groups=tuple(_groups(compared, by_group, smallest)),
        differing=tuple(differing),
        reworded=tuple(_reworded(compared, of_a, of_b)),
        environment=environment(),
        elapsed=time.monotonic() - started,
    )


def compare(case: Case, a: Outcome | None, b: Outcome | None) -> CaseDiff | None:
    """How ``b`` differs from ``a``; None where it does not, messages apart, or where one of them is not there."""
    if a is None or b is None:
        return None
    found = tuple(one for one in judge_bits(case, b, a, A) if not one.agrees)
    return CaseDiff(case, found, a, b) if found else None


def _reworded(cases: Sequence[Case], of_a: Outcomes, of_b: Outcomes) -> Iterator[Reworded]:
    """The cases that both refuse with one type of error and two messages."""
    for case in cases:
        one, other = (None if found is None else found.failure for found in (of_a[case.id], of_b[case.id]))
        if one is not None and other is not None and one.kind == other.kind and one.message != other.message:
            yield Reworded(case.id, one.message, other.message)


def _groups(
    compared: Sequence[Case], by_group: Mapping[Name, list[CaseDiff]], smallest: Mapping[Name, Shrunk]
) -> list[GroupDiff]:
    """One entry for each stage and algorithm of which any case was compared."""
    groups = []
    for name, count in sorted(Counter((case.stage, case.algorithm) for case in compared).items()):
        found = by_group.get(name, [])
        measured = [one for one in found if one.ulps is not None]
        largest = max(measured, key=lambda one: one.ulps or 0.0, default=found[0] if found else None)
        ulps, where = (None, "") if largest is None else (largest.ulps, largest.case.id)
        groups.append(GroupDiff(*name, count, len(found), ulps, where, smallest.get(name)))
    return groups


def _all_shrunk(
    groups: Mapping[Name, list[CaseDiff]], subjects: tuple[Subject, Subject], seconds: float, shrinking: Shrinking
) -> dict[Name, Shrunk]:
    """The smallest input of each group; each has a fair share of the time, and what the ones before it left over."""
    end = time.monotonic() + seconds
    smallest = {}
    for number, (name, found) in enumerate(groups.items()):
        start, way = _start(found)
        shrinking(number, len(groups), "/".join(name))
        now = time.monotonic()
        deadline = now + (end - now) / (len(groups) - number) if seconds else None
        smallest[name] = _shrunk(start, way, subjects, deadline)
    return smallest


def _start(found: Sequence[CaseDiff]) -> tuple[CaseDiff, Way]:
    """The case to shrink, and its way of differing: the commonest, and of the cases with it the smallest."""
    of_each = [ways(one.comparisons, one.a, one.b)[0] for one in found]
    common = Counter(of_each).most_common(1)[0][0]
    alike = [one for one, way in zip(found, of_each, strict=True) if way == common]
    return min(alike, key=lambda one: (sum(size(one.case)), one.case.id)), common


def _shrunk(start: CaseDiff, way: Way, subjects: tuple[Subject, Subject], deadline: float | None) -> Shrunk:
    """The smallest input that differs in the way in which ``start`` does, and in no way in which it does not."""
    allowed = set(ways(start.comparisons, start.a, start.b))

    def compared(cases: Sequence[Case]) -> list[CaseDiff | None]:
        try:
            of_a, of_b = side_by_side(*subjects, cases)
        except SubjectFailed as failed:  # on an input of our own making: the comparison of the corpus stands
            raise Stopped(str(failed)) from failed
        return [compare(case, of_a[case.id], of_b[case.id]) for case in cases]

    def keeps(cases: Sequence[Case]) -> list[bool]:
        return [way in (shown := _ways(one)) and shown <= allowed for one in compared(cases)]

    if deadline is None:
        return Shrunk(start, start.case, way, NOT_ASKED)
    smallest = shrink(start.case, keeps, deadline=deadline)
    try:
        (found,) = compared([replace(smallest.case, id=f"{start.case.id}-shrunk")])
    except Stopped:
        found = None
    if found is None:
        return Shrunk(start, start.case, way, smallest.stopped or NOT_AGAIN)
    return Shrunk(found, start.case, way, smallest.stopped)


def _ways(found: CaseDiff | None) -> set[Way]:
    return set() if found is None else set(ways(found.comparisons, found.a, found.b))
