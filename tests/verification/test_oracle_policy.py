"""The oracle's policy objectives: derivatives by differences and by autograd, kinks, ends of the format."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from flint import arb, ctx

from tests.verification.oracle_readings import doubles_of
from verification.cases.case import Case
from verification.oracle import evaluate
from verification.oracle.reals import single


def policy_case(algorithm, old, new, advantages, *, masks=None, rollout=None, **options):
    """One response of ``policy.loss`` in float64 inputs, so that a derivative can be formed by differences."""
    inputs = {
        "old_log_probs": [np.array(old)],
        "log_probs": [np.array(new)],
        "advantages": [np.array(advantages)],
        "loss_masks": None if masks is None else [np.array(masks)],
        "rollout_log_probs": None if rollout is None else [np.array(rollout)],
    }
    return Case("oracle/policy", "policy.loss", algorithm, inputs, options)


OLD = [-1.0, -0.5, -2.0, -1.25, -0.75, -3.0]
NEW = [-1.125, -0.875, -1.0, -1.25, -2.75, -2.9375]
ADVANTAGES = [1.5, -0.5, 2.0, -1.0, -2.0, 0.75]
MASKS = [1.0, 1.0, 0.0, 1.0, 1.0, 1.0]


class TestPolicy:
    """Objectives and their derivatives by hand."""

    SWITCHES = (
        pytest.param("grpo", {}, id="ppo_clip"),
        pytest.param("grpo", {"eps_clip_c": 1.1}, id="dual clip"),
        pytest.param("gspo", {}, id="sequence"),
        pytest.param("sapo", {}, id="soft_gate"),
        pytest.param("rloo", {}, id="reinforce"),
        pytest.param("grpo", {"use_tis": True, "tis_clip": 1.5}, id="truncated weights"),
        pytest.param("grpo", {"use_tis": True, "tis_mode": "icepop", "tis_clip": 1.5}, id="icepop"),
        pytest.param("grpo", {"use_opsm": True}, id="opsm"),
    )
    ROLLOUT = (-1.0, -1.5, -1.875, -1.25, -0.5, -3.0)

    @pytest.mark.parametrize(("algorithm", "options"), SWITCHES)
    def test_gradient_is_the_slope_of_the_loss(self, algorithm, options):
        """Central differences of the oracle's own loss, 2^-26 apart, give the gradient to within their own error."""
        step = 2.0**-26
        rollout = self.ROLLOUT if options.get("use_tis") else None
        found = evaluate(policy_case(algorithm, OLD, NEW, ADVANTAGES, masks=MASKS, rollout=rollout, **options))
        gradient = doubles_of(found["grad.log_probs[0]"])
        for j in range(len(NEW)):
            sums = []
            for sign in (1, -1):
                moved = list(NEW)
                moved[j] += sign * step
                case = policy_case(algorithm, OLD, moved, ADVANTAGES, masks=MASKS, rollout=rollout, **options)
                with ctx.workprec(192):
                    sums.append(sum(evaluate(case)["loss"].values, arb(0)))
            with ctx.workprec(192):
                slope = float((sums[0] - sums[1]) / (2 * step))
            # A central difference is off by step^2 / 6 times the third derivative: 4e-17 times less than 100 here.
            assert slope == pytest.approx(gradient[j], rel=1e-14, abs=1e-14)
        assert any(abs(slope) > 0.1 for slope in gradient)

    def test_cispo_has_no_gradient_through_its_coefficient(self):
        """The loss is -c A log p with c cut above for A >= 0 and below for A < 0; the gradient is -c A."""
        found = evaluate(policy_case("cispo", OLD, NEW, ADVANTAGES))
        ratios = [math.exp(new - old) for new, old in zip(NEW, OLD, strict=True)]
        cut = [min(r, single(1.2)) if a >= 0 else max(r, single(0.8)) for r, a in zip(ratios, ADVANTAGES, strict=True)]
        slopes = [-c * a for c, a in zip(cut, ADVANTAGES, strict=True)]
        assert doubles_of(found["grad.log_probs[0]"]) == pytest.approx(slopes, rel=1e-14)  # a few roundings of float64
        losses = [slope * new for slope, new in zip(slopes, NEW, strict=True)]
        assert doubles_of(found["loss"]) == pytest.approx(losses, rel=1e-14)
        assert doubles_of(found["clipfrac"]) == [0.0, 1.0, 1.0, 0.0, 1.0, 0.0]

    def test_ppo_clip_by_autograd(self):
        """Loss, decisions and gradient agree with torch's autograd on the plain expression in float64."""
        found = evaluate(policy_case("grpo", OLD, NEW, ADVANTAGES, eps_clip_c=1.1))
        new = torch.tensor(NEW, dtype=torch.float64, requires_grad=True)
        advantages = torch.tensor(ADVANTAGES, dtype=torch.float64)
        ratio = torch.exp(new - torch.tensor(OLD, dtype=torch.float64))
        first, second = -ratio * advantages, -torch.clamp(ratio, single(0.8), single(1.2)) * advantages
        loss = torch.max(first, second)
        loss = torch.where(advantages < 0, torch.min(-single(1.1) * advantages, loss), loss)
        loss.sum().backward()
        assert doubles_of(found["loss"]) == pytest.approx(loss.tolist(), rel=1e-14)  # a few roundings of float64
        assert doubles_of(found["grad.log_probs[0]"]) == pytest.approx(new.grad.tolist(), rel=1e-14)
        assert doubles_of(found["clipfrac"]) == (second > first).double().tolist()

    def test_sequence_level_shares_one_log_ratio(self):
        """Every token of a response has the masked mean of old - new, and a masked token gets no gradient."""
        found = evaluate(policy_case("gspo", OLD, NEW, ADVANTAGES, masks=MASKS))
        mean = sum((o - n) * m for o, n, m in zip(OLD, NEW, MASKS, strict=True)) / 5
        assert doubles_of(found["ppo_kl"]) == [mean] * 6
        assert doubles_of(found["grad.log_probs[0]"])[2] == 0.0

    @pytest.mark.parametrize(("algorithm", "options"), [("gspo", {}), ("grpo", {"use_opsm": True, "opsm_delta": 0.3})])
    def test_no_masks_are_ones(self, algorithm, options):
        """Where a mask is read, none means ones, and a mask of booleans the 0 and 1 that they stand for."""
        none, ones, holes = (
            evaluate(policy_case(algorithm, OLD, NEW, ADVANTAGES, masks=masks, **options))
            for masks in (None, [True] * 6, [True, True, False, True, True, True])
        )
        floats = evaluate(policy_case(algorithm, OLD, NEW, ADVANTAGES, masks=MASKS, **options))
        assert {name: doubles_of(exact) for name, exact in none.items()} == {
            name: doubles_of(exact) for name, exact in ones.items()
        }
        assert doubles_of(holes["loss"]) == doubles_of(floats["loss"])
        assert doubles_of(none["loss"]) != doubles_of(holes["loss"])
        mean = sum(o - n for o, n in zip(OLD, NEW, strict=True)) / 6
        assert algorithm != "gspo" or doubles_of(none["ppo_kl"]) == pytest.approx([mean] * 6, rel=1e-15)  # one rounding

    def test_masks_and_weights_multiply_the_loss(self):
        """OPSM drops tokens of negative advantage, TIS cuts the weight at its bound, IcePop drops what is outside."""
        plain = doubles_of(evaluate(policy_case("grpo", OLD, NEW, ADVANTAGES, masks=MASKS))["loss"])
        opsm = doubles_of(evaluate(policy_case("grpo", OLD, NEW, ADVANTAGES, masks=MASKS, use_opsm=True))["loss"])
        assert opsm == [loss if advantage > 0 else 0.0 for loss, advantage in zip(plain, ADVANTAGES, strict=True)]
        weights = [math.exp(old - rollout) for old, rollout in zip(OLD, self.ROLLOUT, strict=True)]
        for mode in ("truncate", "icepop"):
            options = {"use_tis": True, "tis_mode": mode, "tis_clip": 1.5, "tis_clip_low": 0.8}
            found = doubles_of(
                evaluate(policy_case("grpo", OLD, NEW, ADVANTAGES, rollout=self.ROLLOUT, **options))["loss"]
            )
            if mode == "truncate":
                cut = [min(max(weight, single(0.8)), 1.5) for weight in weights]
            else:
                cut = [weight if single(0.8) <= weight <= 1.5 else 0.0 for weight in weights]
            expected = [loss * weight for loss, weight in zip(plain, cut, strict=True)]
            assert found == pytest.approx(expected, rel=1e-14)  # three roundings of float64

    def test_a_ratio_at_its_bound_leaves_the_branch_open(self):
        """Within rounding of the clip both decisions count, and the full, half and no gradient; the loss is one."""
        at = math.log(single(1.2))
        found = evaluate(
            policy_case("grpo", [-1.0, -1.0, -1.0], [-1.0 + at, -1.0 + at + 1e-4, -1.0 + at - 1e-4], [1.0] * 3)
        )
        assert list(found["clipfrac"].alternatives) == list(found["grad.log_probs[0]"].alternatives) == [0]
        assert not found["loss"].alternatives
        assert doubles_of(found["clipfrac"])[1:] == [1.0, 0.0]
        full, *others = (found["grad.log_probs[0]"].values[0], *found["grad.log_probs[0]"].alternatives[0])
        assert [float(other) for other in others] == [float(full) / 2, 0.0]

    def test_an_equal_policy_is_decided(self):
        """Where old and new agree the ratio is 1, in float32 too: with a clip of 0 it is on the bound."""
        found = evaluate(policy_case("grpo", [-1.0], [-1.0], [2.0], eps_clip=0.0, eps_clip_high=0.0))
        assert not found["grad.log_probs[0]"].alternatives
        assert doubles_of(found["grad.log_probs[0]"]) == [-2.0]
        assert doubles_of(found["clipfrac"]) == [0.0]

    def test_beyond_the_format(self):
        """A ratio beyond float32 leaves the clipped loss judged, its gradient (0 times infinity) not."""
        found = evaluate(policy_case("grpo", [-100.0], [-1.0], [2.0]))
        assert doubles_of(found["loss"]) == [-2.0 * single(1.2)]
        assert found["grad.log_probs[0]"].unjudged == 1
        assert evaluate(policy_case("grpo", [-100.0], [-1.0], [-2.0]))["loss"].unjudged == 1

    def test_an_input_that_is_not_finite_leaves_its_token_unjudged(self):
        """A NaN log-prob spoils its own token, and under a sequence-level ratio the whole response."""
        new = [math.nan, -0.5, -2.0]
        assert evaluate(policy_case("grpo", OLD[:3], new, ADVANTAGES[:3]))["loss"].unjudged == 1
        assert evaluate(policy_case("gspo", OLD[:3], new, ADVANTAGES[:3]))["loss"].unjudged == 3
