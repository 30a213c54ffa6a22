"""The frozen policy losses and reducers against values worked out by hand.

Inputs are dyadic, so that every intermediate is exact in float32 and the expected bits need no tolerance; where the
order of roundings matters, the expected value is spelled with numpy's float32 scalars, one operation at a time.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.verification.frozen_inputs import bits, tensor
from verification.cases.arguments import namespace
from verification.frozen import dispatch, policy

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
        # reason: exp of the difference of two log-probs is within one ulp of 2 and 1/2, whichever way old - new rounds.
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
