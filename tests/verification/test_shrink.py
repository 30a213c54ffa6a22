"""Planted differences of many kinds shrink to the smallest input that shows them, and into no other difference."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.verification import diff_defects as defects
from verification.cases.case import Case
from verification.cases.registry import find
from verification.diff.findings import Shrunk
from verification.diff.run import NOT_AGAIN, NOT_ASKED, compare
from verification.diff.shrink import OUT_OF_TIME, Stopped, neighbours, shrink, size
from verification.diff.ways import Way, ways
from verification.subjects.in_process import Implementation
from verification.subjects.outcome import Outcome
from verification.subjects.process import SubjectFailed

REFUSED = "ValueError: reward 'format' of sample # (group #) is nan: a reward must be a finite real number"
MASKED = (
    "ValueError: response # is masked throughout its # tokens: its reward has no token to go to; unmask one of them, "
    "or leave the response out"
)
# What is planted, the case to begin with, the way of differing, and the samples and numbers that have to be left.
PLANTED: dict[str, tuple[Implementation, str, Way, tuple[int, int]]] = {
    "a role dropped": (
        defects.ROLES, "roles.resolve/ppo/async", Way("text roles", ""), (0, 0)),
    "epsilon": (
        defects.EPSILON, "reward.normalize/grpo/binary-g8", Way("rewards", "numbers"), (2, 2)),
    "n for n-1": (
        defects.POPULATION, "reward.normalize/sapo/tenths-g8", Way("rewards", "numbers"), (2, 2)),
    "another clip": (
        defects.CLIP, "policy.loss/grpo/move-large", Way("loss", "numbers"), (1, 3)),
    "a mask forgotten in a mean": (
        defects.MASK, "loss.reduce/gspo/mean-holes", Way("loss", "numbers"), (1, 2)),
    "a mask forgotten in a sum": (
        defects.MASK, "loss.reduce/grpo/sum-mask-trailing", Way("loss", "numbers"), (1, 2)),
    "the sign": (
        defects.SIGN, "kl.estimate/rloo/k1-coef0.1", Way("kl", "numbers"), (1, 2)),
    "the first token for the last": (
        defects.FIRST_TOKEN, "advantage.estimate/reinforce_plus_plus/no-mask", Way("advantages", "numbers"), (1, 3)),
    "an error swallowed": (
        defects.SWALLOWED, "advantage.estimate/reinforce_plus_plus/mask-zero", Way("failure", f"{MASKED} | a result"),
        (1, 3)),
    "another type of error": (
        defects.OTHER_TYPE, "reward.normalize/gdpo/bad-nan",
        Way("failure", f"{REFUSED} | {REFUSED.replace('ValueError', 'TypeError')}"), (2, 4)),
    "no longer one object": (
        defects.ALIASES, "advantage.estimate/grpo/mixed", Way("aliases", "advantages and returns"), (1, 2)),
    "weights dropped": (
        defects.WEIGHTS, "reward.normalize/gdpo/binary+halves-g8-unequal", Way("raw_rewards", "numbers"), (2, 4)),
    "an input written over": (
        defects.WRITTEN_OVER, "advantage.normalize/grpo/tokens-full", Way("mutated inputs", "advantages"), (1, 1)),
    "another dtype": (
        defects.DTYPE, "kl.estimate/grpo/k1-coef0.1", Way("kl", "torch.float32 | torch.float64"), (1, 2)),
    "entropy too high, from a large vocabulary": (
        defects.ENTROPY, "logprob.entropy/grpo/vocabulary-128", Way("entropy", "numbers"), (1, 2)),
    "entropy too high, in bfloat16": (
        defects.ENTROPY, "logprob.entropy/grpo/bfloat16-7", Way("entropy", "numbers"), (1, 2)),
    "the second of an optimizer batch": (
        defects.SECOND, "advantage.estimate/gdpo/plan-5.4.3", Way("advantages", "numbers"), (2, 4)),
    "an option ignored": (
        defects.KL_LOSS, "arguments.validate/grpo/kl-loss", Way("text use_kl_loss", ""), (3, 0)),
}  # fmt: skip


def shrunk(subject: Implementation, case: Case, **options: Any) -> Shrunk:
    """The smallest input of a comparison on one case."""
    (group,) = defects.compared(subject, [case], **options).groups
    assert group.smallest is not None
    return group.smallest


def keeps(subject: Implementation, case: Case, way: Way):
    """Whether a case still differs in ``way`` and in none in which ``case`` does not: said here once more."""
    start = compare(case, defects.LIVE.run(case), subject.run(case))
    assert start is not None
    allowed = ways(start.comparisons, start.a, start.b)

    def answer(cases: Sequence[Case]) -> list[bool]:
        found = [compare(one, defects.LIVE.run(one), subject.run(one)) for one in cases]
        shown = [() if one is None else ways(one.comparisons, one.a, one.b) for one in found]
        return [way in one and all(other in allowed for other in one) for one in shown]

    return answer


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_shrinks_to_its_smallest_input(name):
    """It has the stated size, differs in the same way still, and no single simplification of it does."""
    subject, identity, way, left = PLANTED[name]
    case = find(identity)
    found = shrunk(subject, case)
    assert (way, left, "") == (found.way, size(found.found.case), found.stopped)
    assert left < size(case)
    still = keeps(subject, case, way)
    assert still([found.found.case]) == [True]
    simpler = list(neighbours(found.found.case))
    assert [False] * len(simpler) == still(simpler)


def test_the_smallest_input_of_a_changed_epsilon_is_two_plain_rewards():
    """Of 24 samples in 3 groups a pair is left, its rewards 1 and 0, the group's size with it."""
    case = shrunk(defects.EPSILON, find("reward.normalize/grpo/tenths-g8")).found.case
    rewards = sorted(sample["reward"] for sample in case.inputs["samples"])
    assert (rewards, case.options["n_samples_per_prompt"]) == ([0.0, 1.0], 2)
    assert case.id == "reward.normalize/grpo/tenths-g8-shrunk"


