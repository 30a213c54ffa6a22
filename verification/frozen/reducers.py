"""Frozen reducers: mean over each response's tokens, or plain sum over tokens (baseline section 6)."""

from __future__ import annotations

import torch


def sample_mean(
    values: list[torch.Tensor], loss_masks: list[torch.Tensor], full_loss_masks: list[torch.Tensor] | None = None
) -> torch.Tensor:
    """Sum over responses of ``sum(x * m) / max(sum(full m), 1)``; without ``full_loss_masks`` the masks are full."""
    if full_loss_masks is None:
        full_loss_masks = loss_masks
    total = torch.zeros(())
    for i in range(len(values)):
        total = total + (values[i] * loss_masks[i]).sum() / torch.clamp(full_loss_masks[i].sum(), min=1)
    return total


def token_sum(values: list[torch.Tensor], loss_masks: list[torch.Tensor]) -> torch.Tensor:
    """Sum over responses of ``sum(x * m)``."""
    total = torch.zeros(())
    for i in range(len(values)):
        total = total + (values[i] * loss_masks[i]).sum()
    return total
