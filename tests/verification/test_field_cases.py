"""Each fault of the field list: the stated right outcome, by number, on the live code."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from verification.cases import corpus, find
from verification.cases.advantage import advantage_case
from verification.cases.families import ALL, BROADCAST, GROUPED
from verification.cases.field import RANK_CASES
from verification.judges.bits import judge_bits
from verification.ranks.cases import rank_cases
from verification.subjects.frozen import frozen_subject
from verification.subjects.live import live_subject
from verification.subjects.outcome import Outcome

FIELD_LIST = (
    "none-component",
    "all-none",
    "loo-near-tie",
    "loo-one-winner",
    "flat-fifths",
    "unequal-lengths",
    "weight-count",
    "empty-response",
    "summed-filter",
    "padding-content",
    "ragged-groups",
    "tail-group",
    "cp-whitening",
    "empty-slice",
    "early-return",
    "hidden-origin",
    "near-weights",
    "large-finite",
    "parser-without-role",
    "offset",
    "same-prompt-twice",
    "interleaved",
)


def outcome_of(identity: str) -> Outcome:
    """What the live code gives for a case."""
    return live_subject().run(find(identity))


def values_of(identity: str, name: str) -> list[float]:
    """One array of an outcome that must be no failure."""
    outcome = outcome_of(identity)
    assert outcome.failure is None, outcome.failure
    return outcome.arrays[name].tolist()


def scores_of(identity: str) -> list[float]:
    """The training rewards of a ``reward.normalize`` case."""
    return values_of(identity, "rewards")


def bits_of(identity: str) -> dict[str, bytes]:
    """The bits of every array of an outcome that must be no failure."""
    outcome = outcome_of(identity)
    assert outcome.failure is None, outcome.failure
    return {name: tensor.contiguous().numpy().tobytes() for name, tensor in outcome.arrays.items()}


def refusal_of(identity: str) -> str:
    """The message with which a case is refused; nothing may have been changed by then."""
    outcome = outcome_of(identity)
    assert outcome.failure is not None
    assert outcome.failure.kind in ("ValueError", "SystemExit")
    assert not outcome.mutated
    assert not outcome.arrays
    return outcome.failure.message


def float32(value: Fraction | float) -> float:
    """The float32 nearest a rational of few digits."""
    return float(np.float32(float(value)))


def positive_zeros(count: int) -> list[str]:
    """The representations of ``count`` zeros without a sign: 0.0 and -0.0 are equal, their texts are not."""
    return ["0.0"] * count


@pytest.mark.parametrize("fault", FIELD_LIST)
def test_every_fault_is_in_the_corpus(fault: str) -> None:
    """A fault has a case, or is one of those that only several ranks can show, and has rank cases."""
    found = [case.id for case in corpus() if f"/field-{fault}" in case.id]
    on_ranks = [case.id for case in rank_cases() if f"/field-{fault}" in case.id and case.case.id not in found]
    assert bool(found) != bool(on_ranks)
    assert bool(on_ranks) == (fault in RANK_CASES)


@pytest.mark.parametrize(("name", "key"), [("none-component", "format"), ("all-none", "correctness")])
def test_a_missing_component_is_refused_by_name(name: str, key: str) -> None:
    """None is no score: the message names component, sample and group."""
    message = refusal_of(f"reward.normalize/gdpo/field-{name}")
    for word in (key, "sample 13", "group 31", "None"):
        assert word in message


def test_leave_one_out_of_a_near_tie() -> None:
    """Zero among seven 0.95 is worth -0.95; each of the seven is worth 0.95 / 7."""
    scores = scores_of("reward.normalize/rloo/field-loo-near-tie")
    assert scores == [float32(-0.95)] + [float32(0.95 / 7)] * 7


def test_leave_one_out_of_one_winner() -> None:
    """The winner is worth 1, each of the others -1/3."""
    third = Fraction(-1, 3)
    assert scores_of("reward.normalize/rloo/field-loo-one-winner") == [
        1.0,
        float32(third),
        float32(third),
        float32(third),
    ]


def test_equal_rewards_are_worth_nothing_when_exact() -> None:
    """Eight rewards of 0.2 give eight positive zeros under exact statistics and as GDPO's components."""
    for identity in ("reward.normalize/grpo/field-flat-fifths-exact", "reward.normalize/gdpo/field-flat-fifths-all"):
        assert list(map(repr, scores_of(identity))) == positive_zeros(8)


