"""All there is to know about one case: every subject's outcome, the exact values, the golden, the judges' findings."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from verification.cases.case import Case
from verification.examine import FROZEN, LIVE, Examined, guarded, judge, outcome_of, runner, subject_named
from verification.explaining.recorded import Recorded, recorded
from verification.judges.bits import judge_bits
from verification.oracle import evaluate
from verification.oracle.exact import Exact
from verification.report.summary import EQUIVALENT
from verification.subjects.outcome import Outcome
from verification.subjects.process import Provenance
from verification.subjects.protocol import Subject

NOT_THERE = "not there"
GOLDEN = "golden"
CAPABILITY = "ATEN_CPU_CAPABILITY"  # of what the kernels are chosen by, the part that a user can set


@dataclass(frozen=True)
class Side:
    """What one subject made of the case; ``why`` says why there is no outcome.

    ``provenance``: where a subject in a process of its own comes from, and what it runs on.
    """

    name: str
    outcome: Outcome | None
    why: str = ""
    provenance: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Explanation:
    """One case laid open. ``sides``: live first, then the other subjects, the frozen copies and the golden.

    ``judged`` holds what the judges found on each subject, by its name. ``bundle`` is the folder that the case came
    from, where it is none of the corpus.
    """

    case: Case
    sides: tuple[Side, ...]
    exact: Mapping[str, Exact]
    golden: Recorded
    judged: Mapping[str, Examined]
    harness: Examined = field(default_factory=Examined)
    bundle: str | None = None

    @property
    def results(self) -> dict[str, Outcome]:
        """The outcomes that are results and no failures, by subject."""
        return results(self.sides)

    @property
    def found(self) -> Examined:
        """The findings on all subjects, and what went wrong in the explanation itself."""
        total = Examined()
        for one in (self.harness, *self.judged.values()):
            total.add(one)
        return total

    @property
    def exit_code(self) -> int:
        """0 where every judge agrees, 1 where one differs, 2 where it cannot say."""
        return 1 if self.differences else 2 if self.no_verdict else 0

    @property
    def differences(self) -> int:
        """How many comparisons differ, over all subjects."""
        return sum(not one.agrees for one in self.found.comparisons)

    @property
    def no_verdict(self) -> str:
        """Why there is no verdict; empty where there is one."""
        if self.differences:
            return ""
        if self.found.problems:
            return "the harness itself failed"
        silent = [name for name, found in self.judged.items() if not found.comparisons]
        return f"nothing was compared of {', '.join(silent)}" if silent else ""

    @property
    def verdict(self) -> str:
        """The line to grep, in the words of a check."""
        if self.differences:
            return f"VERDICT different ({self.differences})"
        return f"NO VERDICT: {self.no_verdict}" if self.no_verdict else EQUIVALENT

    @property
    def commands(self) -> list[str]:
        """What to type to see this again, and to judge the case alone."""
        name, others = self.case.id, [one for one in self.judged if one != LIVE]
        which = [name] if self.bundle is None else [name, "--input", self.bundle]
        lines = [["explain", *which, *(word for other in others for word in ("--subject", other))]]
        if self.bundle is None:
            lines.append(["check", "--case", name])
            lines += [["check", "--case", name, "--subject", other] for other in others]
        chosen = os.environ.get(CAPABILITY)
        start = [f"{CAPABILITY}={chosen}"] if chosen else []
        return [shlex.join([*start, "relax-verify", *line]) for line in lines]


def results(sides: Sequence[Side]) -> dict[str, Outcome]:
    """The outcomes that are results and no failures, by subject."""
    return {one.name: one.outcome for one in sides if one.outcome is not None and one.outcome.failure is None}


def lay_open(case: Case, subjects: Sequence[str] = (), *, bundle: str | None = None) -> Explanation:
    """The explanation of ``case`` for live, the frozen copies, and further ``subjects`` by their names.

    A case of a ``bundle`` stands in no corpus: its golden is not asked for. What raises is a problem of the harness,
    and leaves the rest of the explanation standing.
    """
    harness = Examined()
    judged: dict[str, Examined] = {}
    sides: list[Side] = []
    for name in dict.fromkeys((LIVE, *subjects)):
        run = runner(subject_named(name))
        outcome, found = outcome_of(case, name, run)
        sides.append(_side(name, outcome, found))
        judged[name] = judge(case, name, run, outcome, found, golden=bundle is None)
    live = sides[0].outcome
    for side in sides[1:]:
        if side.outcome is not None and live is not None:
            found, given = judged[side.name], side.outcome
            step = partial(judge_bits, case, given, live, LIVE)
            found.comparisons += guarded(found, case, "bits against live", step) or []
    if FROZEN not in judged:
        sides.append(_side(FROZEN, *outcome_of(case, FROZEN, runner(subject_named(FROZEN)))))
    golden = Recorded("", "not recorded: a case of a bundle") if bundle is not None else recorded(case)
    sides.append(Side(GOLDEN, golden.outcome, golden.why))
    exact = guarded(harness, case, "oracle", lambda: evaluate(case)) or {}
    return Explanation(case, tuple(sides), exact, golden, judged, harness, bundle)


def _side(name: str, outcome: Outcome | None, found: Examined) -> Side:
    if found.problems:
        return Side(name, None, f"cannot be run: {found.problems[0].message}")
    return Side(name, outcome, "" if outcome else NOT_THERE, _provenance(subject_named(name)))


def _provenance(subject: Subject) -> dict[str, str]:
    """What a subject says of where it comes from; nothing for those of this process."""
    told = getattr(subject, "provenance", None)
    if not isinstance(told, Provenance):
        return {}
    source = told.source
    return {
        "source": source.name,
        "commit": source.commit or "none",
        "tree of relax/": source.relax_tree + (", not committed" if source.dirty else ""),
        "relax": told.relax_file,
        "python": told.python,
        "torch": told.torch,
        "platform": told.platform,
    }
