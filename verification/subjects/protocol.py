"""What a subject is: anything that has a name and can run a case."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from verification.cases.case import Case
from verification.subjects.outcome import Outcome


@runtime_checkable
class Subject(Protocol):
    """One implementation under examination.

    ``run`` gives the outcome of a case, a failure of the implementation included (it never raises for one), or None
    where the subject has no such stage or does not know the algorithm: "not there" is no difference.
    """

    name: str

    def run(self, case: Case) -> Outcome | None: ...
