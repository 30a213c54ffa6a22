"""The policy step by its parts, on one rank: loss, metrics and gradient of the logits that every layout is held to."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any

import torch

from relax.algorithms.formulas.kl import approx_kl
from relax.algorithms.formulas.log_probs import log_probs_and_entropy
from relax.algorithms.formulas.reducers import reduce_loss
from relax.algorithms.formulas.sequence import opsm_mask
from relax.algorithms.policy import policy_objective
from verification.cases.case import Case
from verification.ranks.on_logits import VOCABULARY

Arrays = dict[str, torch.Tensor]
Scales = dict[str, Sequence[float]]
ByResponse = Sequence[torch.Tensor]


def policy_step(case: Case) -> tuple[Arrays, Scales]:
    """The arrays of a case of ``on_logits.py``, and the magnitudes in whose ulps a layout may differ.

    Each number of a token is reduced as the loss is, and the scale of what is reduced is its sum of magnitudes. The
    scale of a token's logits is that of the loss's derivative with respect to its log-prob.
    """
    args, given = case.arguments(), case.fresh_inputs()
    logits = [rows.requires_grad_() for rows in given["logits"]]
    new, entropy = log_probs_and_entropy(args, logits=logits, tokens=given["tokens"])
    tokens = _objective(args, given, new) | {"entropy": entropy}
    if args.use_kl_loss:
        pairs = zip(new, given["ref_log_probs"], strict=True)
        tokens["kl_loss"] = [approx_kl(ours, theirs, args.kl_loss_type) for ours, theirs in pairs]

    def reduced(of_token: Callable[[torch.Tensor], torch.Tensor]) -> Arrays:
        sums = {
            name: reduce_loss(args, values=[of_token(part) for part in parts], loss_masks=given["loss_masks"])
            for name, parts in tokens.items()
        }
        penalty = args.kl_loss_coef * sums["kl_loss"] if args.use_kl_loss else 0.0
        return {"loss": sums["pg_loss"] + penalty, **sums}

    found, magnitudes = reduced(lambda part: part), reduced(lambda part: part.detach().abs())
    slopes = [part.abs() for part in torch.autograd.grad(found["pg_loss"], new, retain_graph=True)]
    if args.use_kl_loss:
        slopes = [one + other for one, other in zip(slopes, _kl_slopes(args, given, new), strict=True)]
    gradient = torch.cat(torch.autograd.grad(found["loss"], logits)) + 0.0  # [T, V], zeros as the packing leaves them
    arrays = {f"metrics.{name}": value.detach() for name, value in found.items()}
    scales: Scales = {f"metrics.{name}": [float(value)] for name, value in magnitudes.items()}
    nothing = torch.zeros((), dtype=torch.float64)
    arrays |= {"loss": arrays["metrics.loss"], "grad.logits": gradient, "grad.logits.elsewhere": nothing}
    scales |= {"loss": scales["metrics.loss"], "grad.logits": torch.cat(slopes).repeat_interleave(VOCABULARY).tolist()}
    return arrays, scales


def _objective(args: Namespace, given: dict[str, Any], new: ByResponse) -> dict[str, ByResponse]:
    """What the objective and its two corrections give for each token, by metric."""
    old, rollout, masks = given["log_probs"], given.get("rollout_log_probs"), given["loss_masks"]
    loss, clipfrac, ppo_kl = policy_objective(
        args,
        old_log_probs=old,
        log_probs=new,
        advantages=given["advantages"],
        loss_masks=masks,
        rollout_log_probs=rollout,
    )
    joined = {"pg_loss": loss, "pg_clipfrac": clipfrac, "ppo_kl": ppo_kl}
    if args.use_opsm:
        joined["opsm_dropped"] = 1 - opsm_mask(old, new, given["advantages"], masks, args.opsm_delta)
    if rollout is not None:
        difference = torch.cat(old) - torch.cat(rollout)
        joined["train_rollout_log_prob_difference"] = difference.abs()
        if args.use_tis:
            weight = joined["tis_weight"] = difference.exp()
            joined["tis_clipfrac"] = ((weight < args.tis_clip_low) | (weight > args.tis_clip)).float()
    return {name: values.split([len(tokens) for tokens in new]) for name, values in joined.items()}


def _kl_slopes(args: Namespace, given: dict[str, Any], new: ByResponse) -> list[torch.Tensor]:
    """Magnitudes of what the derivative of a token's KL is made of: with difference d, those of 1, d and exp(-d)."""
    weights = torch.autograd.grad(reduce_loss(args, values=new, loss_masks=given["loss_masks"]), new, retain_graph=True)
    slopes = []
    for weight, ours, reference in zip(weights, new, given["ref_log_probs"], strict=True):
        difference = ours.detach() - reference
        slopes.append(args.kl_loss_coef * weight * (1 + difference.abs() + (-difference).exp()))
    return slopes
