"""Every case run twice: what is recorded must come out the same both times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verification.cases.case import Case
from verification.goldens.platform import one_thread
from verification.revisions.source import Source
from verification.subjects.outcome import Outcome
from verification.subjects.process import ProcessSubject
from verification.subjects.protocol import Subject
from verification.subjects.side_by_side import Outcomes, Progress, side_by_side

Runs = Callable[[Sequence[Case], Progress], tuple[Outcomes, Outcomes]]


def in_process(subject: Subject) -> Runs:
    """Both runs of a case in this process, one after the other."""

    def run(cases: Sequence[Case], progress: Progress) -> tuple[Outcomes, Outcomes]:
        first: dict[str, Outcome | None] = {}
        second: dict[str, Outcome | None] = {}
        with one_thread():
            for done, case in enumerate(cases, start=1):
                first[case.id], second[case.id] = subject.run(case), subject.run(case)
                progress(done, len(cases))
        return first, second

    return run


def in_processes(source: Source) -> Runs:
    """The two runs in two processes of their own, side by side: they share no state that could make them agree."""

    def run(cases: Sequence[Case], progress: Progress) -> tuple[Outcomes, Outcomes]:
        with ProcessSubject(source) as one, ProcessSubject(source) as other:
            return side_by_side(one, other, cases, progress)

    return run
