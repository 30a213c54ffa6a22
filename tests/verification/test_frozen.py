"""The frozen copies against values worked out by hand or with exact fractions, and their hash lock.

Inputs are dyadic, so that every intermediate is exact in float32 and the expected bits need no tolerance; where the
order of roundings matters, the expected value is spelled with numpy's float32 scalars, one operation at a time.
"""

from __future__ import annotations

import ast
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from verification.cases.arguments import namespace
from verification.frozen import dispatch, gae, kl, lock, policy, reward, token_normalization

F = np.float32
SINGLE_REWARD = ("grpo", "gspo", "sapo", "cispo")


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def samples(rewards: list[Any], groups: list[Any], **fields: Any) -> list[SimpleNamespace]:
    return [
        SimpleNamespace(reward=value, group_index=group, **fields) for value, group in zip(rewards, groups, strict=True)
    ]


def bits(values: Any) -> list[str]:
    """Hex of each float: separates +0 from -0."""
    return [float(value).hex() for value in values]


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


def estimate(algorithm: str, options: dict[str, Any], **inputs: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    lengths = [k.numel() for k in inputs["kl"]]
    return dispatch.compute_advantages_and_returns(
        namespace(algorithm, **options), **{"response_lengths": lengths, "total_lengths": lengths, **inputs}
    )


class TestAdvantages:
    @pytest.mark.parametrize("algorithm", SINGLE_REWARD)
    def test_broadcast(self, algorithm: str) -> None:
        """Each token gets the float32 reward, and advantages is another list of the same tensors."""
        advantages, returns = estimate(algorithm, {}, rewards=[0.1, -2.0], kl=[tensor(9, 9), tensor()])
        assert bits(returns[0]) == bits([F(0.1), F(0.1)])
        assert returns[1].shape == (0,)
        assert advantages is not returns
        assert all(a is r for a, r in zip(advantages, returns, strict=True))

    def test_masked_broadcast(self) -> None:
        """The reward is multiplied by the mask, a negative one leaving -0, and returns is the very same list."""
        advantages, returns = estimate(
            "reinforce_plus_plus_baseline", {}, rewards=[-2.0], kl=[tensor(1, 2, 3)], loss_masks=[tensor(1, 0, 1)]
        )
        assert advantages is returns
        assert bits(advantages[0]) == bits([-2.0, -0.0, -2.0])

    def test_discounted_returns(self) -> None:
        """Penalty and reward are discounted from the end; the reward stands at the last unmasked token."""
        kl_in = [tensor(1.0, 2.0, 4.0, 8.0)]
        advantages, returns = estimate(
            "reinforce_plus_plus",
            {"kl_coef": 0.5, "gamma": 0.5},
            rewards=[3.0],
            kl=kl_in,
            loss_masks=[tensor(1, 0, 1, 0)],
        )
        # t = -0.5 * [1, 0, 4, 0] + [0, 0, 3, 0]; from the end 0, 1, 0.5, -0.25; then the mask.
        assert bits(returns[0]) == bits([-0.25, 0.0, 1.0, 0.0])
        assert advantages is not returns
        assert advantages[0] is returns[0]
        assert bits(kl_in[0]) == bits([1, 2, 4, 8])

    def test_discounted_returns_round_twice(self) -> None:
        """gamma times the running sum is rounded before the penalty is added."""
        k = [tensor(0.3, 0.7, 0.9)]
        _, returns = estimate(
            "reinforce_plus_plus",
            {"kl_coef": 0.1, "gamma": 0.9},
            rewards=[0.7],
            kl=k,
            loss_masks=[tensor(1, 1, 1)],
        )
        coefficient, gamma = F(-0.1), F(0.9)
        last = F(coefficient * F(0.9)) + F(0.7)
        middle = F(coefficient * F(0.7)) + F(gamma * last)
        first = F(coefficient * F(0.3)) + F(gamma * middle)
        assert bits(returns[0]) == bits([first, middle, last])

    @pytest.mark.parametrize(
        ("mask", "words"), [(tensor(0, 0), "response 1.*masked"), (tensor(1), r"response 1.*\(1,\).*\(2,\)")]
    )
    def test_bad_masks_of_returns(self, mask: torch.Tensor, words: str) -> None:
        """A mask of zeros and a mask of another shape are ValueErrors that name the response."""
        with pytest.raises(ValueError, match=words):
            estimate(
                "reinforce_plus_plus", {}, rewards=[1, 1], kl=[tensor(0), tensor(0, 0)], loss_masks=[tensor(1), mask]
            )

    def test_empty_response_of_returns(self) -> None:
        """An empty response gives an empty tensor, and its neighbour is untouched by its reward."""
        _, returns = estimate(
            "reinforce_plus_plus", {}, rewards=[5.0, 2.0], kl=[tensor(), tensor(0)], loss_masks=[tensor(), tensor(1)]
        )
        assert [r.tolist() for r in returns] == [[], [2.0]]


def gae_by_fractions(
    rewards: list[Fraction],
    kl_in: list[list[float]],
    values: list[list[float]],
    kl_coef: float,
    gamma: float,
    lambd: float,
) -> list[list[Fraction]]:
    """The textbook recursion in exact arithmetic, response by response."""
    result = []
    for final, penalties, v in zip(rewards, kl_in, values, strict=True):
        r = [-Fraction(kl_coef) * Fraction(k) for k in penalties]
        r[-1] += final
        advantage = Fraction(0)
        row: list[Fraction] = []
        for t in reversed(range(len(v))):
            following = Fraction(v[t + 1]) if t + 1 < len(v) else Fraction(0)
            delta = r[t] + Fraction(gamma) * following - Fraction(v[t])
            advantage = delta + Fraction(gamma) * Fraction(lambd) * advantage
            row.insert(0, advantage)
        result.append(row)
    return result


class TestGae:
    @pytest.mark.parametrize(
        ("lengths", "gamma", "lambd"),
        [([3, 1, 5], 0.5, 0.5), ([1, 127, 128, 129, 300], 1.0, 1.0), ([130, 4], 1.0, 0.0), ([2, 260], 0.0, 1.0)],
    )
    def test_against_exact_recursion(self, lengths: list[int], gamma: float, lambd: float) -> None:
        """Chunked scan and exact recursion agree to the bit on dyadic inputs, over one and several chunks."""
        values = [[((i * 7 + n) % 9 - 4) / 4 for i in range(n)] for n in lengths]
        kl_in = [[((i * 5 + n) % 7 - 3) / 4 for i in range(n)] for n in lengths]
        rewards = [float(n % 5) - 1.5 for n in lengths]
        advantages, returns = estimate(
            "ppo",
            {"kl_coef": 0.5, "gamma": gamma, "lambd": lambd},
            rewards=rewards,
            kl=[tensor(*row) for row in kl_in],
            values=[tensor(*row) for row in values],
        )
        expected = gae_by_fractions([Fraction(x) for x in rewards], kl_in, values, 0.5, gamma, lambd)
        for row, exact, v, total in zip(advantages, expected, values, returns, strict=True):
            assert bits(row) == bits(exact)
            assert bits(total) == bits(a + Fraction(x) for a, x in zip(exact, v, strict=True))

    def test_empty_response(self) -> None:
        """An empty response is a ValueError that names it."""
        with pytest.raises(ValueError, match="response 1 is empty"):
            estimate("ppo", {}, rewards=[1, 1], kl=[tensor(0), tensor()], values=[tensor(0), tensor()])

    def test_reward_stays_on_the_first_context_parallel_rank(self) -> None:
        """Only context-parallel rank 0 adds the reward, and the KL given is left as it was."""
        k = [tensor(1.0, 2.0)]
        assert [bits(row) for row in gae.token_rewards(tensor(4.0), k, 0.5, 0)] == [bits([-0.5, 3.0])]
        assert [bits(row) for row in gae.token_rewards(tensor(4.0), k, 0.5, 1)] == [bits([-0.5, -1.0])]
        assert bits(k[0]) == bits([1.0, 2.0])

    def test_context_parallel_is_refused(self) -> None:
        """Cut responses are refused instead of being treated as whole ones."""
        with pytest.raises(NotImplementedError, match="context parallelism"):
            estimate("ppo", {"context_parallel_size": 2}, rewards=[1], kl=[tensor(0)], values=[tensor(0)])


class TestTokenNormalization:
    def test_whiten(self) -> None:
        """Masked mean and unbiased variance; masked tokens are shifted and scaled with the rest."""
        got = token_normalization.whiten([tensor(1, 100), tensor(3, 5, 7)], [tensor(1, 0), tensor(1, 1, 1)])
        # n = 4, mean 4, mean of squares 21, var 5, times 4/3.
        variance = F(5) * (F(4) / F(3))
        scale = torch.rsqrt(torch.tensor(variance) + 1e-8).item()
        assert [bits(row) for row in got] == [
            bits([F(-3) * F(scale), F(96) * F(scale)]),
            bits([F(-1) * F(scale), F(1) * F(scale), F(3) * F(scale)]),
        ]

    def test_whiten_of_one_token(self) -> None:
        """One counted token has no unbiased quotient: 0 at that token."""
        got = token_normalization.whiten([tensor(3, 4)], [tensor(1, 0)])[0]
        assert bits(got) == bits([0.0, torch.rsqrt(tensor(1e-8)).item()])

    def test_token_global(self) -> None:
        """Population variance of the masked deviations, and the mask on the result."""
        got = token_normalization.token_global([tensor(1, 100, 3), tensor(5, 7)], [tensor(1, 0, 1), tensor(1, 1)])
        scale = torch.rsqrt(tensor(5.0))[0].item()
        assert [bits(row) for row in got] == [
            bits([F(-3) * F(scale), 0.0, F(-1) * F(scale)]),
            bits([F(1) * F(scale), F(3) * F(scale)]),
        ]

    def test_token_global_floor(self) -> None:
        """Equal advantages meet the floor of the variance and give 0."""
        assert bits(token_normalization.token_global([tensor(2, 2)], [tensor(1, 1)])[0]) == bits([0.0, 0.0])

    @pytest.mark.parametrize("algorithm", ["grpo", "ppo", "reinforce_plus_plus", "reinforce_plus_plus_baseline"])
    def test_no_token_counts(self, algorithm: str) -> None:
        """Masks of zeros only are a ValueError."""
        args = namespace(algorithm, normalize_advantages=True)
        with pytest.raises(ValueError, match="zero throughout"):
            dispatch.normalize_advantages(args, advantages=[tensor(1)], loss_masks=[tensor(0)])

    def test_route(self) -> None:
        """Both REINFORCE++ forms mask their result, the others do not; switched off, the list comes back itself."""
        advantages, masks = [tensor(1, 3, 9)], [tensor(1, 1, 0)]
        last = {}
        for name in dispatch.ALGORITHMS:
            args = namespace(name, normalize_advantages=True)
            last[name] = dispatch.normalize_advantages(args, advantages=advantages, loss_masks=masks)[0][-1].item()
        masked = {name for name, value in last.items() if value == 0.0}
        assert masked == {"reinforce_plus_plus", "reinforce_plus_plus_baseline"}
        off = dispatch.normalize_advantages(namespace("grpo"), advantages=advantages, loss_masks=masks)
        assert off is advantages


LN2 = math.log(2.0)


class TestPolicy:
    def test_ppo_clip(self) -> None:
        """Ratios 1, 2 and 1/2 under both signs of the advantage, clips that differ, the fraction strict."""
        ppo_kl = tensor(0.0, -LN2, -LN2, LN2, LN2)
        loss, clipfrac = policy.ppo_clip(ppo_kl, tensor(3, 1, -1, 1, -1), 0.25, 0.5)
        assert loss[0].item() == -3.0
        assert bits(loss[[1, 4]]) == bits([-1.5, 0.75])
        assert bits(loss[[2, 3]]) == bits([torch.exp(tensor(LN2)).item(), -torch.exp(tensor(-LN2)).item()])
        assert clipfrac.tolist() == [0, 1, 0, 0, 1]
        assert clipfrac.dtype == torch.float32

    def test_dual_clip(self) -> None:
        """Where the advantage is negative the loss stops at -eps_clip_c times it; elsewhere nothing changes."""
        plain, _ = policy.ppo_clip(tensor(-3.0, -3.0), tensor(-1, 1), 0.2, 0.2)
        dual, _ = policy.ppo_clip(tensor(-3.0, -3.0), tensor(-1, 1), 0.2, 0.2, 3.0)
        assert plain[0].item() > 20
        assert bits(dual) == bits([3.0, plain[1].item()])
        with pytest.raises(ValueError, match="must exceed 1"):
            policy.ppo_clip(tensor(0.0), tensor(1.0), 0.2, 0.2, 1.0)

    def test_sapo(self) -> None:
        """At ratio 1 the gate is 1/2 and the loss -2 A / tau, with tau by the strict sign of A."""
        loss, clipfrac = policy.sapo(tensor(0.0, 0.0, 0.0), tensor(1, -1, 0), 2.0, 4.0)
        assert bits(loss) == bits([-1.0, 0.5, -0.0])
        assert clipfrac.tolist() == [0, 0, 0]
        _, far = policy.sapo(tensor(-LN2, LN2), tensor(1, 1), 1.0, 1.0)
        assert far.tolist() == [1, 0]

    def test_cispo_gradient(self) -> None:
        """The coefficient is a clipped constant: the gradient is -coefficient * A at each log-prob."""
        log_probs = tensor(-1, -1, -1, -1).requires_grad_()
        old = log_probs.detach() + tensor(-LN2, LN2, -LN2, LN2)
        loss, clipfrac = policy.cispo(old - log_probs, log_probs, tensor(1, 1, -1, -1), 0.25, 0.5)
        loss.sum().backward()
        up, down = torch.exp(tensor(LN2)).item(), torch.exp(tensor(-LN2)).item()
        assert log_probs.grad is not None
        # exp of the difference of two log-probs is within one ulp of 2 and 1/2, whichever way old - new rounds.
        assert torch.allclose(log_probs.grad, tensor(-1.5, -down, up, 0.75), rtol=2**-22, atol=0)
        assert clipfrac.tolist() == [1, 0, 0, 1]

    def test_sequence_kl_and_opsm(self) -> None:
        """Both take each response's masked mean; the mask drops negative tokens of responses beyond delta."""
        old, new, masks = [tensor(1, 3, 9), tensor(0.5)], [tensor(0, 0, 0), tensor(0)], [tensor(1, 1, 0), tensor(0)]
        assert policy.sequence_kl(old, new, masks).tolist() == [2, 2, 2, 0]
        kept = policy.opsm_mask(old, new, [tensor(-1, 1, -1), tensor(-1)], masks, 1.5)
        assert kept.tolist() == [0, 1, 0, 1]
        at_delta = policy.opsm_mask(old, new, [tensor(-1, 1, -1), tensor(-1)], masks, 2.0)
        assert at_delta.tolist() == [1, 1, 1, 1]

    def test_importance_weights(self) -> None:
        """Truncation clamps, IcePop zeroes, and IcePop's bounds belong to the inside."""
        old, rollout = tensor(0.0, 0.0, 1.0, -1.0), tensor(0.0, 2.0, 0.0, 0.0)
        w = torch.exp(old - rollout)
        assert bits(policy.tis_weights(old, rollout, 0.25, 2.0)) == bits([1.0, 0.25, 2.0, w[3].item()])
        assert bits(policy.icepop_weights(old, rollout, 0.25, 2.0)) == bits([1.0, 0.0, 0.0, w[3].item()])
        assert bits(policy.icepop_weights(old, rollout, w[1].item(), w[2].item())) == bits(w)

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({}, [2.0, -0.5]),
            ({"use_opsm": True, "opsm_delta": -1.0}, [0.0, -0.5]),
            ({"use_tis": True, "tis_clip": 1.0, "tis_clip_low": 0.5}, [1.0, -0.5]),
            ({"use_tis": True, "tis_clip": 1.0, "tis_clip_low": 0.5, "tis_mode": "icepop"}, [0.0, -0.0]),
        ],
    )
    def test_composition(self, options: dict[str, Any], expected: list[float]) -> None:
        """The objective is multiplied by the off-policy mask and by the importance weights, each by its switch."""
        log_probs = [tensor(-1, -2)]
        loss, _, ppo_kl = dispatch.policy_objective(
            namespace("grpo", **options),
            old_log_probs=log_probs,
            log_probs=log_probs,
            advantages=[tensor(-2, 0.5)],
            loss_masks=[tensor(1, 1)],
            rollout_log_probs=[tensor(0.0, -3)],
        )
        assert bits(loss) == bits(expected)
        assert bits(ppo_kl) == bits([0.0, 0.0])


