"""The verdict of a check: differences win over problems, silence is none, a fault of the harness is neither."""

from __future__ import annotations

import json

import pytest
import torch
from flint import arb

from tests.verification.check_cases import cases
from verification import check, examine
from verification.cases import corpus
from verification.check import run_check
from verification.judges.comparison import Comparison
from verification.oracle import Exact
from verification.report.as_json import as_json
from verification.report.summary import Problem, Report
from verification.subjects.outcome import Outcome

AGREEING = Comparison("s/a/1", "s", "a", "bits", "frozen", "x", True, 0.0)
DIFFERING = Comparison("s/a/1", "s", "a", "bits", "frozen", "y", False, 1.0)
PROBLEM = Problem("s/a/1", "rounding", "RuntimeError: out of order")


@pytest.mark.parametrize(
    ("comparisons", "problems", "verdict", "status"),
    [
        ((AGREEING,), (), "VERDICT equivalent", 0),
        ((AGREEING, DIFFERING), (), "VERDICT different (1)", 1),
        ((AGREEING, DIFFERING), (PROBLEM,), "VERDICT different (1)", 1),
        ((DIFFERING,), (PROBLEM,), "VERDICT different (1)", 1),
        ((AGREEING,), (PROBLEM,), None, 2),
        ((), (PROBLEM,), None, 2),
        ((), (), None, 2),
    ],
)
def test_differences_win_over_problems_and_silence_is_no_verdict(comparisons, problems, verdict, status):
    """1 whenever something differs; else 2 and no verdict where the harness failed or compared nothing; else 0."""
    found = Report("live", comparisons, problems, 1)
    assert (found.verdict, found.exit_code) == (verdict, status)
    assert bool(found.no_verdict) is (verdict is None)
    told = json.loads(as_json(found))
    assert (told["verdict"], told["exit_code"], told["no_verdict"]) == (verdict, status, found.no_verdict or None)


class Nothing:
    """A subject that has no case at all."""

    name = "nothing"

    def run(self, case):
        return None


class Unfinished:
    """Public calls that all say that they are not there yet."""

    def reduce_loss(self, args, **inputs):
        raise NotImplementedError("not yet")


class Raising:
    """A subject that breaks the protocol: it raises."""

    name = "raising"

    def run(self, case):
        raise NotImplementedError("not yet")


@pytest.mark.parametrize("subject", ["Nothing", "Unfinished"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_subject_without_the_cases_has_no_verdict(subject, whole):
    """Zero comparisons are no equivalence: no verdict, exit 2, and how many cases were not there."""
    chosen = cases("loss.reduce", "grpo", 3)
    report = run_check(chosen, subject=f"{__name__}:{subject}", jobs=1, whole=whole)
    assert (report.comparisons, report.problems, report.not_there) == ((), (), 3)
    assert (report.exit_code, report.verdict) == (2, None)
    assert report.no_verdict.startswith("nothing was compared: ")
    assert report.no_verdict.endswith("has 0 of the 3 cases")


def test_cases_that_nothing_compares_have_no_verdict():
    """A choice of cases that the frozen copies do not have gives no verdict on the frozen copies."""
    report = run_check(cases("reward.normalize", "gdpo", 3), subject="frozen", jobs=1, whole=False)
    assert (report.comparisons, report.not_there, report.exit_code, report.verdict) == ((), 3, 2, None)


def test_a_subject_that_raises_is_a_problem_everywhere():
    """An exception of the subject itself names its case, that of a known weakness included, and gives no verdict."""
    (weakness,) = [case for case in corpus() if case.id == "reward.normalize/grpo/g1"]
    report = run_check([weakness], subject=f"{__name__}:Raising", jobs=1, whole=False)
    assert [(one.case, one.where) for one in report.problems] == [(weakness.id, "subject"), ("-", "known weaknesses")]
    assert (report.exit_code, report.verdict) == (2, None)


def test_elements_that_are_not_judged_are_counted_as_the_judge_skips_them(monkeypatch):
    """A scale beyond the format leaves an element unjudged, and the table says so."""
    (case,) = cases("loss.reduce", "grpo", 1, "mean-holes")
    beyond = Exact((arb(1), None, arb(0)), (float("inf"), 1.0, 1.0), (3,), "reduce.sample_mean")
    monkeypatch.setattr(examine, "evaluate", lambda case: {"loss": beyond})
    monkeypatch.setattr(examine, "subject_named", lambda name: _Three())
    monkeypatch.setattr(check, "subject_named", examine.subject_named)
    (measured,) = run_check([case], subject="three", jobs=1, whole=False).formulas
    assert (measured.elements, measured.unjudged) == (3, 2)


class _Three:
    name = "three"

    def run(self, case):
        return Outcome(arrays={"loss": torch.zeros(3)})


@pytest.mark.parametrize(
    ("place", "where"),
    [
        ("judge_bits", "bits against frozen"),
        ("compare_with_golden", "bits against golden"),
        ("judge_rounding", "rounding"),
        ("judge_invariance", "invariance"),
        ("judge_contract", "contract"),
    ],
)
def test_an_exception_in_the_harness_is_a_problem(monkeypatch, place, where):
    """A judge that fails names the case, gives exit 2 and no verdict; the other judges still judge."""

    def broken(*arguments, **keywords):
        raise RuntimeError("out of order")

    monkeypatch.setattr(examine, place, broken)
    chosen = cases("loss.reduce", "grpo", 2)
    report = run_check(chosen, jobs=1, whole=False)
    assert [(one.case, one.where) for one in report.problems] == [(case.id, where) for case in chosen]
    assert "RuntimeError: out of order" in report.problems[0].message
    assert (report.exit_code, report.verdict) == (2, None)
    assert report.comparisons