def test_a_flat_component_contributes_nothing() -> None:
    """A component of eight 0.2 leaves the same bits as one of eight zeros, and those are not zero themselves."""
    with_fifths = bits_of("reward.normalize/gdpo/field-flat-fifths")["rewards"]
    assert with_fifths == bits_of("reward.normalize/gdpo/field-flat-fifths-alone")["rewards"]
    scores = scores_of("reward.normalize/gdpo/field-flat-fifths")
    std = math.sqrt(sum((k / 8 - 3.5 / 8) ** 2 for k in range(8)) / 7)
    # Double arithmetic is within 1e-15 of the exact value, a float32 rounding within 6e-8 of it.
    assert scores == pytest.approx([(k / 8 - 3.5 / 8) / (std + 1e-4) for k in range(8)], rel=1e-7)


def test_the_residue_of_the_baseline_stays_a_residue() -> None:
    """The baseline gives one value for all eight fifths: 0, or a residue far below one; its golden holds the bits."""
    scores = scores_of("reward.normalize/grpo/field-flat-fifths")
    assert len(set(scores)) == 1
    assert abs(scores[0]) < 0.05


def test_one_vote_a_response() -> None:
    """A response of 4,096 tokens has the same vote as one of a single token: the two scores are opposite."""
    outcome = outcome_of("advantage.estimate/gdpo/field-unequal-lengths")
    short, long = outcome.arrays["advantages[0]"], outcome.arrays["advantages[1]"]
    assert short.shape == (1,)
    assert long.shape == (4096,)
    expected = float32(0.75 / (math.sqrt(1.125) + 1e-4))
    assert short.tolist() == [expected]
    assert set(long.tolist()) == {-expected}


@pytest.mark.parametrize("count", ["three", "one"])
def test_another_number_of_weights_is_refused(count: str) -> None:
    """The command line names both options."""
    message = refusal_of(f"arguments.validate/gdpo/field-weight-count-{count}")
    assert "--gdpo-reward-keys" in message
    assert "--gdpo-reward-weights" in message


@pytest.mark.parametrize("algorithm", [*BROADCAST, "reinforce_plus_plus_baseline", "reinforce_plus_plus", "gdpo"])
def test_an_empty_response_gives_empty_tensors(algorithm: str) -> None:
    """The middle response has no token, and its neighbours hold their own rewards, the last one too."""
    outcome = outcome_of(f"advantage.estimate/{algorithm}/field-empty-response")
    assert outcome.failure is None
    rows = [outcome.arrays[f"advantages[{index}]"].tolist() for index in range(3)]
    assert list(map(len, rows)) == [3, 0, 2]
    expected = [0.5, -0.5, 0.25]
    if algorithm == "gdpo":
        mean, std = 0.25 / 3, math.sqrt(sum((x - 0.25 / 3) ** 2 for x in expected) / 2)
        expected = [float32((x - mean) / (std + 1e-4)) for x in expected]
    assert rows[0] == [expected[0]] * 3
    assert rows[2] == [expected[2]] * 2


def test_gae_names_the_empty_response() -> None:
    """A response without a token is refused, with its position."""
    assert "response 1" in refusal_of("advantage.estimate/ppo/field-empty-response")


@pytest.mark.parametrize(
    "identity",
    [
        "loss.reduce/grpo/field-padding-content-mean-{}",
        "loss.reduce/grpo/field-padding-content-sum-{}",
        "advantage.estimate/reinforce_plus_plus/field-padding-content-{}",
    ],
)
def test_large_padding_is_not_seen(identity: str) -> None:
    """1e30 where the mask is 0 gives the bits of zeros there."""
    assert bits_of(identity.format("1e30")) == bits_of(identity.format("zeros"))


