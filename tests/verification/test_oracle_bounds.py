"""The bounds of the oracle hold for random and generated inputs, and nearly every element is judged."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.verification.oracle_cases import MAKERS, random_cases
from tests.verification.oracle_search import largest_distances
from verification.cases.case import STAGES
from verification.cases.strategies import reward_groups, single_reward_groups, whitening_batches
from verification.judges.rounding import judge_rounding
from verification.oracle import evaluate
from verification.oracle.bounds import BOUNDS
from verification.subjects.live import live_subject

LIVE = live_subject()


class TestBounds:
    """The table of bounds."""

    def test_each_bound_has_its_reason_and_was_not_exceeded(self):
        """Every entry states a reason, and the largest distance that was seen lies within it."""
        for formula, bound in BOUNDS.items():
            assert len(bound.reason) > 20, formula
            assert bound.seen <= bound.ulps <= 32, formula

    def test_random_cases_stay_within_the_bounds_and_use_all_of_them(self, capsys):
        """On random cases of every stage the live code and the frozen copies keep to each formula's bound."""
        largest = largest_distances(random_cases(2024, 40))
        assert capsys.readouterr().err == ""
        assert set(largest) == set(BOUNDS)
        for formula, (distance, case) in largest.items():
            assert distance <= BOUNDS[formula].ulps, (formula, case)

    def test_most_elements_are_judged(self):
        """Of the elements of random cases fewer than 1 in 20 are left unjudged and fewer than 1 in 50 undecided."""
        elements = unjudged = undecided = 0
        for case in random_cases(7, 40):
            for exact in (evaluate(case) or {}).values():
                elements += len(exact.values)
                unjudged += exact.unjudged
                undecided += exact.undecided
        assert elements > 10_000
        assert unjudged < elements / 20
        assert undecided < elements / 50

    def test_every_stage_has_random_cases(self):
        """The makers cover each numeric stage."""
        stages = {case.stage for case in random_cases(0, 12)}
        assert len(MAKERS) == 8
        assert stages == set(STAGES) - {"arguments.validate", "roles.resolve"}


class TestGenerated:
    """Generated groups of every structure: the live code is correctly rounded wherever the oracle has a value."""

    @settings(max_examples=60, deadline=None)
    @given(st.one_of(reward_groups(), whitening_batches()))
    def test_gdpo(self, case):
        """GDPO's three steps on flat, cancelling, near-tied, subnormal and largest columns."""
        expected = evaluate(case)
        assert expected is not None
        judged = judge_rounding(case, LIVE.run(case), expected)
        assert judged
        assert [one.detail for one in judged if not one.agrees] == []

    @settings(max_examples=60, deadline=None)
    @given(st.sampled_from(["grpo", "rloo", "reinforce_plus_plus_baseline"]).flatmap(single_reward_groups))
    def test_single_rewards(self, case):
        """The float32 formulas within their bounds and the leave-one-out score correctly rounded, where defined."""
        expected = evaluate(case)
        if expected is not None:
            judged = judge_rounding(case, LIVE.run(case), expected)
            assert [one.what for one in judged] == ["raw_rewards", "rewards"]
            assert [one.detail for one in judged if not one.agrees] == []
