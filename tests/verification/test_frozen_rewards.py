"""The frozen reward and KL stages against values worked out by hand or with exact fractions.

Inputs are dyadic, so that every intermediate is exact in float32 and the expected bits need no tolerance; where the
order of roundings matters, the expected value is spelled with numpy's float32 scalars, one operation at a time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.verification.frozen_inputs import SINGLE_REWARD, F, bits, samples, tensor
from verification.cases.arguments import namespace
from verification.frozen import dispatch, kl, reward


class TestRewards:
    @pytest.mark.parametrize("algorithm", SINGLE_REWARD)
    def test_group_scores(self, algorithm: str) -> None:
        """Interleaved groups are centred and divided each on its own, and land at their samples' positions."""
        args = namespace(algorithm, n_samples_per_prompt=2)
        raw, rewards = dispatch.post_process_rewards(args, samples([1.0, 5.0, 0.0, 1.0], [7, 3, 7, 3]))
        half = F(0.5) / (F(math.sqrt(0.5)) + F(1e-6))
        two = F(2.0) / (F(math.sqrt(8.0)) + F(1e-6))
        assert raw == [1.0, 5.0, 0.0, 1.0]
        assert bits(rewards) == bits([half, two, -half, -two])

    def test_division_follows_the_switch(self) -> None:
        """With the std switched off the scores are the centred rewards."""
        args = namespace("grpo", n_samples_per_prompt=4, grpo_std_normalization=False)
        _, rewards = dispatch.post_process_rewards(args, samples([1, 0, 0, 1.5], [0] * 4))
        assert bits(rewards) == bits([0.375, -0.625, -0.625, 0.875])

    def test_baseline_variant_never_divides(self) -> None:
        """reinforce_plus_plus_baseline centres only, whatever the std switch says."""
        args = namespace("reinforce_plus_plus_baseline", n_samples_per_prompt=4)
        _, rewards = dispatch.post_process_rewards(args, samples([1, 0, 0, 1.5], [0] * 4))
        assert bits(rewards) == bits([0.375, -0.625, -0.625, 0.875])

    @pytest.mark.parametrize("algorithm", ["ppo", "reinforce_plus_plus"])
    def test_ungrouped_algorithms_pass_raw_rewards(self, algorithm: str) -> None:
        """Algorithms without group scores give the raw list twice, the same object."""
        raw, rewards = dispatch.post_process_rewards(namespace(algorithm), samples([1.0, 2.5], [None, None]))
        assert raw is rewards
        assert rewards == [1.0, 2.5]

    def test_normalisation_switched_off(self) -> None:
        """Without rewards normalization group indices are not even looked at."""
        args = namespace("grpo", rewards_normalization=False, reward_key="score")
        raw, rewards = dispatch.post_process_rewards(args, samples([{"score": 3}, {"score": 4}], [None, 1]))
        assert rewards is raw
        assert rewards == [3, 4]

    def test_custom_advantage_comes_before_group_scores(self) -> None:
        """With an agentic advantage path each sample's own advantage is the second list."""
        args = namespace("grpo", agentic_custom_advantage_path="a.b")
        batch = samples([1.0, 0.0], [None, None], custom_advantage=0.25)
        assert dispatch.post_process_rewards(args, batch) == ([1.0, 0.0], [0.25, 0.25])

    def test_hook_comes_before_everything(self) -> None:
        """A post-processing hook's result is returned as it is, before any reward is read."""
        hook = "verification.cases.hooks.doubled"
        args = namespace("grpo", custom_reward_post_process_path=hook, agentic_custom_advantage_path="a.b")
        batch = samples([1.0, 0.5], [None, None])
        assert dispatch.post_process_rewards(args, batch) == ([1.0, 0.5], [2.0, 1.0])

    @pytest.mark.parametrize(
        ("groups", "size", "words"),
        [([1, None, 1, 1], 4, ["sample 1", "group_index"]), ([4, 4, 9, 4], 2, ["group 4", "3", "2"])],
    )
    def test_malformed_groups(self, groups: list[Any], size: int, words: list[str]) -> None:
        """A missing group index and a group of another size are ValueErrors that name them."""
        with pytest.raises(ValueError, match=".*".join(words)):
            dispatch.post_process_rewards(namespace("grpo", n_samples_per_prompt=size), samples([1, 0, 1, 0], groups))

    @pytest.mark.parametrize(
        ("rewards", "expected"),
        [
            ([0.2] * 8, False),
            ([0.2] * 7 + [0.25], True),
            ([1.0, 1.0 + 2**-30], False),  # equal once they are float32
            ([1.0, math.nan], False),
            ([1.0, math.inf], False),
            ([1.0, 1e300], False),
            ([], False),
        ],
    )
    def test_signal(self, rewards: list[float], expected: bool) -> None:
        """A group carries signal exactly where its float32 rewards differ and all are finite."""
        args = namespace("grpo")
        assert dispatch.group_carries_reward_signal(args, samples(rewards, [0] * len(rewards))) is expected

    def test_groups_keep_order_of_first_appearance(self) -> None:
        """Groups come in order of first appearance and positions ascend."""
        assert list(reward.group_positions(["b", "a", "b", "a"], 2).items()) == [("b", [0, 2]), ("a", [1, 3])]


class TestKl:
    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            ("k1", [0.5, -2.0, 0.0]),
            ("k2", [0.125, 2.0, 0.0]),
            ("k3", [F(np.exp(F(-0.5))) - F(1) - F(-0.5), F(np.exp(F(2.0))) - F(1) - F(2.0), 0.0]),
        ],
    )
    def test_kinds(self, kind: str, expected: list[float]) -> None:
        """Each kind by its formula, exp - 1 - e in that order."""
        got = kl.approx_kl(tensor(-1.0, -3.0, -0.25), tensor(-1.5, -1.0, -0.25), kind)
        # exp of numpy and of torch may differ in the last place; each is within one ulp of the real number.
        assert np.abs(got.numpy() - np.array(expected, dtype=F)).max() <= np.spacing(F(8.0))

    def test_importance_ratio_comes_before_the_clamp(self) -> None:
        """low_var_kl is clamped to [-10, 10] after the importance ratio has multiplied it."""
        got = kl.approx_kl(tensor(-5.0, -5.0), tensor(0.0, 0.0), "low_var_kl", tensor(2.0**-8, -1.0))
        unclamped = kl.approx_kl(tensor(-5.0), tensor(0.0), "k3")
        assert unclamped.item() > 100
        assert bits(got) == bits([unclamped.item() * 2.0**-8, -10.0])

    def test_unknown_kind(self) -> None:
        """A kind that does not exist is a ValueError that names it."""
        with pytest.raises(ValueError, match="'k9'"):
            kl.approx_kl(tensor(0.0), tensor(0.0), "k9")

    def test_zero_without_coefficient_or_log_probs(self) -> None:
        """No coefficient gives float32 zeros shaped like the log-probs; no log-probs, zeros shaped like the values."""
        log_probs = [torch.ones(2, dtype=torch.float64)]
        given = {"ref_log_probs": None, "values": [torch.ones(3), torch.ones(0)]}
        by_log_probs = dispatch.kl_per_response(namespace("grpo"), log_probs=log_probs, **given)
        by_values = dispatch.kl_per_response(namespace("grpo", kl_coef=0.1), log_probs=None, **given)
        assert [(tuple(k.shape), k.dtype, k.abs().sum().item()) for k in by_log_probs] == [((2,), torch.float32, 0.0)]
        assert [tuple(k.shape) for k in by_values] == [(3,), (0,)]
