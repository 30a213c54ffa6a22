"""The check: what turns the verdict, by which judge, and what counts as a failure of the harness itself."""

from __future__ import annotations

import pytest
import torch

from relax.algorithms import rewards
from relax.algorithms.exact import gdpo
from relax.algorithms.formulas import group
from tests.verification.check_cases import cases
from verification import check, examine
from verification.cases import corpus
from verification.cases.case import Case
from verification.check import CheckInterrupted, run_check
from verification.goldens import GoldenStore, platform_of
from verification.goldens.digest import input_digest
from verification.goldens.text import Golden, render
from verification.judges.comparison import Comparison
from verification.subjects.live import live_subject


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
