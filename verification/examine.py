"""One case through all judges: what each found, and what went wrong in the harness itself."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from verification.cases.case import STAGES, Case
from verification.goldens.compare import UNRECORDED, compare_with_golden, default_store, unrecorded
from verification.judges.bits import judge_bits
from verification.judges.comparison import Comparison
from verification.judges.contract import judge_contract
from verification.judges.invariance import THREADS, Runner, chosen_transformations, judge_invariance
from verification.judges.rounding import judge_rounding
from verification.judges.transformation import Transformation
from verification.oracle import evaluate
from verification.oracle.routes import ROUTES
from verification.report.summary import Measured, Problem
from verification.revisions.checkout import Checkout, CheckoutError
from verification.revisions.source import source_named
from verification.subjects.bundled import Bundled
from verification.subjects.frozen import frozen_subject
from verification.subjects.in_process import Implementation, load_subject
from verification.subjects.live import live_subject
from verification.subjects.outcome import Outcome
from verification.subjects.process import ProcessSubject, SubjectFailed
from verification.subjects.protocol import Subject

LIVE = "live"
FROZEN = "frozen"
ORACLE = "oracle"
NUMERIC = tuple(stage for stage in STAGES if stage not in ("arguments.validate", "roles.resolve"))
Result = TypeVar("Result")
COMPARED, NO_GOLDEN = "compared", "no golden here"


@dataclass
class Examined:
    """The findings on some cases. ``goldens`` and ``absent`` count cases, as in a report."""

    comparisons: list[Comparison] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)
    goldens: dict[str, int] = field(default_factory=dict)
    absent: dict[str, int] = field(default_factory=dict)

    def add(self, other: Examined) -> None:
        self.comparisons += other.comparisons
        self.problems += other.problems
        self.measured += other.measured
        for mine, theirs in ((self.goldens, other.goldens), (self.absent, other.absent)):
            for name, count in theirs.items():
                mine[name] = mine.get(name, 0) + count


@functools.lru_cache(maxsize=8)
def subject_named(name: str) -> Subject:
    """``live``, ``frozen``, ``revision:SHA``, ``checkout:PATH``, ``module:Class`` or the name of an entry point.

    What cannot be found, or does not start, is a ValueError that says why.
    """
    if name == LIVE:
        return live_subject()
    if name == FROZEN:
        return frozen_subject()
    try:
        source = source_named(name, Checkout.here())
        return load_subject(name) if source is None else ProcessSubject(source).started()
    except (CheckoutError, SubjectFailed) as error:
        raise ValueError(f"subject {name!r}: {error}") from error


def runner(subject: Subject) -> Runner:
    """``run(case, threads=1, watch=True)`` of a subject; one that knows neither runs as it always does."""
    if isinstance(subject, Implementation | ProcessSubject):
        return subject.run
    return lambda case, **_: subject.run(case)


def examine(case: Case, subject_name: str = LIVE) -> Examined:
    """All judges on one case.

    An exception in a judge, the oracle, the frozen copies or a golden is a problem that names the case and the place:
    it never counts as agreement, nor as a difference of the code under examination.
    """
    run = runner(subject_named(subject_name))
    return judge(case, subject_name, run, *outcome_of(case, subject_name, run))


def examine_all(cases: Sequence[Case], subject_name: str = LIVE) -> Examined:
    """The same for many cases; a subject in another process is asked for the outcomes of all of them at a time."""
    found, subject = Examined(), subject_named(subject_name)
    if not isinstance(subject, ProcessSubject):
        for case in cases:
            found.add(examine(case, subject_name))
        return found
    bundled = Bundled(subject)
    bundled.fetch(cases)
    given = {case.id: outcome_of(case, subject_name, bundled.run) for case in cases}
    ran = [(case, out) for case in cases if (out := given[case.id][0]) is not None and out.failure is None]
    chosen = {case.id: guarded(Examined(), case, "", partial(_chosen, subject_name, case, out)) for case, out in ran}
    bundled.fetch([case for case, _ in ran], threads=THREADS)
    transformed = [run.case for several in chosen.values() for one in several or () for run in one.runs]
    bundled.fetch(list({id(case): case for case in transformed}.values()), watch=False)
    for case in cases:
        found.add(judge(case, subject_name, bundled.run, *given[case.id], chosen=chosen.get(case.id)))
    return found


def outcome_of(case: Case, subject_name: str, run: Runner) -> tuple[Outcome | None, Examined]:
    """What the subject makes of a case, and the finding that it failed to or lacks the case, where it gives nothing."""
    found = Examined()
    outcome = guarded(found, case, "subject", lambda: run(case))
    if outcome is None and not found.problems:
        found.absent[subject_name] = 1
    return outcome, found


def judge(
    case: Case,
    subject_name: str,
    run: Runner,
    outcome: Outcome | None,
    found: Examined,
    *,
    chosen: Sequence[Transformation] | None = None,
    golden: bool = True,
) -> Examined:
    """``found``, and what all judges find on an ``outcome`` that ``run`` gave of a case.

    ``chosen``: the transformations to run, where they were chosen before. ``golden``: whether it has one.
    """
    if outcome is None:
        return found
    steps: dict[str, Callable[[], None]] = {
        "bits against frozen": lambda: _frozen(found, case, outcome, subject_name),
        "bits against golden": lambda: _golden(found, case, outcome) if golden else None,
        "rounding": lambda: rounded(found, case, outcome),
        "invariance": lambda: found.comparisons.extend(
            judge_invariance(case, outcome, run, _chosen(subject_name, case, outcome) if chosen is None else chosen)
        ),
        "contract": lambda: found.comparisons.extend(judge_contract(case, outcome)),
    }
    for where, step in steps.items():
        guarded(found, case, where, step)
    return found


def _chosen(subject_name: str, case: Case, outcome: Outcome) -> list[Transformation]:
    """The transformations to run; a mode of this thread is none that a subject in another process could feel."""
    elsewhere = isinstance(subject_named(subject_name), ProcessSubject)
    return [one for one in chosen_transformations(case, outcome) if not (one.flush_denormal and elsewhere)]


def guarded(found: Examined, case: Case, where: str, step: Callable[[], Result]) -> Result | None:
    """What ``step`` gives; an exception in it is a problem of the harness, and gives None."""
    try:
        return step()
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"
        found.problems.append(Problem(case.id, where, message))
        return None


def _frozen(found: Examined, case: Case, outcome: Outcome, subject_name: str) -> None:
    if subject_name == FROZEN:
        return
    reference = subject_named(FROZEN).run(case)
    if reference is None:
        found.absent[FROZEN] = 1
        return
    found.comparisons.extend(judge_bits(case, outcome, reference, FROZEN))


def _golden(found: Examined, case: Case, outcome: Outcome) -> None:
    compared = compare_with_golden(case, outcome, _goldens())
    found.goldens[NO_GOLDEN if compared is None else UNRECORDED if unrecorded(compared) else COMPARED] = 1
    found.comparisons.extend(compared or ())


@functools.lru_cache(maxsize=1)
def _goldens():
    return default_store()


def rounded(found: Examined, case: Case, outcome: Outcome) -> None:
    """Adds the rounding judge's comparisons and what they measured."""
    exact = evaluate(case)
    if exact is None:
        if case.algorithm not in ROUTES and case.error is None and case.stage in NUMERIC:
            found.absent[ORACLE] = 1
        return
    judged = judge_rounding(case, outcome, exact)
    found.comparisons.extend(judged)
    for comparison in judged:
        one = exact.get(comparison.what)
        if one is not None and comparison.ulps is not None:
            elements, unjudged = len(one.values), one.unjudged
            found.measured.append(
                Measured(one.formula, comparison.ulps, one.bound_ulps, 1, case.id, elements, unjudged)
            )
