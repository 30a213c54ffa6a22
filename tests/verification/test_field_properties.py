"""The kinds of fault of the field list as properties: what must hold of the live code for every drawn input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relax.algorithms.advantages import ADVANTAGE_FNS, compute_advantages_and_returns
from relax.algorithms.formulas.reducers import reduce_loss
from relax.algorithms.policy import POLICY_LOSS_FNS
from relax.algorithms.rewards import REWARD_NORMALIZERS, group_carries_reward_signal
from relax.algorithms.spec import get_algorithm, list_algorithm_names
from relax.arguments import parse_args
from relax.core.registry import process_role
from relax.rollout.post_process import post_process_rewards
from verification.cases.arguments import namespace
from verification.cases.case import Case
from verification.cases.command_line import ESTIMATOR, NEEDED
from verification.cases.families import DIVIDE_BY_STD, GROUPED
from verification.cases.roles import MODES
from verification.cases.strategies import (
    Tokens,
    component_columns,
    ragged_tokens,
    reward_groups,
    single_reward_groups,
    whitening_batches,
)


def scores(case: Case) -> list[float]:
    """The training rewards of the live code."""
    return post_process_rewards(case.arguments(), case.fresh_inputs()["samples"])[1]


def bits(values: Sequence[float]) -> bytes:
    """The bits of floats: +0 and -0 differ."""
    return np.array(values, dtype=np.float64).tobytes()


def votes(case: Case) -> list[float | None]:
    """The whitened score of each response of a GDPO batch that has a token; None for one without."""
    advantages, _ = compute_advantages_and_returns(case.arguments(), process_group=None, **case.fresh_inputs())
    return [tensor[0].item() if len(tensor) else None for tensor in advantages]


@given(reward_groups(), st.randoms(use_true_random=False))
def test_scores_follow_their_samples(case: Case, rng: Random) -> None:
    """In another order, and with other labels, every sample keeps its GDPO score to the bit."""
    before = scores(case)
    samples = list(case.inputs["samples"])
    order = list(range(len(samples)))
    rng.shuffle(order)
    relabelled = [{**samples[position], "group_index": 1000 - samples[position]["group_index"]} for position in order]
    after = scores(replace(case, inputs={"samples": relabelled}))
    assert bits(after) == bits([before[position] for position in order])


@pytest.mark.parametrize("algorithm", GROUPED)
def test_interleaved_groups_score_like_sorted_ones(algorithm: str) -> None:
    """For every algorithm with groups: sorted by group, the same scores to the bit."""

    @given(single_reward_groups(algorithm, max_groups=3).filter(lambda case: "float32-max" not in case.id))
    def holds(case: Case) -> None:
        samples = case.inputs["samples"]
        order = sorted(range(len(samples)), key=lambda position: samples[position]["group_index"])
        apart = scores(replace(case, inputs={"samples": [samples[position] for position in order]}))
        together = scores(case)
        assert bits(apart) == bits([together[position] for position in order])

    holds()


@given(component_columns(), st.sampled_from((0.2, 0.0, 1e9 + 0.1, 1 / 3)), st.sampled_from((1.0, -3.0, 0.1)))
def test_a_flat_component_adds_nothing(columns: list[list[float]], value: float, weight: float) -> None:
    """Whatever its value and weight, a flat component leaves the bits of the others' scores."""
    size = len(columns[0])
    names = [f"k{k}" for k in range(len(columns))]
    options = {"n_samples_per_prompt": size, "gdpo_reward_keys": names, "gdpo_reward_weights": [1.0] * len(names)}
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    plain = gdpo(rows, options)
    options = {**options, "gdpo_reward_keys": [*names, "flat"]}
    options["gdpo_reward_weights"] = [1.0] * len(names) + [weight]
    assert bits(gdpo([{**row, "flat": value} for row in rows], options)) == bits(plain)


def gdpo(rewards: list[dict[str, float]], options: dict[str, object]) -> list[float]:
    """GDPO scores of one group."""
    samples = tuple({"index": k, "group_index": 0, "reward": reward} for k, reward in enumerate(rewards))
    return scores(Case("reward.normalize/gdpo/drawn", "reward.normalize", "gdpo", {"samples": samples}, options))


@given(reward_groups("all-flat"))
def test_flat_groups_are_positive_zeros(case: Case) -> None:
    """Where every component of every group is flat, every score is 0 without a sign."""
    assert set(map(repr, scores(case))) == {"0.0"}


