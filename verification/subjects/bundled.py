"""A process subject that is asked for many outcomes at a time, before judges look at them one by one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from verification.cases.case import Case
from verification.subjects.outcome import Outcome
from verification.subjects.process import ProcessSubject, SubjectFailed


class Bundled:
    """Runs the cases that were fetched out of what was fetched, any other by itself."""

    def __init__(self, subject: ProcessSubject) -> None:
        self._subject = subject
        self._fetched: dict[tuple[int, int, bool], tuple[Case, Outcome | None]] = {}  # the case keeps its identity

    def fetch(self, cases: Sequence[Case], *, threads: int = 1, watch: bool = True) -> None:
        """Runs all of ``cases``, whose ids need not differ.

        Where the process fails nothing is fetched: each is run by itself then, so that the one at fault alone fails.
        """
        numbered = [replace(case, id=f"{case.id}-{number}") for number, case in enumerate(cases)]
        with suppress(SubjectFailed):
            given = self._subject.run_all(numbered, threads=threads, watch=watch)
            for case, outcome in zip(cases, given.values(), strict=True):
                self._fetched[id(case), threads, watch] = case, outcome

    def run(self, case: Case, *, threads: int = 1, watch: bool = True) -> Outcome | None:
        """The outcome of one case, as the subject gives it."""
        fetched = self._fetched.get((id(case), threads, watch))
        return self._subject.run(case, threads=threads, watch=watch) if fetched is None else fetched[1]
