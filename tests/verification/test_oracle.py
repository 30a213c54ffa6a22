"""The oracle's rewards and roundings: vectors, field cases, cancellation, and the same formulas in decimals."""

from __future__ import annotations

import json
import math
from decimal import Decimal, getcontext
from fractions import Fraction
from pathlib import Path

import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from relax.algorithms.spec import list_algorithm_names
from tests.verification.oracle_cases import random_cases
from tests.verification.oracle_readings import doubles_of, floats_of, rewards_case
from verification.cases.case import Case
from verification.oracle import Exact, evaluate
from verification.oracle.reals import nearest_single, rational, single
from verification.oracle.returns import batch_whitened
from verification.oracle.routes import ROUTES
from verification.oracle.standardized import _settle, rational_root, standardized_sum

VECTORS = json.loads((Path(__file__).parents[2] / "verification/cases/data/gdpo-vectors.json").read_text())
getcontext().prec = 60


class TestVectors:
    """Values that were computed independently."""

    def test_every_combined_vector(self):
        """Steps 1 and 2 of GDPO give the bits of each of the combine vectors, through the stage."""
        assert len(VECTORS["combine"]) + len(VECTORS["whiten"]) == 600
        for vector in VECTORS["combine"]:
            weights = [float.fromhex(text) for text in vector["weights"]]
            keys = [f"key{k}" for k in range(len(weights))]
            rewards = [
                {key: float.fromhex(text) for key, text in zip(keys, sample, strict=True)}
                for group in vector["groups"]
                for sample in group
            ]
            options = {"gdpo_reward_keys": keys, "gdpo_reward_weights": weights}
            found = evaluate(rewards_case("gdpo", rewards, size=vector["group_size"], **options))["rewards"]
            expected = [float.fromhex(text) for group in vector["expected"] for text in group]
            assert list(map(float.hex, floats_of(found))) == list(map(float.hex, expected)), vector["name"]

    def test_every_whitened_vector(self):
        """Step 3 of GDPO gives the bits of each of the whiten vectors."""
        for vector in VECTORS["whiten"]:
            values = [float.fromhex(text) for text in vector["values"]]
            found = [nearest_single(value) for value in batch_whitened(values, [len(values)])]
            assert [number.hex() for number in found] == [float.fromhex(t).hex() for t in vector["expected"]], vector[
                "name"
            ]


class TestRounding:
    """The float32 nearest a real number."""

    @given(st.floats(allow_nan=False, allow_infinity=False))
    def test_a_double_rounds_as_the_hardware_rounds_it(self, value):
        """Rational and ball agree with the conversion in C for every double, zero aside from its sign."""
        expected = single(value)
        assert nearest_single(rational(value)) == expected
        assert nearest_single(arb(value)) == expected

    @pytest.mark.parametrize(
        ("value", "nearest"),
        [
            (1 + Fraction(1, 2**24), 1.0),
            (1 + Fraction(3, 2**24), 1.0 + 2.0**-22),
            (1 + Fraction(1, 2**24) + Fraction(1, 2**400), 1.0 + 2.0**-23),
            (-Fraction(1, 2**150), 0.0),
            (Fraction(3, 2**150), 2.0**-148),
            (Fraction(1, 2**150) + Fraction(1, 2**900), 2.0**-149),
            (Fraction(2**128 - 2**103), math.inf),
            (Fraction(2**128 - 2**103) - 1, float.fromhex("0x1.fffffep127")),
        ],
        ids=[
            "tie down to even",
            "tie up to even",
            "above a tie",
            "half the least",
            "tie of subnormals",
            "above half",
            "overflow",
            "below it",
        ],
    )
    def test_ties_and_ends(self, value, nearest):
        """Ties go to the even neighbour, also at the ends of the format."""
        assert nearest_single(fmpq(value.numerator, value.denominator)) == nearest

    def test_a_wide_ball_is_no_answer(self):
        """A ball that holds a midpoint of two floats has no nearest one."""
        assert nearest_single(arb(1 + 2.0**-24, 1e-30)) is None
        assert nearest_single(arb(1 + 2.0**-25, 1e-30)) == 1.0