@pytest.mark.parametrize("algorithm", [*DIVIDE_BY_STD, "rloo"])
@given(data=st.data())
def test_flat_rewards_are_positive_zeros_when_exact(algorithm: str, data: st.DataObject) -> None:
    """One reward a sample, flat: exactly 0 under exact statistics, and for leave-one-out always."""
    case = data.draw(single_reward_groups(algorithm, "all-flat"))
    case = replace(case, options={**case.options, "exact_statistics": True})
    assert set(map(repr, scores(case))) == {"0.0"}


@given(reward_groups())
def test_constant_sums_cancel_exactly(case: Case) -> None:
    """A group beside its own negative under equal weights is worth 0 throughout; alone it is not, unless flat."""
    keys = case.options["gdpo_reward_keys"]
    samples = [
        {**sample, "reward": {"a": sample["reward"][keys[0]], "b": -sample["reward"][keys[0]]}}
        for sample in case.inputs["samples"]
    ]
    options = {**case.options, "gdpo_reward_keys": ["a", "b"], "gdpo_reward_weights": [0.3, 0.3]}
    cancelled = replace(case, inputs={"samples": samples}, options=options)
    assert set(map(repr, scores(cancelled))) == {"0.0"}
    options["gdpo_reward_weights"] = [0.6, 0.3]
    left = scores(replace(cancelled, options=options))
    by_group: dict[int, set[float]] = {}
    for sample in samples:
        by_group.setdefault(sample["group_index"], set()).add(sample["reward"]["a"])
    for sample, score in zip(samples, left, strict=True):
        if len(by_group[sample["group_index"]]) == 1:
            assert score == 0


@given(single_reward_groups("rloo").filter(lambda case: "float32-max" not in case.id))
def test_leave_one_out_is_the_nearest_float32(case: Case) -> None:
    """The reward minus the mean of the others, by rationals, rounded once."""
    samples = case.inputs["samples"]
    for sample, score in zip(samples, scores(case), strict=True):
        group = [Fraction(s["reward"]) for s in samples if s["group_index"] == sample["group_index"]]
        exact = Fraction(sample["reward"])
        exact -= (sum(group) - exact) / (len(group) - 1)
        assert_nearest(score, exact)


def assert_nearest(value: float, exact: Fraction) -> None:
    """No other float32 lies nearer to ``exact`` than ``value`` does."""
    got = np.float32(value)
    assert float(got) == value
    error = abs(Fraction(value) - exact)
    for direction in (-np.inf, np.inf):
        neighbour = np.nextafter(got, np.float32(direction))
        assert error <= abs(Fraction(float(neighbour)) - exact)


@given(reward_groups(max_groups=1))
def test_the_filter_agrees_with_the_reward_stage(case: Case) -> None:
    """A group carries a signal exactly where its scores differ."""
    carries = group_carries_reward_signal(case.arguments(), case.fresh_inputs()["samples"])
    assert carries is (len(set(scores(case))) > 1)


@given(st.integers(1, 2**30), st.integers(1, 64))
def test_the_difference_of_near_weights_is_kept(weight: int, difference: int) -> None:
    """On opposite components the score has the sign and the size of the weights' difference."""
    options = {
        "n_samples_per_prompt": 2,
        "gdpo_reward_keys": ["a", "b"],
        "gdpo_reward_weights": [float(weight), float(weight + difference)],
    }
    low, high = gdpo([{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 1.0}], options)
    assert low == -high
    # z is 0.5 / (sqrt(0.5) + 1e-4) = 0.70700679; float32 keeps a product to 6e-8 of its size, the doubles far better.
    assert high == pytest.approx(difference * 0.5 / (math.sqrt(0.5) + 1e-4), rel=1e-7)


@given(whitening_batches(), st.randoms(use_true_random=False))
def test_votes_do_not_depend_on_lengths(case: Case, rng: Random) -> None:
    """Other response lengths, an empty response among them: the same score for each response that has a token."""
    before = votes(case)
    lengths = [rng.randrange(1, 6) for _ in before]
    kl = [np.zeros(length, dtype=np.float32) for length in lengths]
    after = votes(replace(case, inputs={**case.inputs, "kl": kl, "response_lengths": lengths}))
    assert all(old is None or bits([old]) == bits([new]) for old, new in zip(before, after, strict=True))
    shapes = [len(array) for array in case.inputs["kl"]]
    assert [vote is None for vote in before] == [length == 0 for length in shapes]


