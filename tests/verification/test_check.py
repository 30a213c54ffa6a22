"""The check: what turns the verdict, by which judge, and what counts as a failure of the harness itself."""

from __future__ import annotations

import json

import pytest
import torch
from flint import arb

from relax.algorithms import rewards
from relax.algorithms.exact import gdpo
from relax.algorithms.formulas import group
from verification import check, examine
from verification.cases import corpus
from verification.cases.case import Case
from verification.check import CheckInterrupted, run_check
from verification.goldens import GoldenStore, platform_of
from verification.goldens.digest import input_digest
from verification.goldens.text import Golden, render
from verification.judges.comparison import Comparison
from verification.oracle import Exact
from verification.oracle.routes import ROUTES
from verification.report.as_json import as_json
from verification.report.sheets import sheets
from verification.report.summary import Measured, Problem, Report, merge_measured
from verification.report.terminal import difference_lines
from verification.subjects.live import live_subject
from verification.subjects.outcome import Outcome


def cases(stage: str, algorithm: str, count: int = 12, words: str = "") -> list[Case]:
    """Some valid cases of a stage, neither recorded groups nor vectors."""
    found = [
        case
        for case in corpus()
        if (case.stage, case.algorithm) == (stage, algorithm)
        and case.error is None
        and "real" not in case.tags
        and "vector" not in case.id
        and words in case.id
    ]
    assert found, f"no cases of {stage}/{algorithm}"
    return found[:count]


class Altered:
    """The working tree with one array of its outcomes altered."""

    name = "altered"

    def __init__(self, alter) -> None:
        self.alter, self.live = alter, live_subject()

    def run(self, case: Case):
        outcome = self.live.run(case)
        for name, tensor in list(outcome.arrays.items()):
            outcome.arrays[name] = self.alter(name, tensor)
        return outcome


def judges_that_notice(monkeypatch, chosen, alter) -> set[str]:
    subject = Altered(alter)
    named = examine.subject_named
    monkeypatch.setattr(examine, "subject_named", lambda name: subject if name == "altered" else named(name))
    monkeypatch.setattr(check, "subject_named", examine.subject_named)
    report = run_check(chosen, subject="altered", jobs=1)
    assert report.problems == ()
    assert report.exit_code == (1 if report.differences else 0)
    return {one.judge if one.judge != "bits" else one.against for one in report.differences}


def test_the_working_tree_is_equivalent_on_every_stage():
    """A few cases of each stage and algorithm, valid and malformed, give no difference and no problem."""
    groups: dict[tuple[str, str, bool], list[Case]] = {}
    for case in corpus():
        groups.setdefault((case.stage, case.algorithm, case.error is None), []).append(case)
    chosen = [case for found in groups.values() for case in (found[0], found[-1])]
    report = run_check(list({case.id: case for case in chosen}.values()), jobs=1, whole=False)
    assert [(one.case, one.judge, one.what, one.detail) for one in report.differences] == []
    assert report.problems == ()
    assert (report.verdict, report.exit_code) == ("VERDICT equivalent", 0)
    assert {row.stage for row in report.rows()} == {case.stage for case in corpus()}
    assert {one.judge for one in report.comparisons} == {"bits", "rounding", "invariance", "contract"}


def test_one_ulp_turns_the_verdict(monkeypatch):
    """One ulp on a policy loss is noticed against the frozen copies; nothing altered is no difference."""
    chosen = cases("policy.loss", "grpo")

    def one_ulp(name, tensor):
        return torch.nextafter(tensor, torch.full_like(tensor, 9e9)) if name == "loss" else tensor

    assert "frozen" in judges_that_notice(monkeypatch, chosen, one_ulp)
    assert judges_that_notice(monkeypatch, chosen, lambda name, tensor: tensor) == set()


def test_a_changed_formula_turns_the_verdict_of_new_algorithms(monkeypatch):
    """GDPO has no frozen copy: the oracle notices one ulp, and a factor as n for n-1 would bring."""
    chosen = cases("reward.normalize", "gdpo")

    def one_ulp(name, tensor):
        single = tensor.float()
        return torch.nextafter(single, torch.full_like(single, 9e9)).double() if name == "rewards" else tensor

    def biased(name, tensor):
        return tensor * (8 / 7) ** 0.5 if name == "rewards" else tensor

    assert "rounding" in judges_that_notice(monkeypatch, chosen, one_ulp)
    assert "rounding" in judges_that_notice(monkeypatch, chosen, biased)


def test_a_wrong_sign_and_constants_turn_the_verdict(monkeypatch):
    """Negated, zero and constant results never pass."""
    for stage, algorithm in (("advantage.estimate", "reinforce_plus_plus"), ("loss.reduce", "grpo")):
        chosen = cases(stage, algorithm)
        for alter in (lambda n, t: -t, lambda n, t: t * 0, lambda n, t: torch.ones_like(t)):
            assert "frozen" in judges_that_notice(monkeypatch, chosen, alter)


def _biased(values: torch.Tensor) -> torch.Tensor:
    centred = values - values.mean(dim=1, keepdim=True)
    return centred / (centred.std(dim=1, keepdim=True, unbiased=False) + 1e-6)


def _over_the_batch(args, samples, raw_rewards) -> list[float]:
    centred = torch.tensor(raw_rewards, dtype=torch.float32)
    return (centred - centred.mean()).tolist()


