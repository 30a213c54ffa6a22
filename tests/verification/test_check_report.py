"""The report of a check: tables, counts, JSON and the hint under the differences."""

from __future__ import annotations

import json

import pytest

from tests.verification.check_cases import cases
from verification.cases import corpus
from verification.check import run_check
from verification.judges.comparison import Comparison
from verification.oracle.routes import ROUTES
from verification.report.as_json import as_json
from verification.report.sheets import sheets
from verification.report.summary import Measured, Report, merge_measured
from verification.report.terminal import difference_lines


def test_counts_of_the_exact_engine_are_reported():
    """GDPO cases show how many outputs the exact engine gave, and how many by fallback."""
    report = run_check(cases("reward.normalize", "gdpo", 20), jobs=1, whole=False)
    assert report.counters["groups outputs"] > 0
    assert 0 <= report.counters["groups fallback"] <= report.counters["groups outputs"]
    (facts,) = [sheet for sheet in sheets(report) if sheet.title == "run"]
    assert any("by exact arithmetic" in value for _, value in facts.rows)


def test_tables_count_what_there_is():
    """Rows by stage and algorithm add up to the totals; the formula table keeps the case nearest its bound."""
    one = Comparison("s/a/1", "s", "a", "bits", "frozen", "x", True, 0.0)
    other = Comparison("s/a/2", "s", "a", "invariance", "groups relabelled", "x", False, 3.0)
    rounding = Comparison("s/b/1", "s", "b", "rounding", "oracle", "x", True, 0.4)
    report = Report("live", (one, other, rounding), (), 3)
    assert [(row.algorithm, row.cases, row.comparisons, row.differences, row.ulps) for row in report.rows()] == [
        ("a", 2, 2, 1, 3.0),
        ("b", 1, 1, 0, None),
    ]
    assert report.by_judge() == [
        ("bits", "frozen", 1, 0),
        ("invariance", "itself", 1, 1),
        ("rounding", "oracle", 1, 0),
    ]
    merged = merge_measured([Measured("f", 0.4, 0.5, 1, "p"), Measured("f", 0.1, 0.5, 1, "q"), Measured("g", 2, 8)])
    assert [(one.formula, one.ulps, one.bound, one.comparisons, one.case) for one in merged] == [
        ("f", 0.4, 0.5, 2, "p"),
        ("g", 2, 8, 1, ""),
    ]


def test_the_json_report_is_strict():
    """Infinite distances and every difference survive as strict JSON."""
    far = Comparison("s/a/1", "s", "a", "bits", "frozen", "x", False, float("inf"), "got nan")
    loaded = json.loads(as_json(Report("live", (far,), (), 1)), parse_constant=pytest.fail)
    assert loaded["differences"][0]["ulps"] == "inf"
    assert (loaded["verdict"], loaded["exit_code"]) == ("VERDICT different (1)", 1)


def test_what_the_oracle_has_no_route_for_is_counted(monkeypatch):
    """A valid numeric case of an algorithm without a route in the oracle counts as "not there" in it."""
    monkeypatch.delitem(ROUTES, "rloo")
    chosen = [case for case in corpus() if case.stage == "loss.reduce" and case.algorithm == "rloo"]
    report = run_check(chosen, jobs=1, whole=False)
    assert report.absent["oracle"] == len(chosen) > 0


def test_the_hint_names_a_case_that_can_be_explained():
    """Differences of parity and of the lock have no case to explain; the hint takes the first that has one."""
    parity = Comparison("parity/coverage/x", "advantage.estimate", "x", "parity", "corpus", "reached", False)
    bits = Comparison("loss.reduce/grpo/mean-holes", "loss.reduce", "grpo", "bits", "frozen", "loss", False)
    hints = [line for line in difference_lines((parity, bits)) if "explain" in line]
    assert hints == ["    see one whole: relax-verify explain 'loss.reduce/grpo/mean-holes'"]
    assert not [line for line in difference_lines((parity,)) if "explain" in line]
