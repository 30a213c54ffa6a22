"""Frozen KL template: one estimate a token, one response after the other (baseline section 2)."""

from __future__ import annotations

import torch


def approx_kl(
    log_probs: torch.Tensor,
    ref_log_probs: torch.Tensor,
    kind: str,
    importance_ratio: torch.Tensor | None = None,
) -> torch.Tensor:
    """The estimate of ``kind`` for one response, float32 ``[R]``. ValueError for a kind that does not exist."""
    d = log_probs.float() - ref_log_probs.float()
    if kind == "k1":
        kl = d
    elif kind == "k2":
        kl = d * d / 2
    elif kind in ("k3", "low_var_kl"):
        e = -d
        kl = torch.exp(e) - 1 - e
    else:
        raise ValueError(f"KL kind {kind!r} is not one of k1, k2, k3, low_var_kl")
    if importance_ratio is not None:
        kl = importance_ratio * kl
    if kind == "low_var_kl":
        kl = torch.clamp(kl, min=-10, max=10)
    return kl


def zero_kl(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """A float32 zero tensor shaped like each of the given ones."""
    zeros = []
    for tensor in tensors:
        zeros.append(torch.zeros_like(tensor, dtype=torch.float32))
    return zeros


def kl_of_responses(
    log_probs: list[torch.Tensor],
    ref_log_probs: list[torch.Tensor],
    kind: str,
    importance_ratios: list[torch.Tensor] | None,
) -> list[torch.Tensor]:
    """``approx_kl`` of each response in turn."""
    kl = []
    for i in range(len(log_probs)):
        importance_ratio = None
        if importance_ratios is not None:
            importance_ratio = importance_ratios[i]
        kl.append(approx_kl(log_probs[i], ref_log_probs[i], kind, importance_ratio))
    return kl
