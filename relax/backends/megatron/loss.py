"""The losses of the Megatron side: what training reads off the logits of a batch."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import torch

from relax.algorithms.formulas.kl import approx_kl
from relax.algorithms.formulas.reducers import reduce_loss
from relax.algorithms.formulas.responses import concatenate, require_same_shapes
from relax.algorithms.policy import token_losses
from relax.backends.megatron.advantages import compute_advantages_and_returns
from relax.backends.megatron.context_parallel import context_parallel
from relax.backends.megatron.responses import get_responses, get_values, log_probs_and_entropy, sequence_columns
from relax.core.trace import keep

__all__ = [
    "compute_advantages_and_returns",
    "get_responses",
    "get_values",
    "log_probs_and_entropy",
    "policy_loss_function",
    "watched_policy_loss",
]


def policy_loss_function(
    args: Namespace, batch: Mapping[str, Any], logits: torch.Tensor
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """``(loss, metrics)``: a differentiable scalar, and detached float32 scalars by name.

    ``batch`` holds ``tokens``, ``total_lengths``, ``response_lengths`` and ``padded_total_lengths`` as `get_responses`
    takes them, ``loss_masks`` (whole responses' ``[R_i]``, absent for every token), and this rank's part of each
    response of ``log_probs`` (the old policy's) and ``advantages``, of ``rollout_log_probs`` where they are known and
    of ``ref_log_probs`` where ``args.use_kl_loss`` is set. ``keys`` may name the rows, for a trace.

    All are reduced alike (`reduce_loss`): their sums over the data- and context-parallel ranks are the sums of the
    whole batch, to be divided by its number of samples or unmasked tokens. ``loss`` is ``pg_loss`` plus
    ``kl_loss_coef`` times ``kl_loss``. A rank without a token has a loss of 0 that still depends on the logits, so that
    it joins its peers in the backward pass.
    """
    columns = sequence_columns(batch)
    log_probs, entropy = log_probs_and_entropy(args, logits, **columns)
    context = context_parallel(args, **{name: column for name, column in columns.items() if name != "tokens"})
    masks = batch.get("loss_masks")
    if masks is None:
        masks = [torch.ones(length, device=logits.device) for length in batch["response_lengths"]]
    given = {
        "old_log_probs": batch["log_probs"],
        "log_probs": log_probs,
        "advantages": batch["advantages"],
        "loss_masks": masks,
        "rollout_log_probs": batch.get("rollout_log_probs"),
    }
    token = token_losses(args, context, **given)
    of_stage = {"loss": token.loss, "clipfrac": token.clipfrac, "ppo_kl": token.ppo_kl}
    keep("policy.loss", args, given, of_stage, rows=batch.get("keys"))
    of_tokens = {"pg_loss": token.loss, "pg_clipfrac": token.clipfrac, "ppo_kl": token.ppo_kl}
    of_tokens["entropy"] = concatenate(entropy)
    if args.use_kl_loss:
        of_tokens["kl_loss"] = _kl(args, log_probs, batch.get("ref_log_probs"))
    if token.opsm_mask is not None:
        of_tokens["opsm_dropped"] = 1 - token.opsm_mask
    if batch.get("rollout_log_probs") is not None:
        difference = concatenate(batch["log_probs"]) - concatenate(batch["rollout_log_probs"])
        of_tokens["train_rollout_log_prob_difference"] = difference.abs()
        if token.off_policy_weights is not None:
            of_tokens["tis_weight"] = difference.exp()
            of_tokens["tis_clipfrac"] = (token.off_policy_weights != of_tokens["tis_weight"]).float()
    parts, own_masks = [len(tokens) for tokens in log_probs], context.cut(masks)
    reduced = {
        name: reduce_loss(args, values=values.split(parts), loss_masks=own_masks, full_loss_masks=masks)
        for name, values in of_tokens.items()
    }
    loss = reduced["pg_loss"]
    if args.use_kl_loss:
        loss = loss + args.kl_loss_coef * reduced["kl_loss"]
    if not log_probs:
        loss = loss + logits[..., :0].sum()
    return loss, {name: value.detach().float() for name, value in {"loss": loss, **reduced}.items()}


def watched_policy_loss(
    args: Namespace, batch: Mapping[str, Any], logits: torch.Tensor
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """As `policy_loss_function` of whole responses, with what people watch of the advantages among the metrics:
    ``advantage`` and ``advantage_abs``, reduced alike.
    """
    loss, metrics = policy_loss_function(args, batch, logits)
    advantages = batch["advantages"]
    for name, values in (("advantage", advantages), ("advantage_abs", [tokens.abs() for tokens in advantages])):
        metrics[name] = reduce_loss(args, values=values, loss_masks=batch["loss_masks"])
    return loss, metrics


def _kl(args: Namespace, log_probs: list[torch.Tensor], ref_log_probs: list[torch.Tensor] | None) -> torch.Tensor:
    if ref_log_probs is None:
        raise ValueError("use_kl_loss is set and ref_log_probs is missing: compute them, or drop --use-kl-loss")
    require_same_shapes(log_probs=log_probs, ref_log_probs=ref_log_probs)
    return approx_kl(concatenate(log_probs), concatenate(ref_log_probs), args.kl_loss_type)
