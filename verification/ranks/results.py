"""How the ranks of one task ended: each with a value, a failure, a death, or stuck, and a report that reads well."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

from verification.ranks.layout import Layout


@dataclass(frozen=True)
class Failure:
    """An exception of the function: the name of its type, its message, its traceback as text."""

    kind: str
    message: str
    traceback: str


@dataclass(frozen=True)
class Hung:
    """A rank that gave no answer: the stacks of its threads, and the collective that it entered and did not leave."""

    stack: str
    inside: str | None
    frames: tuple[str, ...] = ()


@dataclass(frozen=True)
class RankResult:
    """How one rank ended. Exactly one of value, ``failure``, ``died``, ``hung`` and ``skipped`` holds (see ``ended``).

    ``died`` is a signal's name or an exit code. ``collectives`` are those that it entered, in order.
    """

    rank: int
    value: Any = None
    failure: Failure | None = None
    died: str | None = None
    hung: Hung | None = None
    skipped: bool = False
    collectives: tuple[str, ...] = ()
    fault_fired: int = 0

    @property
    def ended(self) -> str:
        """``value``, ``failure``, ``died``, ``hung`` or ``skipped``."""
        if self.failure is not None:
            return "failure"
        if self.died is not None:
            return "died"
        if self.hung is not None:
            return "hung"
        return "skipped" if self.skipped else "value"

    def describe(self) -> str:
        """One line, and under it the traceback or the stack where there is one."""
        if self.failure is not None:
            first = f"failed with {self.failure.kind}: {self.failure.message}"
            return _indent(f"rank {self.rank} {first}", self.failure.traceback)
        if self.died is not None:
            return f"rank {self.rank} died ({self.died}) after {_last(self.collectives)}"
        if self.hung is not None:
            if self.hung.inside is None:
                where = f"outside any collective, after {_last(self.collectives)}"
            else:
                where = f"in {self.hung.inside}, its collective {len(self.collectives)}"
            return _indent(f"rank {self.rank} hung {where}", "\n".join(self.hung.frames) or self.hung.stack)
        return f"rank {self.rank} {'left the call, on purpose' if self.skipped else 'returned'}"


class RanksFailed(AssertionError):
    """Not every rank returned."""


@dataclass(frozen=True)
class RankRun:
    """One task on one world: every rank's result, in order of rank."""

    function: str
    layout: Layout
    ranks: tuple[RankResult, ...]

    @property
    def fault_fired(self) -> int:
        """How many faults fired, over all ranks."""
        return sum(rank.fault_fired for rank in self.ranks)

    @property
    def ended(self) -> tuple[str, ...]:
        """How each rank ended, in order of rank."""
        return tuple(rank.ended for rank in self.ranks)

    def values(self) -> list[Any]:
        """What the ranks returned; `RanksFailed` with the report unless all of them did."""
        if any(ended != "value" for ended in self.ended):
            raise RanksFailed(self.report())
        return [rank.value for rank in self.ranks]

    def report(self) -> str:
        """The task and how each rank ended, as text."""
        without = sum(ended != "value" for ended in self.ended)
        first = f"{self.function} on {self.layout.name}: {without} of {len(self.ranks)} ranks did not return"
        return "\n".join([first, *(textwrap.indent(rank.describe(), "  ") for rank in self.ranks)])


def _indent(first: str, rest: str) -> str:
    return "\n".join([first, textwrap.indent(rest.rstrip(), "  ")]) if rest.strip() else first


def _last(collectives: tuple[str, ...]) -> str:
    return f"entering {collectives[-1]}, its collective {len(collectives)}" if collectives else "no collective"
