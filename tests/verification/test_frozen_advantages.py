"""The frozen advantage stages against values worked out by hand or with exact fractions.

Inputs are dyadic, so that every intermediate is exact in float32 and the expected bits need no tolerance; where the
order of roundings matters, the expected value is spelled with numpy's float32 scalars, one operation at a time.
"""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from tests.verification.frozen_inputs import SINGLE_REWARD, F, bits, estimate, tensor
from verification.cases.arguments import namespace
from verification.frozen import dispatch, gae, token_normalization


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
