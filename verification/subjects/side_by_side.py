"""Two subjects over the same cases: at the same time where each has a process of its own, and ended together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event, Lock

from verification.cases.case import Case
from verification.subjects.outcome import Outcome
from verification.subjects.process import ProcessSubject
from verification.subjects.protocol import Subject

Outcomes = Mapping[str, Outcome | None]  # by the id of the case
Progress = Callable[[int, int], None]


def side_by_side(
    one: Subject, other: Subject, cases: Sequence[Case], progress: Progress = lambda done, total: None
) -> tuple[Outcomes, Outcomes]:
    """The outcomes of both on all cases; in turn, unless each has a process of its own.

    ``progress(done, total)`` counts the cases of both. What one of them raises goes through, and so does an interrupt
    from the keyboard: the process of the other, whatever it works on, has ended by then.
    """
    told = _Counted(progress, 2 * len(cases))
    if not (isinstance(one, ProcessSubject) and isinstance(other, ProcessSubject)):
        return _alone(one, cases, told.side()), _alone(other, cases, told.side())
    stop = Event()
    failures: list[BaseException] = []

    def run(subject: ProcessSubject, side: Progress) -> Outcomes:
        try:
            return subject.run_all(cases, side, stop)
        except BaseException as error:
            failures.append(error)
            stop.set()
            raise

    with ThreadPoolExecutor(2) as pool:
        try:
            runs = [pool.submit(run, subject, told.side()) for subject in (one, other)]
            wait(runs)
        finally:
            stop.set()  # interrupted: nobody waits for what they still work on
    if failures:
        raise failures[0]
    return runs[0].result(), runs[1].result()


def _alone(subject: Subject, cases: Sequence[Case], progress: Progress) -> Outcomes:
    if isinstance(subject, ProcessSubject):
        return subject.run_all(cases, progress)
    return {case.id: subject.run(case) for case in cases}


class _Counted:
    """The cases that several sides have done, told as one count."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total = progress, total
        self._done: list[int] = []
        self._lock = Lock()

    def side(self) -> Progress:
        """What one side tells its own count to."""
        mine = len(self._done)
        self._done.append(0)

        def told(done: int, _: int) -> None:
            with self._lock:
                self._done[mine] = done
                self._progress(sum(self._done), self._total)

        return told