def test_a_sum_in_another_order_shrinks_to_three_numbers_of_hundreds():
    """Of 258 tokens, valued in thirds, three are left whose sum, taken backwards, is an ulp away."""
    case = find("loss.reduce/grpo/sum-lengths-257.1")
    thirds = [tokens / np.float32(3) for tokens in case.inputs["values"]]
    case = replace(case, inputs={**case.inputs, "values": thirds})
    found = shrunk(defects.ORDER, case)
    assert (size(case), size(found.found.case), found.stopped) == ((2, 516), (1, 6), "")
    (tokens,) = found.found.case.inputs["values"]
    assert list(tokens[:2]) == [1.0, 1.0]
    assert found.found.ulps == 1.0
    simpler = list(neighbours(found.found.case))
    assert keeps(defects.ORDER, case, found.way)(simpler) == [False] * len(simpler)


def test_shrinking_gives_the_same_input_every_time():
    """Two runs from one case end at equal inputs and options."""
    case = find("policy.loss/grpo/move-large")
    one, other = (shrunk(defects.CLIP, case).found.case for _ in range(2))
    assert repr((one.inputs, one.options)) == repr((other.inputs, other.options))


def test_a_response_keeps_its_plan_and_lengths():
    """Of twelve responses in three optimizer batches two are left, counted by the plan and by their lengths."""
    inputs = shrunk(defects.SECOND, find("advantage.estimate/gdpo/plan-5.4.3")).found.case.inputs
    assert (inputs["mini_batch_sizes"], inputs["response_lengths"], inputs["total_lengths"]) == ([2], [1, 1], [6, 6])
    assert [array.shape for array in inputs["kl"]] == [(1,), (1,)]


def _fails_on_one_response(live, *positional, log_probs, **keywords):
    if len(log_probs) == 1:
        raise RuntimeError("another defect")
    return [-tokens for tokens in live(*positional, log_probs=log_probs, **keywords)]


def _nan_where_equal(live, *positional, **keywords):
    found = live(*positional, **keywords)
    return [torch.where(tokens == 0, torch.nan, -tokens) for tokens in found]


