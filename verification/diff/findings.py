"""What a comparison of two revisions found, as data: what differs case by case, by stage and algorithm, and the sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from verification.cases.case import Case
from verification.diff.ways import Way
from verification.judges.comparison import Comparison, largest
from verification.report.summary import EQUIVALENT
from verification.revisions.source import Source
from verification.subjects.outcome import Outcome

A, B = "A", "B"


@dataclass(frozen=True)
class CaseDiff:
    """One case that gives something else in A than in B: what the bits judge found, B's bits against A's."""

    case: Case
    comparisons: tuple[Comparison, ...]
    a: Outcome
    b: Outcome

    @property
    def ulps(self) -> float | None:
        """The largest distance of any array, None where none was measured."""
        return largest(one.ulps for one in self.comparisons)


@dataclass(frozen=True)
class Reworded:
    """One case that both refuse with the same type of error, in other words. No difference: messages are no results."""

    case: str
    a: str
    b: str


@dataclass(frozen=True)
class Shrunk:
    """The smallest input that was found to differ as the case ``origin`` does, and in which way that is.

    ``stopped`` says why shrinking ended while a smaller input might have been left; empty where it did not.
    """

    found: CaseDiff
    origin: Case
    way: Way
    stopped: str = ""


@dataclass(frozen=True)
class GroupDiff:
    """One stage and algorithm: how many cases were compared, how many differ, and where most."""

    stage: str
    algorithm: str
    cases: int
    differing: int
    ulps: float | None = None
    where: str = ""
    smallest: Shrunk | None = None


@dataclass(frozen=True)
class Diff:
    """Everything that one comparison found.

    ``not_there`` names, by side, the cases that it does not have; they are compared with nothing. ``same_tree``: the
    hash that both have of ``relax/``, where nothing had to run.
    """

    a: Source
    b: Source
    cases: int
    compared: int = 0
    not_there: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    groups: tuple[GroupDiff, ...] = ()
    differing: tuple[CaseDiff, ...] = ()
    reworded: tuple[Reworded, ...] = ()
    same_tree: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    elapsed: float = 0.0

    @property
    def no_verdict(self) -> str:
        """Why there is no verdict; empty where there is one."""
        if self.same_tree or self.compared:
            return ""
        return f"nothing was compared: no side has any of the {self.cases} cases that the other has"

    @property
    def exit_code(self) -> int:
        """0 equivalent, 1 different, 2 where it cannot say."""
        return 2 if self.no_verdict else int(bool(self.differing))

    @property
    def verdict(self) -> str | None:
        """The line to grep; its number counts cases. None where nothing was compared."""
        if self.no_verdict:
            return None
        return f"VERDICT different ({len(self.differing)})" if self.differing else EQUIVALENT
