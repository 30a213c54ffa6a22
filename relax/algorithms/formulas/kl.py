"""Estimators of the KL divergence to the reference policy, token by token.

Source: J. Schulman, "Approximating KL Divergence" (2020), for k1, k2 and k3.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from relax.algorithms.formulas.responses import require_same_shapes

KL_KINDS = ("k1", "k2", "k3", "low_var_kl")


def approx_kl(
    log_probs: torch.Tensor, ref_log_probs: torch.Tensor, kind: str, importance_ratio: torch.Tensor | None = None
) -> torch.Tensor:
    """One estimate a token, float32, of the shape of ``log_probs``; differentiable.

    With ``d = log p - log p_ref``: ``k1`` is d, ``k2`` is d^2 / 2, ``k3`` is exp(-d) - 1 + d, and ``low_var_kl`` is
    k3 cut to [-10, 10]. The importance ratio, where given, multiplies the estimate before the cut. Raises ValueError
    for another ``kind``.
    """
    difference = log_probs.float() - ref_log_probs.float()
    if kind == "k1":
        estimate = difference
    elif kind == "k2":
        estimate = difference * difference / 2
    elif kind in ("k3", "low_var_kl"):
        negated = -difference
        estimate = torch.exp(negated) - 1 - negated
    else:
        raise ValueError(f"KL kind {kind!r} is not one of {', '.join(KL_KINDS)}: see --kl-loss-type")
    if importance_ratio is not None:
        estimate = importance_ratio * estimate
    return torch.clamp(estimate, min=-10, max=10) if kind == "low_var_kl" else estimate


def kl_per_response(
    args: Namespace,
    *,
    log_probs: Sequence[torch.Tensor] | None,
    ref_log_probs: Sequence[torch.Tensor] | None,
    values: Sequence[torch.Tensor] | None,
    importance_ratios: Sequence[torch.Tensor] | None = None,
) -> list[torch.Tensor]:
    """The KL estimate of each response, float32 ``[R_i]``; it is also the template of the advantages' shapes.

    Where ``args.kl_coef`` is 0 or there are no log-probs, zeros shaped like each log-prob, else like each value.
    Raises ValueError where there is nothing to shape it by, where the reference is missing, and where shapes differ.
    """
    if args.kl_coef == 0 or not log_probs:
        template = values if values is not None and not log_probs else log_probs
        if template is None:
            raise ValueError("neither log_probs nor values are given: one of them sets the shape of each response's KL")
        return [torch.zeros_like(tokens, dtype=torch.float32) for tokens in template]
    if ref_log_probs is None:
        raise ValueError(f"kl_coef is {args.kl_coef} and ref_log_probs is missing: pass them, or set --kl-coef 0")
    require_same_shapes(log_probs=log_probs, ref_log_probs=ref_log_probs, importance_ratios=importance_ratios)
    ratios = [None] * len(log_probs) if importance_ratios is None else importance_ratios
    return [
        approx_kl(ours, reference, args.kl_loss_type, ratio)
        for ours, reference, ratio in zip(log_probs, ref_log_probs, ratios, strict=True)
    ]


def kl_of_batch(args: Namespace, batch: Mapping[str, Any]) -> list[torch.Tensor] | None:
    """`kl_per_response` of a batch's columns; None where none of them tells the shape of a response.

    ``log_probs`` are the policy's, or where it has computed none ``rollout_log_probs``; ``ref_log_probs`` and
    ``values`` as there. A column that is absent is None.
    """
    log_probs, values = batch.get("log_probs"), batch.get("values")
    if log_probs is None:
        log_probs = batch.get("rollout_log_probs")
    if log_probs is None and values is None:
        return None
    return kl_per_response(args, log_probs=log_probs, ref_log_probs=batch.get("ref_log_probs"), values=values)