class TestCancellation:
    """Sums of roots that are rational, or nearly so."""

    def test_three_roots_of_one_square_class_that_cancel_are_zero(self):
        """c1 / (sqrt 2 + e) + c2 / (2 sqrt 2 + e) + c3 / (3 sqrt 2 + e) with its root and its rest both gone is 0."""
        eps = rational(1e-4)
        squares = [fmpq(2 * k * k) for k in (1, 2, 3)]
        gaps = [square - eps * eps for square in squares]
        # sum c_k k / gap_k = 0 and sum c_k / gap_k = 0 hold for c_k / gap_k = 1, -2, 1.
        numerators = [gaps[0], -2 * gaps[1], gaps[2]]
        assert _settle(numerators, squares, eps) == fmpq(0)
        nudged = [numerators[0] + fmpq(1, 2**300), *numerators[1:]]
        assert nearest_single(_settle(nudged, squares, eps)) == 0.0
        assert float(_settle(nudged, squares, eps)) > 0.0

    def test_rational_roots_are_found(self):
        """4/9 has the root 2/3; 2 and 1/2 have none."""
        assert rational_root(fmpq(4, 9)) == fmpq(2, 3)
        assert rational_root(fmpq(2)) is None
        assert rational_root(fmpq(1, 2)) is None

    def test_a_rational_sum_ties_to_even(self):
        """With variance 1 and eps 0 the sum is rational, and the midpoint of two floats goes to the even one."""
        column = [fmpq(-1), fmpq(0), fmpq(1)]
        halfway = 1 + fmpq(1, 2**24)
        found = standardized_sum([column], [halfway], fmpq(0))
        assert [nearest_single(value) for value in found] == [-1.0, 0.0, 1.0]

    def test_near_weights(self):
        """Weights 16777216 and 16777217 on opposed components leave the true difference."""
        rewards = [{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 1.0}]
        options = {"gdpo_reward_keys": ["a", "b"], "gdpo_reward_weights": [16777216.0, 16777217.0]}
        found = floats_of(evaluate(rewards_case("gdpo", rewards, **options))["rewards"])
        assert found == [single(-0.7070068), single(0.7070068)]

    def test_constant_sum_cancels(self):
        """Two components that sum to a constant give +0 under equal weights."""
        rewards = [{"a": a, "b": 1.0 - a} for a in (0.0, 0.25, 0.5, 0.125)]
        found = evaluate(rewards_case("gdpo", rewards, gdpo_reward_keys=["a", "b"]))["rewards"]
        assert found.positive_zero
        assert [value == fmpq(0) or value.is_zero() for value in found.values] == [True] * 4

    def test_a_flat_group_is_zero_exactly(self):
        """Eight rewards of 0.2 are 0 in exact statistics, while the float32 formula is judged by a wide scale."""
        flat = evaluate(rewards_case("grpo", [0.2] * 8, exact_statistics=True))["rewards"]
        assert floats_of(flat) == [0.0] * 8
        assert flat.correctly_rounded
        baseline = evaluate(rewards_case("grpo", [0.2] * 8))["rewards"]
        assert baseline.scales == (single(0.2) / single(1e-6),) * 8

    def test_offset_batch(self):
        """The field case of step 3: the float32 inputs are what counts."""
        values = [single(value) for value in (1000.0, 1000.01, 1000.02, 1000.03)]
        found = [nearest_single(value) for value in batch_whitened(values, [4])]
        assert [round(value, 7) for value in found] == [-1.1529728, -0.3843243, 0.3843243, 1.1529728]


