"""The rounding judge is shown planted differences of each kind, and must notice each, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from flint import arb

from verification.cases.case import Case
from verification.judges.comparison import Comparison
from verification.judges.rounding import judge_rounding
from verification.oracle import Exact, evaluate
from verification.oracle.reals import nearest_single, single
from verification.subjects.outcome import Failure, Outcome

REWARDS = [0.1, 0.7, 0.30000000000000004, 1.0]
OLD, NEW, ADVANTAGES = [-1.0, -0.5, -2.0, -1.25], [-1.125, -0.875, -1.0, -1.25], [1.5, -0.5, 2.0, -1.0]


def rewards_case(algorithm: str, rewards: list, **options) -> Case:
    """One prompt group."""
    samples = [{"index": i, "group_index": 0, "reward": reward} for i, reward in enumerate(rewards)]
    return Case(
        "meta/rewards",
        "reward.normalize",
        algorithm,
        {"samples": samples},
        {"n_samples_per_prompt": len(rewards), **options},
    )


def components_case(weights: list[float] | None = None) -> Case:
    """One prompt group of GDPO."""
    pairs = [(1.0, 0.5), (0.0, 1.0), (0.0, 0.0), (1.0, 1.0)]
    options = {"gdpo_reward_keys": ["a", "b"], "gdpo_reward_weights": weights}
    return rewards_case("gdpo", [{"a": a, "b": b} for a, b in pairs], **options)


def policy_case(**options) -> Case:
    """One response of PPO's clipped objective."""
    arrays = {
        name: [np.array(row, dtype=np.float32)]
        for name, row in (("old_log_probs", OLD), ("log_probs", NEW), ("advantages", ADVANTAGES))
    }
    inputs = {**arrays, "loss_masks": [np.ones(4, dtype=np.float32)], "rollout_log_probs": None}
    return Case("meta/policy", "policy.loss", "grpo", inputs, options)


def faithful(case: Case) -> dict[str, torch.Tensor]:
    """The arrays of a subject whose every result is the float32 nearest the real number."""
    arrays = {}
    for name, exact in evaluate(case).items():
        numbers = [nearest_single(value) for value in exact.values]
        arrays[name] = torch.tensor(numbers, dtype=torch.float64).to(exact.dtype or torch.float32).reshape(exact.shape)
    if "raw_rewards" in arrays:
        arrays["raw_rewards"] = torch.tensor([float(s["reward"]) for s in case.inputs["samples"]], dtype=torch.float64)
    return arrays


def found(case: Case, arrays: dict[str, torch.Tensor], what: str) -> Comparison:
    """The judge's finding on one array, the others being judged right."""
    comparisons = judge_rounding(case, Outcome(arrays=arrays))
    assert all(one.judge == "rounding" and one.against == "oracle" and one.case == case.id for one in comparisons)
    assert [one.what for one in comparisons if not one.agrees and one.what != what] == []
    return next(one for one in comparisons if one.what == what)