@pytest.mark.parametrize(
    ("fault", "algorithm", "judges"),
    [
        # A wrong kernel wired to an algorithm.
        ({"group_mean_std": rewards.normalize_by_mean}, "grpo", {"frozen", "rounding"}),
        # The group's mean replaced by the batch's.
        ({"group_mean": _over_the_batch}, "reinforce_plus_plus_baseline", {"frozen", "rounding", "invariance"}),
        # Epsilon moved.
        ((group, "EPSILON", 1e-4), "grpo", {"frozen", "rounding"}),
        ((gdpo, "EPSILON", 1e-6), "gdpo", {"rounding"}),
        # n for n-1.
        ((group, "group_mean_std", _biased), "grpo", {"frozen", "rounding"}),
        # A weight dropped.
        ((rewards, "component_weights", lambda args: [1.0] * len(args.gdpo_reward_keys)), "gdpo", {"rounding"}),
    ],
    ids=["wrong-kernel", "batch-for-group", "epsilon", "gdpo-epsilon", "n-for-n-1", "weight-dropped"],
)
def test_a_fault_in_the_working_tree_turns_the_verdict(monkeypatch, fault, algorithm, judges):
    """A fault set into the live code gives differences, found at least by these judges, and no problem."""
    if isinstance(fault, dict):
        for name, kernel in fault.items():
            monkeypatch.setitem(rewards.REWARD_NORMALIZERS, name, kernel)
    else:
        monkeypatch.setattr(*fault)
    report = run_check(cases("reward.normalize", algorithm, 40), jobs=1, whole=False)
    assert report.problems == ()
    assert report.exit_code == 1
    assert judges <= {one.against if one.judge == "bits" else one.judge for one in report.differences}


def test_goldens_are_compared_and_counted(monkeypatch, tmp_path):
    """A golden that holds agrees, other bits and a missing file differ, a damaged one is a problem."""
    held, other, damaged, without = cases("loss.reduce", "grpo", 4)
    store = GoldenStore(tmp_path)
    monkeypatch.setattr(examine, "_goldens", lambda: store)
    for case in (held, other, damaged):
        outcome = live_subject().run(case)
        if case is other:
            outcome.arrays["loss"] = outcome.arrays["loss"] + 1
        path = store.path(case.id, platform_of(case))
        path.parent.mkdir(parents=True, exist_ok=True)
        text = render(Golden(case.id, platform_of(case), input_digest(case), outcome))
        path.write_text(text.replace("float32", "float33") if case is damaged else text, encoding="utf-8")
    report = run_check([held, other, damaged, without], jobs=1, whole=False)
    missing = "no golden recorded for this case"
    assert report.goldens == {"compared": 2, missing: 1}
    assert {(one.case, one.against, one.what) for one in report.differences} == {
        (other.id, "golden", "loss"),
        (without.id, "golden", missing),
    }
    assert [(one.case, one.where) for one in report.problems] == [(damaged.id, "bits against golden")]
    assert (report.exit_code, report.verdict) == (1, "VERDICT different (2)")
    monkeypatch.setattr(examine, "_goldens", lambda: GoldenStore(tmp_path / "empty"))
    report = run_check([held, other, damaged, without], jobs=1, whole=False)
    assert (report.goldens, report.verdict) == ({"no golden here": 4}, "VERDICT equivalent")


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


def test_two_processes_find_what_one_finds():
    """The spread over processes changes neither comparisons nor tallies, and reports progress to the end."""
    chosen = cases("kl.estimate", "grpo", 40)
    seen: list[tuple[int, int]] = []
    one = run_check(chosen, jobs=1, whole=False)
    two = run_check(chosen, jobs=2, whole=False, progress=lambda done, total: seen.append((done, total)))
    assert sorted(map(repr, one.comparisons)) == sorted(map(repr, two.comparisons))
    assert (one.goldens, one.absent, one.formulas) == (two.goldens, two.absent, two.formulas)
    assert seen[-1] == (len(chosen), len(chosen))
    assert seen == sorted(seen)


def test_a_dead_worker_is_an_error(monkeypatch):
    """A worker process that dies ends the check with an error, never with a verdict."""
    monkeypatch.setattr(check, "_examine_all", _die)
    with pytest.raises(CheckInterrupted, match="a worker process died"):
        run_check(cases("kl.estimate", "grpo", 4), jobs=2, whole=False)


def _die(cases, subject):
    import os

    os._exit(3)


def test_the_lock_and_parity_belong_to_the_whole(monkeypatch):
    """An unfiltered check adds the lock of the frozen copies and routing parity; a broken lock is a difference."""
    import verification.frozen.lock as lock
    import verification.parity as parity

    about = Comparison("parity/x", "parity", "grpo", "parity", "frozen", "kernel", True)
    monkeypatch.setattr(parity, "run_parity", lambda: [about])
    monkeypatch.setattr(lock, "check_lock", lambda: ["verification/frozen/kl.py differs from its locked hash"])
    report = run_check(cases("loss.reduce", "grpo", 1), jobs=1)
    assert about in report.comparisons
    assert [(one.judge, one.detail) for one in report.differences] == [
        ("lock", "verification/frozen/kl.py differs from its locked hash")
    ]
    assert report.verdict == "VERDICT different (1)"
    part = run_check(cases("loss.reduce", "grpo", 1), jobs=1, whole=False)
    assert {one.judge for one in part.comparisons}.isdisjoint({"lock", "parity"})


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