def test_reduced_losses_are_those_of_the_unmasked_tokens() -> None:
    """Of 0.5 and -0.25 unmasked, the sum is 0.25 and the mean 0.125."""
    assert values_of("loss.reduce/grpo/field-padding-content-sum-1e30", "loss") == 0.25
    assert values_of("loss.reduce/grpo/field-padding-content-mean-1e30", "loss") == 0.125


@pytest.mark.parametrize(
    "identity",
    [
        "loss.reduce/grpo/mean-nan-masked",
        "loss.reduce/grpo/sum-nan-masked",
        "advantage.normalize/grpo/nan-masked",
        "advantage.normalize/reinforce_plus_plus/nan-masked",
    ],
)
def test_nan_padding_is_kept_where_the_mask_multiplies(identity: str) -> None:
    """A NaN under the mask reaches every sum, as in the baseline: 0 would be another formula's answer."""
    case = find(identity)
    arrays = [*case.inputs.get("values", case.inputs.get("advantages"))]
    assert any(
        (~np.isfinite(row) & (mask == 0)).any() for row, mask in zip(arrays, case.inputs["loss_masks"], strict=True)
    )
    live, frozen = outcome_of(identity), frozen_subject().run(case)
    assert [one.detail for one in judge_bits(case, live, frozen, "frozen") if not one.agrees] == []
    name = "loss" if case.stage == "loss.reduce" else "advantages[0]"
    assert torch.isnan(live.arrays[name]).all()


def test_nan_padding_is_kept_by_discounted_returns() -> None:
    """A NaN under the mask stays in the returns of the tokens before it; those behind it are whole."""
    kl, mask = np.array([0.5, np.nan, 0.25], dtype=np.float32), np.array([1.0, 0.0, 1.0], dtype=np.float32)
    case = advantage_case("reinforce_plus_plus", "drawn", [1.0], [kl], loss_masks=[mask], kl_coef=0.5, gamma=0.5)
    live, frozen = live_subject().run(case), frozen_subject().run(case)
    assert [one.detail for one in judge_bits(case, live, frozen, "frozen") if not one.agrees] == []
    returns = live.arrays["returns[0]"]
    assert torch.isnan(returns).tolist() == [True, True, False]
    assert returns[2] == 1.0 - 0.5 * 0.25


@pytest.mark.parametrize("algorithm", ["grpo", "reinforce_plus_plus_baseline"])
def test_a_kl_that_only_gives_the_shape_may_hold_nan(algorithm: str) -> None:
    """NaN in a KL of which only the shape counts leaves no trace."""
    identity = f"advantage.estimate/{algorithm}/field-padding-content-{{}}"
    assert bits_of(identity.format("nan")) == bits_of(identity.format("zeros"))
    masked = 0.0 if algorithm == "reinforce_plus_plus_baseline" else 1.0
    assert values_of(identity.format("nan"), "advantages[0]") == [1.0, 1.0, masked, masked]


@pytest.mark.parametrize("algorithm", [*GROUPED, "gdpo"])
@pytest.mark.parametrize(("fault", "sizes"), [("ragged-groups", ("3", "4")), ("tail-group", ("1", "2"))])
def test_a_group_of_another_size_is_refused(algorithm: str, fault: str, sizes: tuple[str, str]) -> None:
    """The message names the group and both sizes."""
    message = refusal_of(f"reward.normalize/{algorithm}/field-{fault}").replace("group 21", "", 1)
    for word in sizes:
        assert word in message
    assert "group 21" in refusal_of(f"reward.normalize/{algorithm}/field-{fault}")


def test_nearly_equal_weights_leave_their_difference() -> None:
    """Weights 16777216 and 16777217 on opposite components give -0.7070068 and 0.7070068."""
    expected = float32(0.5 / (math.sqrt(0.5) + 1e-4))
    assert f"{expected:.7f}" == "0.7070068"
    assert scores_of("reward.normalize/gdpo/field-near-weights") == [-expected, expected]


