"""Weights for tokens that another engine sampled: the training engine's probability over the rollout engine's.

Both weigh the loss of a token by ``w = exp(old - rollout log-prob)`` and differ in what happens outside the bounds.
``[T]``, no gradient.
"""

from __future__ import annotations

import torch


@torch.no_grad()
def truncated_weights(
    old_log_probs: torch.Tensor, rollout_log_probs: torch.Tensor, *, low: float, high: float
) -> torch.Tensor:
    """Truncated importance sampling: w cut to [low, high]."""
    return torch.clamp(torch.exp(old_log_probs - rollout_log_probs), low, high)


@torch.no_grad()
def icepop_weights(
    old_log_probs: torch.Tensor, rollout_log_probs: torch.Tensor, *, low: float, high: float
) -> torch.Tensor:
    """IcePop: w inside [low, high], bounds included, and 0 outside."""
    weights = torch.exp(old_log_probs - rollout_log_probs)
    return torch.where((weights >= low) & (weights <= high), weights, torch.zeros_like(weights))


# By args.tis_mode.
OFF_POLICY_WEIGHTS = {"truncate": truncated_weights, "icepop": icepop_weights}
