"""The oracle's token stages but the policy: KL, returns, normalisation, reducers, by fractions and decimals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal, getcontext
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
import torch
from flint import fmpq

from tests.verification.oracle_readings import doubles_of, floats_of, tokens
from verification.cases.case import Case
from verification.oracle import evaluate
from verification.oracle.reals import single

getcontext().prec = 60


class TestKl:
    """The KL kinds."""

    FORMULAS: ClassVar[Mapping[str, Callable[[Decimal], Decimal]]] = {
        "k1": lambda d: d,
        "k2": lambda d: d * d / 2,
        "k3": lambda d: (-d).exp() - 1 + d,
        "low_var_kl": lambda d: max(min((-d).exp() - 1 + d, Decimal(10)), Decimal(-10)),
    }

    @pytest.mark.parametrize("kind", list(FORMULAS))
    def test_by_decimals(self, kind):
        """Each kind equals its formula in decimals, weighted before it is clamped."""
        rows = tokens([-1.0, -0.5, -3.25, -0.125, -7.0], [-1.5, -0.5, -0.25, -9.0, -2.0], [1.0, 0.5, 2.0, 0.75, 3.0])
        inputs = {"log_probs": rows[:1], "ref_log_probs": rows[1:2], "importance_ratios": rows[2:]}
        case = Case("oracle/kl", "kl.estimate", "grpo", inputs, {"kl_coef": 0.1, "kl_loss_type": kind})
        found = doubles_of(evaluate(case)["kl[0]"])
        expected = []
        for new, old, ratio in zip(*(row.tolist() for row in rows), strict=True):
            unclamped = self.FORMULAS["k3" if kind == "low_var_kl" else kind](Decimal(new) - Decimal(old)) * Decimal(
                ratio
            )
            expected.append(
                float(max(min(unclamped, Decimal(10)), Decimal(-10)) if kind == "low_var_kl" else unclamped)
            )
        assert found == pytest.approx(expected, rel=1e-14)  # float() of either rounds once
        assert kind != "low_var_kl" or 10.0 in found

    def test_none_asked_for(self):
        """Without a coefficient the estimate is +0 in the shape of the log-probs."""
        case = Case("oracle/kl", "kl.estimate", "grpo", {"log_probs": tokens([-1.0, -2.0], [])}, {"kl_coef": 0.0})
        found = evaluate(case)
        assert [one.shape for one in found.values()] == [(2,), (0,)]
        assert found["kl[0]"].values == (0, 0)
        assert found["kl[0]"].positive_zero


class TestReturns:
    """Advantages and returns, by the sums that the recurrences stand for."""

    GAMMA, LAMBD, COEFFICIENT = 0.9, 0.7, 0.05

    def evaluate(self, algorithm, **inputs):
        options = {"gamma": self.GAMMA, "lambd": self.LAMBD, "kl_coef": self.COEFFICIENT}
        return evaluate(Case("oracle/returns", "advantage.estimate", algorithm, inputs, options))

    def test_discounted_returns_as_a_double_sum(self):
        """Token j gets its mask times the sum of gamma^(l-j) t_l; the reward sits on the last unmasked token."""
        kl, mask, reward = [0.5, -1.0, 0.25, 2.0, 1.0], [1.0, 0.0, 1.0, 1.0, 0.0], 3.0
        gamma, coefficient = Fraction(single(self.GAMMA)), Fraction(single(self.COEFFICIENT))
        terms = [
            -coefficient * Fraction(k) * Fraction(m) + (reward if i == 3 else 0)
            for i, (k, m) in enumerate(zip(kl, mask, strict=True))
        ]
        expected = [
            float(sum(gamma ** (later - j) * terms[later] for later in range(j, 5)) * Fraction(mask[j]))
            for j in range(5)
        ]
        found = self.evaluate("reinforce_plus_plus", rewards=[reward], kl=tokens(kl), loss_masks=tokens(mask))
        assert doubles_of(found["returns[0]"]) == pytest.approx(expected, rel=1e-14)  # one rounding each
        assert found["returns[0]"].values == found["advantages[0]"].values
        assert expected[2] > expected[0] > 0

    def test_gae_as_a_double_sum(self):
        """Token j gets sum of (gamma lambd)^(l-j) delta_l, the product rounded once; returns add the value."""
        kl, values, reward = [0.5, -1.0, 0.25], [0.5, 2.0, -1.0], 3.0
        gamma, coefficient = Fraction(single(self.GAMMA)), Fraction(single(self.COEFFICIENT))
        carry = Fraction(single(self.GAMMA * self.LAMBD))
        rewards = [-coefficient * Fraction(k) for k in kl]
        rewards[-1] += Fraction(reward)
        following = [*values[1:], 0.0]
        deltas = [r + gamma * Fraction(n) - Fraction(v) for r, n, v in zip(rewards, following, values, strict=True)]
        expected = [float(sum(carry ** (later - j) * deltas[later] for later in range(j, 3))) for j in range(3)]
        found = self.evaluate("ppo", rewards=[reward], kl=tokens(kl), values=tokens(values))
        assert doubles_of(found["advantages[0]"]) == pytest.approx(expected, rel=1e-14)  # one rounding each
        sums = [float(Fraction(a) + Fraction(v)) for a, v in zip(expected, values, strict=True)]
        assert doubles_of(found["returns[0]"]) == pytest.approx(sums, rel=1e-14)

    def test_gae_of_float64_values(self):
        """The token rewards are float32, each operation of theirs rounded; all else is in the doubles themselves."""
        kl, values, reward = [0.1, -1.1, 0.3], [1 / 3, 2.1, -0.7], 3.3
        kl_rows, value_rows = tokens(kl), tokens(values, dtype=np.float64)
        penalties = (kl_rows[0] * np.float32(-self.COEFFICIENT)).astype(np.float32)
        penalties[-1] = np.float32(penalties[-1] + np.float32(reward))
        gamma, carry = Fraction(self.GAMMA), Fraction(self.GAMMA * self.LAMBD)
        pairs = zip(penalties.tolist(), [*values[1:], 0.0], values, strict=True)
        deltas = [Fraction(r) + gamma * Fraction(n) - Fraction(v) for r, n, v in pairs]
        sums = [sum(carry ** (later - j) * deltas[later] for later in range(j, 3)) for j in range(3)]
        found = self.evaluate("ppo", rewards=[reward], kl=kl_rows, values=value_rows)
        assert doubles_of(found["advantages[0]"]) == [float(exact) for exact in sums]
        assert doubles_of(found["returns[0]"]) == [float(x + Fraction(v)) for x, v in zip(sums, values, strict=True)]
        assert {(exact.dtype, exact.grid) for exact in found.values()} == {(torch.float64, torch.float64)}
        single_rows = self.evaluate("ppo", rewards=[reward], kl=kl_rows, values=tokens(values))
        assert doubles_of(single_rows["advantages[0]"]) != doubles_of(found["advantages[0]"])
        assert single_rows["advantages[0]"].grid == torch.float32

    def test_broadcasts(self):
        """A score reaches each token; the masked form keeps it where the mask is one."""
        kl = tokens([0.0, 0.0, 0.0], [])
        plain = self.evaluate("grpo", rewards=[0.1, 2.0], kl=kl)
        assert floats_of(plain["advantages[0]"]) == [single(0.1)] * 3
        assert plain["returns[1]"].values == ()
        masked = self.evaluate(
            "reinforce_plus_plus_baseline", rewards=[0.1, 2.0], kl=kl, loss_masks=tokens([1, 0, 1], [])
        )
        assert floats_of(masked["advantages[0]"]) == [single(0.1), 0.0, single(0.1)]

    def test_batch_step_follows_the_optimizer_batches(self):
        """Each run of mini_batch_sizes is whitened on its own, one vote a response whatever its length."""
        kl = tokens([0.0], [0.0] * 5, [0.0, 0.0], [])
        found = self.evaluate("gdpo", rewards=[1.0, 3.0, 7.0, 7.0], kl=kl, mini_batch_sizes=[2, 1, 0, 1])
        half = floats_of(found["advantages[1]"])
        assert half == [single(1 / (math.sqrt(2) + 1e-4))] * 5
        assert floats_of(found["advantages[0]"]) == [-half[0]]
        assert floats_of(found["advantages[2]"]) == [0.0, 0.0]
        assert self.evaluate("gdpo", rewards=[1.0] * 4, kl=kl, mini_batch_sizes=[2, 1]) is None


class TestTokenNormalization:
    """Whitening over tokens."""

    VALUES, MASKS = ([1.0, -2.0, 0.5], [4.0, 0.25]), ([1.0, 0.0, 1.0], [1.0, 1.0])

    def evaluate(self, algorithm, values=VALUES, masks=MASKS):
        inputs = {"advantages": tokens(*values), "loss_masks": masks and tokens(*masks)}
        case = Case("oracle/tokens", "advantage.normalize", algorithm, inputs, {"normalize_advantages": True})
        return evaluate(case)

    def numbers(self):
        values = [Decimal(value) for row in self.VALUES for value in row]
        weights = [Decimal(value) for row in self.MASKS for value in row]
        count = sum(weights)
        mean = sum(v * w for v, w in zip(values, weights, strict=True)) / count
        spread = sum(w * (v - mean) ** 2 for v, w in zip(values, weights, strict=True))
        return values, weights, count, mean, spread

    def test_whiten_by_decimals(self):
        """Masked mean and unbiased masked variance, applied to masked tokens as well."""
        values, _, count, mean, spread = self.numbers()
        root = (spread / (count - 1) + Decimal(single(1e-8))).sqrt()
        found = self.evaluate("grpo")
        flat = doubles_of(found["advantages[0]"]) + doubles_of(found["advantages[1]"])
        assert flat == pytest.approx([float((v - mean) / root) for v in values], rel=1e-14)  # one rounding each

    def test_token_global_by_decimals(self):
        """Population variance, and the masked tokens are 0."""
        values, weights, count, mean, spread = self.numbers()
        root = (spread / count).sqrt()
        found = self.evaluate("reinforce_plus_plus")
        flat = doubles_of(found["advantages[0]"]) + doubles_of(found["advantages[1]"])
        expected = [float((v - mean) * w / root) for v, w in zip(values, weights, strict=True)]
        assert flat == pytest.approx(expected, rel=1e-14)  # one rounding each
        assert flat[1] == 0.0

    def test_no_masks_are_ones(self):
        """Without masks every token counts."""
        for algorithm in ("grpo", "reinforce_plus_plus"):
            ones = self.evaluate(algorithm, masks=([1.0] * 3, [1.0] * 2))
            none = self.evaluate(algorithm, masks=None)
            assert [doubles_of(none[name]) for name in ones] == [doubles_of(exact) for exact in ones.values()]

    def test_a_variance_lost_to_one_pass_is_not_judged(self):
        """Values of 1e3 with a spread of 0.05 leave no digit of the one-pass variance; the two-pass one keeps most."""
        values = ([1e3, 1e3 + 0.05, 1e3 + 0.1],)
        assert self.evaluate("grpo", values, ([1.0] * 3,))["advantages[0]"].unjudged == 3
        assert self.evaluate("reinforce_plus_plus", values, ([1.0] * 3,))["advantages[0]"].unjudged == 0

    def test_the_floor_of_the_variance(self):
        """A flat batch is (a - mean) * 1e4 = 0 by the floor, not a division by zero."""
        found = self.evaluate("reinforce_plus_plus", ([0.5, 0.5],), ([1.0, 1.0],))["advantages[0]"]
        assert doubles_of(found) == [0.0, 0.0]


class TestReducers:
    """The reduced loss."""

    MASKS = ([1.0, 0.0, 1.0], [0.0], [])

    def evaluate(self, *, per_token=False, full=None, masks=MASKS, dtype=np.float32):
        inputs = {
            "values": tokens([1.0, 2.0, 4.0], [8.0], []),
            "loss_masks": masks and tokens(*masks, dtype=dtype),
            "full_loss_masks": full and tokens(*full),
        }
        return evaluate(Case("oracle/reduce", "loss.reduce", "grpo", inputs, {"calculate_per_token_loss": per_token}))

    def test_sample_mean(self):
        """The mean of each response's unmasked tokens; a response masked throughout counts 0 over 1."""
        found = self.evaluate()
        assert doubles_of(found["loss"]) == [2.5]
        assert found["loss"].shape == ()
        assert [doubles_of(found[f"grad.values[{i}]"]) for i in range(3)] == [[0.5, 0.0, 0.5], [0.0], []]

    def test_token_sum(self):
        """The sum of the unmasked tokens; the gradient is the mask."""
        found = self.evaluate(per_token=True)
        assert doubles_of(found["loss"]) == [5.0]
        assert doubles_of(found["grad.values[0]"]) == [1.0, 0.0, 1.0]

    def test_full_masks_are_the_denominator(self):
        """Under context parallelism the rank's own tokens are divided by the whole response's count."""
        found = self.evaluate(full=([1.0] * 5, [1.0, 1.0], [1.0]))
        assert doubles_of(found["loss"]) == [1.0]
        assert found["grad.values[0]"].values[0] == fmpq(1, 5)

    def test_no_masks_are_ones(self):
        """Without masks every token counts, in the loss, in its denominator and in its gradient."""
        found = self.evaluate(masks=None)
        assert found["loss"].values == (fmpq(7, 3) + 8,)
        assert found["grad.values[0]"].values == (fmpq(1, 3),) * 3
        assert doubles_of(self.evaluate(masks=None, per_token=True)["loss"]) == [15.0]

    @pytest.mark.parametrize("dtype", [np.int64, np.bool_])
    def test_masks_of_another_dtype(self, dtype):
        """Integers and booleans count as the 0 and 1 that they stand for."""
        found, expected = self.evaluate(dtype=dtype), self.evaluate()
        assert {name: exact.values for name, exact in found.items()} == {
            name: exact.values for name, exact in expected.items()
        }