@pytest.mark.parametrize("what", ["component", "combined"])
def test_a_value_beyond_float32_is_refused(what: str) -> None:
    """A component of 1e300 and a combined value beyond float32 are refused, with the component's name."""
    message = refusal_of(f"reward.normalize/gdpo/field-large-finite-{what}")
    assert "format" in message
    if what == "component":
        assert "sample 13" in message


@pytest.mark.parametrize("algorithm", ALL)
def test_what_the_parser_accepts_has_roles(algorithm: str) -> None:
    """The command line is accepted, and the colocated run starts actor and rollout, for PPO a critic too."""
    parsed = outcome_of(f"arguments.validate/{algorithm}/field-parser-without-role")
    assert parsed.failure is None
    assert parsed.texts["advantage_estimator"] == algorithm
    roles = outcome_of(f"roles.resolve/{algorithm}/field-parser-without-role").texts["roles"]
    names = [role.split("=")[0] for role in roles.splitlines()]
    assert names == (["actor", "critic", "rollout"] if algorithm == "ppo" else ["actor", "rollout"])


def test_a_spread_far_from_zero_survives() -> None:
    """[1000, 1000.01, 1000.02, 1000.03] is whitened to the four values of the list, symmetric and rising."""
    values = [values_of("advantage.estimate/gdpo/field-offset", f"advantages[{k}]")[0] for k in range(4)]
    assert [f"{value:.7f}" for value in values] == ["-1.1529728", "-0.3843243", "0.3843243", "1.1529728"]


@pytest.mark.parametrize("algorithm", GROUPED)
def test_one_prompt_twice_is_two_groups(algorithm: str) -> None:
    """Two groups of one prompt keep their own means: [0, 1, 1, 1] and [0, 0, 0, 1] have opposite scores."""
    scores = scores_of(f"reward.normalize/{algorithm}/field-same-prompt-twice")
    first, second = scores[:4], scores[4:]
    assert first == [-score for score in reversed(second)]
    assert first[0] < 0 < first[1] == first[2] == first[3]
    if algorithm == "reinforce_plus_plus_baseline":
        assert first == [-0.75, 0.25, 0.25, 0.25]


def test_one_prompt_twice_is_two_groups_of_components() -> None:
    """With components too: each group's scores sum to about 0, and the two groups are opposite."""
    scores = scores_of("reward.normalize/gdpo/field-same-prompt-twice")
    assert scores[0] < 0
    # Four float32 scores of about one, each off by at most half an ulp (6e-8).
    assert sum(scores[:4]) == pytest.approx(0, abs=1e-6)
    assert sum(scores[4:]) == pytest.approx(0, abs=1e-6)
    assert scores[:4] == [-score for score in reversed(scores[4:])]


@pytest.mark.parametrize("algorithm", [*GROUPED, "gdpo"])
def test_interleaved_groups_give_the_bits_of_sorted_ones(algorithm: str) -> None:
    """Sample k of group g stands at 3 k + g instead of 4 g + k, with the same bits."""
    ordered = torch.tensor(scores_of(f"reward.normalize/{algorithm}/field-interleaved-sorted"), dtype=torch.float64)
    mixed = torch.tensor(scores_of(f"reward.normalize/{algorithm}/field-interleaved"), dtype=torch.float64)
    assert mixed.reshape(4, 3).T.reshape(-1).numpy().tobytes() == ordered.numpy().tobytes()
    assert len(set(ordered.tolist())) > 6


@pytest.mark.parametrize(
    ("name", "signal"), [("kept", True), ("dropped", False), ("unequal", True), ("flat-sums", True)]
)
def test_the_filter_keeps_what_training_would_use(name: str, signal: bool) -> None:
    """Equal sums hide a signal only where the weights are equal too."""
    assert values_of(f"reward.signal/gdpo/field-summed-filter-{name}", "signal") is signal