class TestReducers:
    def test_sample_mean(self) -> None:
        """A mean over each response's counted tokens, summed; a response without any counts 0."""
        values, masks = [tensor(1, 2, 6), tensor(5)], [tensor(1, 0, 1), tensor(0)]
        assert dispatch.reduce_loss(namespace("grpo"), values=values, loss_masks=masks).item() == 3.5

    def test_full_masks_are_the_denominator(self) -> None:
        """Under context parallelism the rank's own tokens are divided by the whole response's count."""
        got = dispatch.reduce_loss(
            namespace("grpo"), values=[tensor(1, 2)], loss_masks=[tensor(1, 1)], full_loss_masks=[tensor(1, 1, 1, 1)]
        )
        assert got.item() == 0.75

    def test_token_sum(self) -> None:
        """A plain sum over counted tokens."""
        args = namespace("grpo", calculate_per_token_loss=True)
        values, masks = [tensor(1, 2, 6), tensor(5)], [tensor(1, 0, 1), tensor(1)]
        assert dispatch.reduce_loss(args, values=values, loss_masks=masks).item() == 12


class TestRoles:
    @pytest.mark.parametrize(
        ("algorithm", "options", "expected"),
        [
            ("grpo", {}, ["actor", "rollout"]),
            ("ppo", {"hybrid": True}, ["actor", "critic", "rollout"]),
            ("gspo", {"fully_async": True}, ["actor", "rollout", "advantages", "reference", "actor_fwd"]),
            ("ppo", {"fully_async": True}, ["actor", "critic", "rollout", "advantages", "reference", "actor_fwd"]),
            (
                "sapo",
                {"fully_async": True, "true_on_policy_mode": True},
                ["actor", "rollout", "advantages", "reference"],
            ),
            ("grpo", {"debug_rollout_only": True}, ["rollout"]),
            ("ppo", {"debug_train_only": True}, ["actor"]),
            ("grpo", {"loss_type": "sft_loss"}, ["sft", "actor"]),
        ],
    )
    def test_roles_in_order(self, algorithm: str, options: dict[str, Any], expected: list[str]) -> None:
        """Each mode starts the roles of its set that the algorithm's table holds, in the order of the set."""
        assert list(dispatch.process_role(namespace(algorithm, **options))) == expected

    def test_reference_and_actor_fwd_share_a_class(self) -> None:
        """ActorFwd runs as reference and as actor_fwd."""
        roles = dispatch.process_role(namespace("grpo", fully_async=True))
        assert roles["reference"] == roles["actor_fwd"] == "relax.components.actor_fwd:ActorFwd"


