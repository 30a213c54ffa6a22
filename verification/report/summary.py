"""What a check found, as data: every comparison, and the tallies that the terminal and the JSON report show."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from verification.judges.comparison import Comparison, largest
from verification.weaknesses import Shown

EQUIVALENT = "VERDICT equivalent"
TENTHS = 10


@dataclass(frozen=True)
class Problem:
    """The harness itself failed on a case: a judge, the oracle or a golden file, not the code under examination."""

    case: str
    where: str
    message: str


@dataclass(frozen=True)
class Measured:
    """The largest distance to the exact value that one formula showed, against its stated bound.

    ``unjudged`` of the ``elements`` have no value to be held to: a non-finite input, an intermediate beyond float32, a
    variance whose digits are lost. ``shares`` counts the comparisons by their distance as a share of the bound: exactly
    0, up to each tenth of the bound, beyond it.
    """

    formula: str
    ulps: float
    bound: float
    comparisons: int = 1
    case: str = ""
    elements: int = 0
    unjudged: int = 0
    shares: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.shares:
            object.__setattr__(self, "shares", _share(self.ulps, self.bound))


def _share(ulps: float, bound: float) -> tuple[int, ...]:
    """One comparison among the bins."""
    place = 0 if ulps == 0 else TENTHS + 1 if ulps > bound else max(1, math.ceil(TENTHS * ulps / bound))
    return tuple(int(place == index) for index in range(TENTHS + 2))


@dataclass(frozen=True)
class Tally:
    """Some comparisons, counted. ``ulps`` is the largest distance between bits, None where none was measured."""

    cases: int
    comparisons: int
    differences: int
    ulps: float | None


def tallied(
    comparisons: Iterable[Comparison], key: Callable[[Comparison], tuple[str, str]]
) -> list[tuple[tuple[str, str], Tally]]:
    """The comparisons counted by ``key``, sorted by it."""
    groups: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for comparison in comparisons:
        groups[key(comparison)].append(comparison)
    return [
        (
            name,
            Tally(
                len({comparison.case for comparison in found}),
                len(found),
                sum(not comparison.agrees for comparison in found),
                largest(comparison.ulps for comparison in found if comparison.judge != "rounding"),
            ),
        )
        for name, found in sorted(groups.items())
    ]


@dataclass(frozen=True)
class Row(Tally):
    """One line of the table by stage and algorithm."""

    stage: str
    algorithm: str


@dataclass(frozen=True)
class Report:
    """Everything that one check found.

    ``goldens`` counts cases: "compared", "no golden recorded for this case" (a difference too) and "no golden here".
    ``absent`` counts cases by subject that has no such stage or algorithm. ``counters`` are those of the exact engine:
    how many results, how many by fallback.
    """

    subject: str
    comparisons: tuple[Comparison, ...]
    problems: tuple[Problem, ...]
    cases: int
    formulas: tuple[Measured, ...] = ()
    goldens: Mapping[str, int] = field(default_factory=dict)
    absent: Mapping[str, int] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    weaknesses: tuple[Shown, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    elapsed: float = 0.0

    @property
    def differences(self) -> tuple[Comparison, ...]:
        return tuple(comparison for comparison in self.comparisons if not comparison.agrees)

    @property
    def exit_code(self) -> int:
        """0 equivalent, 1 different whatever else went wrong, 2 where it cannot say: there is no verdict."""
        if self.differences:
            return 1
        return 2 if self.no_verdict else 0

    @property
    def verdict(self) -> str | None:
        """The line to grep; None where nothing differed but the harness failed or nothing was compared."""
        if self.differences:
            return f"VERDICT different ({len(self.differences)})"
        return None if self.no_verdict else EQUIVALENT

    @property
    def no_verdict(self) -> str:
        """Why there is no verdict; empty where there is one."""
        if self.differences:
            return ""
        if self.problems:
            return f"the harness itself failed ({len(self.problems)} problems), see above"
        if not self.comparisons:
            return f"nothing was compared: {self.subject} has {self.cases - self.not_there} of the {self.cases} cases"
        return ""

    @property
    def not_there(self) -> int:
        """How many of the cases the subject does not have."""
        return self.absent.get(self.subject, 0)

    def rows(self) -> list[Row]:
        """By stage and algorithm, sorted. Dispatch parity stands apart: its cases are combinations of switches."""

        def key(comparison: Comparison) -> tuple[str, str]:
            stage = "dispatch parity" if comparison.judge == "parity" else comparison.stage
            return stage, comparison.algorithm or "-"

        found = tallied(self.comparisons, key)
        return [Row(**vars(tally), stage=stage, algorithm=algorithm) for (stage, algorithm), tally in found]

    def by_judge(self) -> list[tuple[str, str, int, int]]:
        """(judge, against, comparisons, differences); the transformations of the invariance judge count as one."""
        counts: dict[tuple[str, str], list[int]] = {}
        for comparison in self.comparisons:
            against = "itself" if comparison.judge == "invariance" else comparison.against
            tally = counts.setdefault((comparison.judge, against), [0, 0])
            tally[0] += 1
            tally[1] += not comparison.agrees
        return [(judge, against, tally[0], tally[1]) for (judge, against), tally in sorted(counts.items())]


def merge_measured(found: Iterable[Measured]) -> tuple[Measured, ...]:
    """The largest distance of each formula, sorted by name; of equal ones the last id, so that order does not count."""
    largest: dict[str, Measured] = {}
    for one in found:
        seen = largest.get(one.formula)
        if seen is None:
            largest[one.formula] = one
            continue
        top = max(seen, one, key=lambda measured: (measured.ulps, measured.case))
        largest[one.formula] = replace(
            top,
            comparisons=seen.comparisons + one.comparisons,
            elements=seen.elements + one.elements,
            unjudged=seen.unjudged + one.unjudged,
            shares=tuple(map(sum, zip(seen.shares, one.shares, strict=True))),
        )
    return tuple(largest[name] for name in sorted(largest))