def _also_returns_on_few(live, *positional, **keywords):
    advantages, returns = live(*positional, **keywords)
    other = [2 * tokens for tokens in advantages]
    return other, (returns if len(returns) > 2 else [tokens + 1 for tokens in returns])


def test_a_number_that_differs_never_becomes_a_failure():
    """Where one response alone fails for another reason, two are left."""
    subject = defects.planted("kl_per_response", _fails_on_one_response)
    found = shrunk(subject, find("kl.estimate/rloo/k1-coef0.1"))
    assert (2, Way("kl", "numbers")) == (size(found.found.case)[0], found.way)
    assert found.found.b.failure is None


def test_a_number_that_differs_never_becomes_a_nan_nor_the_sign_of_a_zero():
    """Zeros, the simplest numbers of all, would show another difference: the kl that is left is none."""
    subject = defects.planted("kl_per_response", _nan_where_equal)
    found = shrunk(subject, find("kl.estimate/rloo/k1-coef0.1")).found
    assert (len(found.a.arrays), found.a.arrays["kl[0]"].item(), found.b.arrays["kl[0]"].item()) == (1, 1.0, -1.0)
    assert shrunk(defects.SIGN, find("kl.estimate/rloo/k1-coef0.1")).found.a.arrays["kl[0]"].item() == 1.0


def test_no_array_begins_to_differ_that_did_not_before():
    """Where returns differ too as soon as few responses are left, more of them stay."""
    subject = defects.planted("compute_advantages_and_returns", _also_returns_on_few)
    found = shrunk(subject, find("advantage.estimate/ppo/gamma0.9-lambd0.95-kl0.1"))
    assert size(found.found.case)[0] == 3
    assert {"advantages"} == {one.what.partition("[")[0] for one in found.found.comparisons}


def test_the_time_may_run_out():
    """Without time for a single round the case stays as it was, and the reason is given."""
    case = find("reward.normalize/grpo/binary-g8")
    found = shrunk(defects.EPSILON, case, shrink_seconds=1e-9)
    assert (OUT_OF_TIME, size(case)) == (found.stopped, size(found.found.case))


def test_shrinking_can_be_left_out():
    """With no seconds for it the smallest differing case is shown as it is."""
    case = find("reward.normalize/grpo/binary-g8")
    found = shrunk(defects.EPSILON, case, shrink_seconds=0.0)
    assert (NOT_ASKED, case) == (found.stopped, found.found.case)


def test_a_subject_that_breaks_ends_the_shrinking_with_what_was_found():
    """Two rounds succeed and the third cannot be asked: the case of the second is kept, and the reason."""
    case = find("reward.normalize/grpo/binary-g8")
    answer, rounds = keeps(defects.EPSILON, case, Way("rewards", "numbers")), []

    def breaking(cases: Sequence[Case]) -> list[bool]:
        rounds.append(len(cases))
        if len(rounds) > 3:
            raise Stopped("the process died")
        return answer(cases)

    found = shrink(case, breaking, deadline=time.monotonic() + 60)
    assert found.stopped == "the process died"
    assert size(found.case) < size(case)
    assert answer([found.case]) == [True]


class Once:
    """A subject that differs on the first call alone: later it agrees, or breaks."""

    name = "once"

    def __init__(self, error: Exception | None) -> None:
        self.error, self.calls = error, 0

    def run(self, case: Case) -> Outcome | None:
        self.calls += 1
        if self.calls == 1:
            return defects.EPSILON.run(case)
        if self.error is not None:
            raise self.error
        return defects.LIVE.run(case)


@pytest.mark.parametrize(
    ("error", "reason"), [(None, NOT_AGAIN), (SubjectFailed("the process died on it"), "the process died on it")]
)
def test_a_subject_that_cannot_be_asked_again_leaves_the_case_as_it_was(error, reason):
    """The difference that was seen stands, unshrunk, with the reason: it must not be lost over the shrinking."""
    case = find("reward.normalize/grpo/binary-g8")
    diff = defects.compared(Once(error), [case])
    found = diff.groups[0].smallest
    assert found is not None
    assert ("VERDICT different (1)", reason, case) == (diff.verdict, found.stopped, found.found.case)
