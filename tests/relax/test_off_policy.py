"""Weights for tokens of another engine: bounds, bits, and where they enter the loss."""

from __future__ import annotations

import pytest
import torch

from relax.algorithms.formulas.off_policy import OFF_POLICY_WEIGHTS, icepop_weights, truncated_weights
from relax.algorithms.policy import policy_objective
from verification.cases.arguments import namespace
from verification.judges.bits import first_difference

# Differences of old and rollout log-prob, and exp of them as torch gives it: 0.135, 1, 2.718, 7.389.
OLD = torch.tensor([-3.0, -1.0, -0.5, -0.25])
ROLLOUT = torch.tensor([-1.0, -1.0, -1.5, -2.25])
W = torch.exp(OLD - ROLLOUT)


def test_truncation_cuts_to_the_bounds():
    """Weights of 0.135, 1, 2.718 and 7.389 are cut to 0.5 below and 2 above."""
    got = truncated_weights(OLD, ROLLOUT, low=0.5, high=2.0)
    assert got.tolist() == [0.5, 1.0, 2.0, 2.0]
    assert first_difference(truncated_weights(OLD, ROLLOUT, low=0.0, high=9.0), W) is None


def test_icepop_drops_what_lies_outside():
    """The same weights, outside of [0.5, 2] 0, inside as they are."""
    assert icepop_weights(OLD, ROLLOUT, low=0.5, high=2.0).tolist() == [0.0, 1.0, 0.0, 0.0]
    assert first_difference(icepop_weights(OLD, ROLLOUT, low=0.0, high=9.0), W) is None


def test_icepop_keeps_its_bounds():
    """A weight equal to a bound is inside; one ulp beyond it is not."""
    bound = W[2].item()
    below = torch.nextafter(W[2], torch.tensor(0.0)).item()
    assert icepop_weights(OLD, ROLLOUT, low=1.0, high=bound).tolist() == [0.0, 1.0, bound, 0.0]
    assert icepop_weights(OLD, ROLLOUT, low=1.0, high=below).tolist() == [0.0, 1.0, 0.0, 0.0]
    assert icepop_weights(OLD, ROLLOUT, low=bound, high=99.0).tolist() == [0.0, 0.0, bound, W[3].item()]


def test_not_a_number():
    """A NaN weight passes truncation as NaN and lies in no interval."""
    nan = torch.tensor([float("nan")])
    assert truncated_weights(nan, torch.zeros(1), low=0.0, high=2.0).isnan().all()
    assert icepop_weights(nan, torch.zeros(1), low=0.0, high=2.0).tolist() == [0.0]


@pytest.mark.parametrize("mode", sorted(OFF_POLICY_WEIGHTS))
def test_weights_carry_no_gradient(mode):
    """Neither old nor rollout log-probs learn through the weight."""
    old, rollout = OLD.clone().requires_grad_(), ROLLOUT.clone().requires_grad_()
    assert not OFF_POLICY_WEIGHTS[mode](old, rollout, low=0.0, high=9.0).requires_grad


@pytest.mark.parametrize(("mode", "weigh"), [("truncate", truncated_weights), ("icepop", icepop_weights)])
def test_the_weight_multiplies_loss_and_gradient(mode, weigh):
    """The stage's loss and gradient are those without weights, times the weights; clipfrac and ppo_kl stay."""
    new = [torch.tensor([-1.0, -2.0]), torch.tensor([-0.75, -0.5])]
    inputs = {
        "old_log_probs": list(OLD.split(2)),
        "advantages": [torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0])],
        "loss_masks": None,
        "rollout_log_probs": list(ROLLOUT.split(2)),
    }
    results = []
    for use_tis in (False, True):
        leaves = [tokens.clone().requires_grad_() for tokens in new]
        args = namespace("grpo", use_tis=use_tis, tis_mode=mode, tis_clip=2.0, tis_clip_low=0.5)
        loss, clipfrac, ppo_kl = policy_objective(args, log_probs=leaves, **inputs)
        loss.sum().backward()
        results.append((loss, clipfrac, ppo_kl, torch.cat([leaf.grad for leaf in leaves])))
    plain, weighted = results
    weights = weigh(OLD, ROLLOUT, low=0.5, high=2.0)
    assert first_difference(weighted[0], plain[0] * weights) is None
    assert torch.equal(weighted[1], plain[1])
    assert first_difference(weighted[2], plain[2]) is None
    # The weight enters the backward pass first, not last: two roundings may fall otherwise.
    assert torch.allclose(weighted[3], plain[3] * weights, rtol=2**-22, atol=0)
    assert plain[3].abs().max() > 0.5


def test_without_rollout_log_probs_it_is_refused():
    """use_tis without them names both; an unknown mode names the modes."""
    inputs = {"old_log_probs": [OLD], "log_probs": [OLD], "advantages": [OLD], "loss_masks": None}
    with pytest.raises(ValueError, match=r"use_tis.*rollout_log_probs is None.*--use-tis"):
        policy_objective(namespace("grpo", use_tis=True), **inputs)
    with pytest.raises(ValueError, match=r"tis_mode 'cut' is not one of truncate, icepop"):
        policy_objective(namespace("grpo", use_tis=True, tis_mode="cut"), **inputs, rollout_log_probs=[ROLLOUT])