class TestGroupScores:
    """The reward stage."""

    def test_leave_one_out(self):
        """[1, 0, 0, 0] gives 1 and three times the float32 nearest -1/3, [0, .95 x 7] begins with -0.95."""
        found = floats_of(evaluate(rewards_case("rloo", [1.0, 0.0, 0.0, 0.0]))["rewards"])
        assert found == [1.0, *[single(-1 / 3)] * 3]
        near_tie = floats_of(evaluate(rewards_case("rloo", [0.0, *[0.95] * 7]))["rewards"])
        assert near_tie == [single(-0.95), *[single(0.95 / 7)] * 7]

    @settings(max_examples=50)
    @given(st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=9))
    def test_mean_and_std_by_decimals(self, group):
        """The group score equals the same formula in 60 decimal digits, with n - 1 and the float32 of 1e-6."""
        numbers = [Decimal(value) for value in group]
        mean = sum(numbers) / len(numbers)
        std = (sum((number - mean) ** 2 for number in numbers) / (len(numbers) - 1)).sqrt()
        expected = [float((number - mean) / (std + Decimal(single(1e-6)))) for number in numbers]
        found = doubles_of(evaluate(rewards_case("grpo", group))["rewards"])
        assert found == pytest.approx(expected, rel=1e-14, abs=1e-30)  # float() of either rounds once

    def test_switches_and_windows(self):
        """Without the std the centred rewards stay; groups do not see each other; raw rewards stay as given."""
        found = evaluate(rewards_case("grpo", [1.0, 0.0, 5.0, 7.0], size=2, grpo_std_normalization=False))
        assert doubles_of(found["rewards"]) == [0.5, -0.5, -1.0, 1.0]
        assert found["rewards"].formula == "reward.mean"
        assert doubles_of(found["raw_rewards"]) == [1.0, 0.0, 5.0, 7.0]
        off = evaluate(rewards_case("grpo", [0.1, 0.0], rewards_normalization=False))
        assert doubles_of(off["rewards"]) == [0.1, 0.0]

    @pytest.mark.parametrize(
        "rewards",
        [[1.0, math.nan], [1.0, None], [1.0, {"a": 1}], [1e300, 0.0]],
        ids=["nan", "none", "mapping", "large"],
    )
    def test_what_is_malformed_has_no_value(self, rewards):
        """A reward that is no finite float32 leaves the oracle silent."""
        assert evaluate(rewards_case("grpo", rewards)) is None

    def test_signal(self):
        """Rewards that differ only beyond float32 carry no signal; a NaN answers False; GDPO asks its own result."""

        def signal(algorithm, rewards, **options):
            case = rewards_case(algorithm, rewards, **options)
            found = evaluate(Case("oracle/signal", "reward.signal", algorithm, case.inputs, case.options))["signal"]
            return bool(found.values[0] == 1)

        assert signal("grpo", [1.0, 0.0])
        assert not signal("grpo", [1.0, 1.0 + 2.0**-30])
        assert not signal("grpo", [math.nan, 0.0])
        opposed = [{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 1.0}]
        assert not signal("gdpo", opposed, gdpo_reward_keys=["a", "b"])
        assert signal("gdpo", opposed, gdpo_reward_keys=["a", "b"], gdpo_reward_weights=[2.0, 1.0])


def test_every_registered_algorithm_has_a_route():
    """An algorithm without a line in the oracle's table would be judged by no exact value."""
    missing = sorted(set(list_algorithm_names()) - set(ROUTES))
    assert not missing, f"add a line for {', '.join(missing)} to ROUTES in verification/oracle/routes.py"
    assert not set(ROUTES) - set(list_algorithm_names())


def test_malformed_cases_are_none_of_its_business():
    """A case that expects an error, a stage without numbers and an unknown algorithm have no exact result."""
    good = rewards_case("grpo", [1.0, 0.0])
    assert evaluate(good) is not None
    assert evaluate(Case("a", good.stage, good.algorithm, good.inputs, good.options, error=("x",))) is None
    assert evaluate(Case("b", "roles.resolve", "grpo", {})) is None
    assert evaluate(Case("c", good.stage, "another", good.inputs, good.options)) is None


def test_inputs_are_left_alone():
    """Evaluating a case changes none of its arrays."""
    case = next(iter(random_cases(1, 1)))
    before = json.dumps(case.inputs, default=str)
    evaluate(case)
    assert json.dumps(case.inputs, default=str) == before


def test_a_formula_without_a_bound_is_refused():
    """An exact array must name an entry of the table, and one scale a value."""
    with pytest.raises(ValueError, match=r"bounds\.py"):
        Exact((), (), (0,), "no such formula")
    with pytest.raises(ValueError, match="1 values, 0 scales"):
        Exact((fmpq(1),), (), (1,), "kl.k1")