class TestBoundaries:
    @pytest.mark.parametrize("algorithm", ["gdpo", "rloo", "GRPO", ""])
    def test_unknown_algorithm(self, algorithm: str) -> None:
        """What the baseline did not have is a NotImplementedError at every stage."""
        args = namespace(algorithm)
        calls = [
            lambda: dispatch.post_process_rewards(args, []),
            lambda: dispatch.group_carries_reward_signal(args, []),
            lambda: dispatch.kl_per_response(args, log_probs=None, ref_log_probs=None, values=[]),
            lambda: dispatch.compute_advantages_and_returns(args, rewards=[], kl=[]),
            lambda: dispatch.normalize_advantages(args, advantages=[], loss_masks=[]),
            lambda: dispatch.compute_policy_loss_for(args, log_probs=tensor(), ppo_kl=tensor(), advantages=tensor()),
            lambda: dispatch.policy_objective(args, old_log_probs=[], log_probs=[], advantages=[], loss_masks=[]),
            lambda: dispatch.reduce_loss(args, values=[], loss_masks=[]),
            lambda: dispatch.process_role(args),
        ]
        for call in calls:
            with pytest.raises(NotImplementedError):
                call()

    def test_exact_statistics_are_unknown(self) -> None:
        """Correctly rounded statistics are newer than the baseline."""
        with pytest.raises(NotImplementedError, match="exact"):
            dispatch.post_process_rewards(namespace("grpo", exact_statistics=True), samples([1.0], [0]))

    def test_frozen_imports_nothing_else(self) -> None:
        """The copies import torch, the standard library and one another, and nothing of relax."""
        allowed = {"torch", "verification.frozen", *sys.stdlib_module_names}
        for path in lock.FOLDER.glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    assert {alias.name for alias in node.names} <= allowed, path
                elif isinstance(node, ast.ImportFrom):
                    assert node.module in allowed or (node.module or "").split(".")[0] in sys.stdlib_module_names, path


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with two frozen files and their lock."""
    (tmp_path / "kl.py").write_bytes(b"k = 1\n")
    (tmp_path / "gae.py").write_bytes(b"g = 1\n")
    (tmp_path / lock.LOCK_NAME).write_text(lock.as_text(lock.locked_files(tmp_path)))
    return tmp_path


class TestLock:
    def test_the_copies_stand(self) -> None:
        """Every frozen file, the lock's own code included, has its recorded hash."""
        assert lock.check_lock() == []
        assert {"lock.py", "dispatch.py", "__init__.py"} <= set(lock.read_lock())

    def test_untouched(self, copy: Path) -> None:
        """An untouched folder has no problem."""
        assert lock.check_lock(copy) == []

    def test_one_changed_byte(self, copy: Path) -> None:
        """One changed byte names the file and the remedy, and no other file."""
        (copy / "kl.py").write_bytes(b"k = 2\n")
        (problem,) = lock.check_lock(copy)
        assert str(copy / "kl.py") in problem
        assert "restore it from version control" in problem

    def test_added_and_removed_files(self, copy: Path) -> None:
        """A file that is not locked and a locked one that is gone are both named."""
        (copy / "kl.py").rename(copy / "reward.py")
        gone, added = lock.check_lock(copy)
        assert "kl.py is locked but missing" in gone
        assert "reward.py is not locked" in added

    def test_line_endings(self, copy: Path) -> None:
        """CRLF line endings are told apart from an edit."""
        (copy / "kl.py").write_bytes(b"k = 1\r\n")
        (problem,) = lock.check_lock(copy)
        assert "kl.py has CRLF line endings" in problem

    @pytest.mark.parametrize("line", ["nonsense", "0" * 64 + " kl.py", "0" * 63 + "g  kl.py"])
    def test_damaged_lock(self, copy: Path, line: str) -> None:
        """A damaged lock is named with its line, and so is a missing one."""
        (copy / lock.LOCK_NAME).write_text(f"{line}\n")
        (problem,) = lock.check_lock(copy)
        assert f"{lock.LOCK_NAME}:1" in problem
        (copy / lock.LOCK_NAME).unlink()
        assert "is missing" in lock.check_lock(copy)[0]

    def test_writing_is_refused_under_ci(self, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The lock is written anew by hand, never under CI."""
        (copy / "kl.py").write_bytes(b"k = 2\n")
        monkeypatch.setenv("CI", "true")
        with pytest.raises(PermissionError, match="CI"):
            lock.write_lock(copy)
        assert len(lock.check_lock(copy)) == 1
        monkeypatch.delenv("CI")
        lock.write_lock(copy)
        assert lock.check_lock(copy) == []

    def test_command(self) -> None:
        """The command checks by default and refuses to write under CI with exit 2."""
        command = [sys.executable, "-m", "verification.frozen.lock"]
        root = lock.FOLDER.parents[1]
        assert subprocess.run(command, cwd=root, check=False).returncode == 0
        refused = subprocess.run(
            [*command, "--write"], cwd=root, env={"CI": "1"}, capture_output=True, text=True, check=False
        )
        assert refused.returncode == 2
        assert "CI" in refused.stderr