def planted(case: Case, what: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Comparison:
    """The finding after ``change`` to one array of a faithful outcome."""
    arrays = faithful(case)
    arrays[what] = change(arrays[what].clone())
    return found(case, arrays, what)


def replaced(index: int, number: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """The change of one element to ``number``."""

    def change(array: torch.Tensor) -> torch.Tensor:
        array[index] = number
        return array

    return change


def step_up(number: float) -> float:
    """The next float32 above."""
    return float(np.nextafter(np.float32(number), np.float32(math.inf)))


CASES = {
    "exact statistics": rewards_case("grpo", REWARDS, exact_statistics=True),
    "group score": rewards_case("grpo", REWARDS),
    "leave one out": rewards_case("rloo", REWARDS),
    "policy": policy_case(),
    "weights": policy_case(eps_clip_c=1.1),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_faithful_outcome_agrees(case):
    """Nearest float32 values are within half an ulp everywhere."""
    comparisons = judge_rounding(case, Outcome(arrays=faithful(case)))
    assert len(comparisons) == len(evaluate(case))
    for one in comparisons:
        assert one.agrees
        assert one.detail == ""
        assert one.ulps <= 0.5


@pytest.mark.parametrize("name", ["exact statistics", "leave one out"])
@pytest.mark.parametrize("index", range(4))
def test_one_ulp_on_a_correctly_rounded_result(name, index):
    """A single step up or down from the nearest float32 is a difference that names index, both values and ulps."""
    case = CASES[name]
    number = faithful(case)["rewards"][index].item()
    for other in (step_up(number), -step_up(-number)):
        one = planted(case, "rewards", replaced(index, other))
        assert not one.agrees
        assert 0.5 <= one.ulps <= 1.5
        for part in (f"index {index}", repr(other), other.hex(), "not the nearest float32"):
            assert part in one.detail


def test_a_float64_result_is_not_the_nearest_float32():
    """A correctly rounded result is a float32: the double nearer to the real number is a difference too."""
    case = CASES["exact statistics"]
    value = evaluate(case)["rewards"].values[0]
    one = planted(case, "rewards", replaced(0, float(value)))
    assert not one.agrees
    assert "index 0" in one.detail
    assert float(value).hex() in one.detail
    assert "not the nearest float32" in one.detail


@pytest.mark.parametrize("index", range(4))
def test_the_bound_of_a_formula_is_where_it_is_stated(index):
    """Half the bound off agrees and is measured; twice the bound off differs."""
    case = CASES["group score"]
    exact = evaluate(case)["rewards"]
    unit = 2.0 ** (math.frexp(exact.scales[index])[1] - 24)
    number = faithful(case)["rewards"][index].item()
    inside = planted(case, "rewards", replaced(index, number + exact.bound_ulps / 2 * unit))
    outside = planted(case, "rewards", replaced(index, number - exact.bound_ulps * 2 * unit))
    assert inside.agrees
    off = exact.bound_ulps / 2
    assert off - 0.5 <= inside.ulps <= off + 0.5  # the faithful value is up to half an ulp off itself
    assert not outside.agrees
    assert f"beyond the bound of {exact.bound_ulps:g}" in outside.detail
    assert outside.detail.startswith("reward.mean_std: ")


@pytest.mark.parametrize("name", ["exact statistics", "group score", "leave one out"])
@pytest.mark.parametrize("index", range(4))
def test_wrong_sign(name, index):
    """One element with the other sign is a difference."""
    number = faithful(CASES[name])["rewards"][index].item()
    one = planted(CASES[name], "rewards", replaced(index, -number))
    assert not one.agrees
    assert one.ulps > 1e4


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["exact statistics", "group score"])
def test_no_number(name, number):
    """NaN or an infinity where there is a number is infinitely far off."""
    one = planted(CASES[name], "rewards", replaced(2, number))
    assert not one.agrees
    assert one.ulps == math.inf
    assert "index 2" in one.detail
    assert "not a finite number" in one.detail


def test_wrong_zero_sign():
    """Where +0 is demanded -0 is a difference of 0 ulps; where no sign is demanded it is none."""
    flat = rewards_case("grpo", [0.5] * 3, exact_statistics=True)
    one = planted(flat, "rewards", replaced(1, -0.0))
    assert not one.agrees
    assert one.ulps == 0.0
    assert "index 1" in one.detail
    assert "+0" in one.detail
    free = policy_case()
    assert faithful(free)["ppo_kl"][3].item() == 0.0
    assert planted(free, "ppo_kl", replaced(3, -0.0)).agrees


def float64_scores(*, ddof: int = 1, eps: float = 1e-6) -> torch.Tensor:
    """Group scores in float64."""
    rewards = np.array(REWARDS)
    return torch.from_numpy((rewards - rewards.mean()) / (rewards.std(ddof=ddof) + eps))


@pytest.mark.parametrize("name", ["exact statistics", "group score"])
@pytest.mark.parametrize(
    "change",
    [{"ddof": 0}, {"eps": 1e-5}, {"eps": 2e-6}, {"eps": 0.0}],
    ids=["n for n-1", "eps x 10", "eps x 2", "no eps"],
)
def test_another_formula(name, change):
    """n for n-1 and a changed epsilon are differences, in exact statistics and in the baseline's formula alike."""
    arrays = faithful(CASES[name])
    arrays["rewards"] = float64_scores().float().double()
    assert found(CASES[name], arrays, "rewards").agrees
    arrays["rewards"] = float64_scores(**change).float().double()
    assert not found(CASES[name], arrays, "rewards").agrees


@pytest.mark.parametrize("used", [[2.0, 1.0], [1.0, 2.0], [0.5, 1.0]])
def test_a_dropped_weight(used):
    """GDPO scores that were formed with another weight are a difference."""
    case = components_case([2.0, 0.25])
    arrays = faithful_components(case)
    assert found(case, arrays, "rewards").agrees
    arrays["rewards"] = faithful_components(components_case(used))["rewards"]
    assert not found(case, arrays, "rewards").agrees


def faithful_components(case: Case) -> dict[str, torch.Tensor]:
    """Scores as the oracle rounds them, raw rewards as a float64 loop sums them."""
    expected = evaluate(case)
    weights = case.options["gdpo_reward_weights"]
    raw = [sum(w * v for w, v in zip(weights, s["reward"].values(), strict=True)) for s in case.inputs["samples"]]
    scores = [nearest_single(value) for value in expected["rewards"].values]
    return {"raw_rewards": torch.tensor(raw, dtype=torch.float64), "rewards": torch.tensor(scores, dtype=torch.float64)}


@pytest.mark.parametrize("what", ["loss", "grad.log_probs[0]"])
@pytest.mark.parametrize(("clip", "kind"), [(0.21, "moved"), (0.3, "swapped")])
def test_another_clip(what, clip, kind):
    """A clip that was moved shows in the loss, one that is wide enough in the gradient as well."""
    case = policy_case()
    arrays = faithful(case)
    other = faithful(policy_case(eps_clip=clip, eps_clip_high=clip))
    changed = not torch.equal(arrays[what], other[what])
    arrays[what] = other[what]
    assert found(case, arrays, what).agrees is not changed
    assert changed or what != "loss"


def test_a_decision_that_differs():
    """A clip decision of 1 for 0 is a difference, and decisions may come as bool or as float32."""
    case = policy_case()
    right = faithful(case)["clipfrac"]
    assert right.tolist() == [0.0, 1.0, 1.0, 0.0]
    assert planted(case, "clipfrac", lambda array: array.bool()).agrees
    for index in range(4):
        one = planted(case, "clipfrac", replaced(index, 1.0 - right[index].item()))
        assert not one.agrees
        assert f"index {index}" in one.detail
    assert not planted(case, "clipfrac", lambda array: ~array.bool()).agrees


def test_an_open_decision_takes_either_side_and_nothing_else():
    """At the clip itself 0 and 1 count, a half does not; the full, half and no gradient count, a quarter does not."""
    case = policy_case()
    new = np.array([single(math.log(single(1.2)))], dtype=np.float32)
    row = [np.zeros(1, dtype=np.float32)], [new], [np.ones(1, dtype=np.float32)], [np.ones(1, dtype=np.float32)]
    names = ("old_log_probs", "log_probs", "advantages", "loss_masks")
    case = Case("meta/kink", "policy.loss", "grpo", dict(zip(names, row, strict=True)))
    assert evaluate(case)["clipfrac"].undecided == 1
    for decision, counts in ((0.0, True), (1.0, True), (0.5, False)):
        assert planted(case, "clipfrac", replaced(0, decision)).agrees is counts
    full = faithful(case)["grad.log_probs[0]"].item()
    for share, counts in ((1.0, True), (0.5, True), (0.0, True), (0.25, False), (-1.0, False)):
        assert planted(case, "grad.log_probs[0]", replaced(0, share * full)).agrees is counts


def test_the_signal_is_a_decision():
    """A group signal of the wrong truth value is a difference, and so is one that is no bool."""
    samples = rewards_case("grpo", REWARDS).inputs
    case = Case("meta/signal", "reward.signal", "grpo", samples, {"n_samples_per_prompt": 4})
    assert judge_rounding(case, Outcome(arrays={"signal": torch.tensor(True)}))[0].agrees
    for wrong in (torch.tensor(False), torch.tensor(1.0), torch.tensor([True])):
        assert not judge_rounding(case, Outcome(arrays={"signal": wrong}))[0].agrees


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda array: array.float(), "dtype torch.float32"),
        (lambda array: array[:3], "shape (3,)"),
        (lambda array: array.reshape(2, 2), "shape (2, 2)"),
    ],
    ids=["dtype", "length", "rank"],
)
def test_an_incomparable_array(change, said):
    """Another dtype or shape is a difference that says so."""
    one = planted(CASES["group score"], "rewards", change)
    assert not one.agrees
    assert one.ulps is None
    assert said in one.detail


