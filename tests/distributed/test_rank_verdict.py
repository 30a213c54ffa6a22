"""Rank cases on real ranks: what a run of them finds, counts and says."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase

import pytest

from verification.cases import find
from verification.judges.comparison import Comparison
from verification.ranks.cases import RankCase, rank_cases
from verification.ranks.layout import Layout
from verification.ranks.pool import RankPool
from verification.ranks.report import RankReport, layout_name, report_as_dict, sheets
from verification.ranks.run import run_case, run_rank_cases

pytestmark = pytest.mark.usefixtures("megatron")


def matching(pattern: str) -> list[RankCase]:
    """The rank cases whose id follows the pattern."""
    return [case for case in rank_cases() if fnmatchcase(case.id, pattern)]


def details(report: RankReport) -> list[str]:
    """What the differences and problems of a report say."""
    return [one.detail for one in report.differences] + [one.message for one in report.problems]


@pytest.mark.parametrize(
    "fault", ["field-cp-whitening", "field-empty-slice", "field-early-return", "field-hidden-origin"]
)
def test_field_cases_hold_on_every_layout(fault: str) -> None:
    """The faults that only ranks can show have their right outcome on every layout they are run on."""
    cases = matching(f"*/{fault}*")
    assert len(cases) >= 10
    report = run_rank_cases(cases)
    assert details(report) == []
    assert report.verdict == "VERDICT equivalent"
    assert {case.id for case in cases} == {one.case for one in report.comparisons}


def test_a_run_counts_what_it_did() -> None:
    """Cases, comparisons by layout, worlds and ends of ranks, in the report, its tables and its JSON."""
    cases = [
        RankCase(find(f"advantage.estimate/gdpo/{name}"), "advantages", Layout.parse(layout))
        for name in ("plan-5.4.3", "plan-none")
        for layout in ("dp2", "cp2")
    ]
    seen: list[tuple[int, int]] = []
    report = run_rank_cases(cases, jobs=2, progress=lambda done, total: seen.append((done, total)))
    assert details(report) == []
    assert seen[-1] == (4, 4)
    assert dict(report.ended) == {"value": 4, "failure": 4}
    assert report.worlds == 2
    assert [(row.layout, row.cases) for row in report.by_layout()] == [("cp2", 2), ("dp2", 2)]
    told = report_as_dict(report)
    assert (
        told["verdict"], told["exit_code"], told["cases"], told["ranks"],
    ) == ("VERDICT equivalent", 0, 4, {"value": 4, "failure": 4})  # fmt: skip
    assert len(report.comparisons) == sum(row["comparisons"] for row in told["layouts"])
    assert [sheet.title for sheet in sheets(report)] == ["rank cases", "compared with", "run"]


@pytest.fixture
def other_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank's results are those of doubled rewards: every layout then gives something else."""
    from verification.ranks import run

    def doubled(rank_case: RankCase):
        inputs = {**rank_case.case.inputs, "rewards": [2 * reward for reward in rank_case.case.inputs["rewards"]]}
        return kept(replace(rank_case, case=replace(rank_case.case, inputs=inputs)))

    kept = run.reference
    monkeypatch.setattr(run, "reference", doubled)


@pytest.mark.usefixtures("other_reference")
def test_another_result_turns_the_verdict() -> None:
    """Ranks that give half of what one rank gives are a verdict of "different", counted by the judge."""
    report = run_rank_cases([RankCase(find("advantage.estimate/grpo/mixed"), "advantages", Layout(dp=2))])
    assert report.verdict == "VERDICT different (2)"  # advantages and returns; the kl is the same
    assert report.exit_code == 1
    assert report.by_judge() == [("ranks", "every rank", 1, 0), ("ranks", "one rank", 3, 2)]


def test_a_failure_of_the_harness_is_no_verdict() -> None:
    """A case whose program does not exist differs; a case that cannot be cut is a problem, and there is no verdict."""
    case = find("advantage.estimate/grpo/mixed")
    report = run_rank_cases([RankCase(case, "no_such_program", Layout(dp=2))])
    assert (report.exit_code, report.verdict) == (2, None)
    assert [one.message.partition(" (")[0] for one in report.problems] == ["KeyError: 'no_such_program'"]


def test_nothing_compared_is_no_verdict() -> None:
    """A report without a comparison says nothing, and that is no agreement."""
    report = RankReport("live", (), (), 3)
    assert (report.exit_code, report.verdict) == (2, None)
    agreed = Comparison("a/b/c@dp2", "a", "b", "ranks", "one rank", "x", True)
    assert replace(report, comparisons=(agreed,)).exit_code == 0
    assert replace(report, comparisons=(agreed, replace(agreed, agrees=False))).exit_code == 1


def test_layouts_are_read_from_ids() -> None:
    """The layout stands between the @ and the first +."""
    assert (layout_name("a/b/c@dp2-cp2+bshd+padded"), layout_name("a/b/c@one")) == ("dp2-cp2", "one")


def test_step_three_meets_twice(pool: RankPool) -> None:
    """GDPO's advantages take two exchanges of whitening, and one for agreeing before and after each."""
    rank_case = RankCase(find("advantage.estimate/gdpo/plan-5.4.3"), "advantages", Layout(dp=2))
    run = run_case(rank_case, pool)
    run.values()
    of_whitening = [one for one in run.ranks[0].collectives if "int64[2, 6]" in one or "float64" in one]
    assert len(of_whitening) == 2
    assert len(run.ranks[0].collectives) <= 4