@given(whitening_batches())
def test_batches_are_whitened_apart(case: Case) -> None:
    """Each optimizer batch alone gives the bits that it has among the others; its scores rise with the rewards."""
    case = replace(case, inputs={**case.inputs, "kl": [np.zeros(1, dtype=np.float32)] * len(case.inputs["rewards"])})
    together, start = votes(case), 0
    for size in case.inputs["mini_batch_sizes"]:
        rewards = case.inputs["rewards"][start : start + size]
        alone = {**case.inputs, "rewards": rewards, "kl": [np.zeros(1, dtype=np.float32)] * size}
        alone = {**alone, "response_lengths": [1] * size, "total_lengths": [6] * size, "mini_batch_sizes": [size]}
        assert bits(votes(replace(case, inputs=alone))) == bits(together[start : start + size])
        by_reward = sorted(zip(rewards, together[start : start + size], strict=True))
        assert [vote for _, vote in by_reward] == sorted(vote for _, vote in by_reward)
        assert size != 1 or repr(together[start]) == "0.0"
        start += size


@given(ragged_tokens(), st.booleans(), st.sampled_from((1e30, -3e38)))
def test_masked_tokens_are_not_seen_by_the_reducers(tokens: Tokens, per_token: bool, content: float) -> None:
    """Whatever finite number stands where the mask is 0, the reduced loss has the same bits."""
    args = namespace("grpo", calculate_per_token_loss=per_token)
    reduced = []
    for filling in (0.0, content):
        values = [
            torch.from_numpy(np.where(mask == 0, np.float32(filling), array).astype(np.float32))
            for array, mask in zip(tokens.values, tokens.masks, strict=True)
        ]
        masks = [torch.from_numpy(mask.copy()) for mask in tokens.masks]
        reduced.append(reduce_loss(args, values=values, loss_masks=masks).item())
    assert bits(reduced[:1]) == bits(reduced[1:])
    if per_token:
        kept = [Fraction(float(x)) for a, m in zip(tokens.values, tokens.masks, strict=True) for x in a[m == 1]]
        # Multiples of 2**-8 below 4 x 48 in sum: float32 adds them without rounding.
        assert Fraction(reduced[0]) == sum(kept)


@given(ragged_tokens(min_length=1, all_masked=False), st.sampled_from((0.0, 0.5, 1.0)))
def test_masked_tokens_are_not_seen_by_discounted_returns(tokens: Tokens, gamma: float) -> None:
    """1e30 in the KL where the mask is 0 leaves the returns' bits; the last unmasked token has its reward."""
    args = namespace("reinforce_plus_plus", normalize_advantages=True, gamma=gamma, kl_coef=0.25)
    rewards = [1.0 + position for position in range(len(tokens.values))]
    results = []
    for filling in (0.0, 1e30):
        kl = [
            torch.from_numpy(np.where(mask == 0, np.float32(filling), array).astype(np.float32))
            for array, mask in zip(tokens.values, tokens.masks, strict=True)
        ]
        masks = [torch.from_numpy(mask.copy()) for mask in tokens.masks]
        _, returns = compute_advantages_and_returns(args, rewards=rewards, kl=kl, loss_masks=masks)
        results.append(returns)
    for values, reward, zeros, large in zip(tokens.values, rewards, *results, strict=True):
        assert zeros.numpy().tobytes() == large.numpy().tobytes()
        assert large[-1].item() == reward - 0.25 * float(values[-1])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("algorithm", list_algorithm_names())
def test_what_the_parser_accepts_has_roles_and_implementations(algorithm: str, mode: str) -> None:
    """Every registered name parses, starts at least one role in every mode, and has its three implementations."""
    args = parse_args([ESTIMATOR, algorithm, *NEEDED.get(algorithm, "").split()])
    for name, value in MODES[mode].items():
        setattr(args, name, value)
    roles = process_role(args)
    assert roles
    assert all(path.startswith("relax.components.") for path in roles.values())
    spec = get_algorithm(algorithm)
    assert spec.reward_normalizer in REWARD_NORMALIZERS
    assert spec.advantage_fn in ADVANTAGE_FNS
    assert spec.policy_loss_fn in POLICY_LOSS_FNS