def test_a_missing_array_and_a_failure():
    """An array that is missing, and a failure where there is a result, are differences."""
    case = CASES["group score"]
    arrays = faithful(case)
    del arrays["rewards"]
    assert "missing" in found(case, arrays, "rewards").detail
    failed = judge_rounding(case, Outcome(failure=Failure("ValueError", "no such group")))
    assert [one.agrees for one in failed] == [False]
    assert "ValueError: no such group" in failed[0].detail


def test_nothing_to_say_about_malformed_input():
    """Where the oracle has no value there is no comparison, whatever the outcome."""
    case = rewards_case("grpo", [math.nan, 1.0])
    assert judge_rounding(case, Outcome(arrays={"rewards": torch.zeros(2)})) == []


def test_what_the_caller_has_evaluated_is_used():
    """``expected`` replaces the evaluation."""
    case = CASES["group score"]
    other: dict[str, Exact] = evaluate(rewards_case("grpo", REWARDS[::-1]))
    comparisons = judge_rounding(case, Outcome(arrays=faithful(case)), other)
    assert not all(one.agrees for one in comparisons)


def test_an_infinity_that_the_real_number_rounds_to():
    """A single rounding beyond float32 gives the infinity of its sign, and no other number."""
    rows = {"log_probs": [np.array([3e38], dtype=np.float32)], "ref_log_probs": [np.array([-3e38], dtype=np.float32)]}
    case = Case("meta/overflow", "kl.estimate", "grpo", rows, {"kl_coef": 1.0})
    assert nearest_single(evaluate(case)["kl[0]"].values[0]) == math.inf
    for value in (math.inf, 3.4e38, -math.inf, math.nan):
        assert found(case, {"kl[0]": torch.tensor([value])}, "kl[0]").agrees is (value == math.inf)


def test_beyond_the_format_is_not_judged():
    """Where an intermediate may overflow the element is left alone, and its neighbours are judged."""
    rows = {
        "log_probs": [np.array([-100.0, -1.0], dtype=np.float32)],
        "ref_log_probs": [np.array([0.0, -1.5], dtype=np.float32)],
    }
    case = Case("meta/overflow", "kl.estimate", "grpo", rows, {"kl_coef": 1.0, "kl_loss_type": "k3"})
    right = nearest_single(evaluate(case)["kl[0]"].values[1])
    assert found(case, {"kl[0]": torch.tensor([math.inf, right])}, "kl[0]").agrees
    assert not found(case, {"kl[0]": torch.tensor([math.inf, right * 1.001])}, "kl[0]").agrees


UNJUDGED = {
    "no value": (None, 1.0, False, False),
    "no value to round": (None, 1.0, True, False),
    "an infinite scale": (arb(1), math.inf, False, False),
    "a scale beyond the format": (arb(1), 2.0**128, False, False),
    "a scale that is none": (arb(1), math.nan, False, False),
    "the largest scale": (arb(1), torch.finfo(torch.float32).max, False, True),
    "a single rounding, which needs no scale": (arb(1), math.inf, True, True),
}


@pytest.mark.parametrize(("value", "scale", "single_rounding", "judged"), UNJUDGED.values(), ids=UNJUDGED)
def test_what_is_not_judged_is_counted(value, scale, single_rounding, judged):
    """An element passes with a wrong number exactly where it counts as not judged."""
    formula = "reward.correctly_rounded" if single_rounding else "reward.mean_std"
    exact = Exact((value,), (scale,), (1,), formula, correctly_rounded=single_rounding)
    outcome = Outcome(arrays={"x": torch.tensor([-1e30])})  # near no value, at any of these scales but the largest
    (one,) = judge_rounding(CASES["policy"], outcome, {"x": exact})
    assert exact.judged(0) is judged
    assert exact.unjudged == (0 if judged else 1)
    if not judged or single_rounding:
        assert one.agrees is not judged
    else:
        nothing = Outcome(arrays={"x": torch.tensor([math.nan])})
        assert not judge_rounding(CASES["policy"], nothing, {"x": exact})[0].agrees
