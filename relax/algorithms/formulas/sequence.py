"""Quantities of a whole response that each of its tokens carries."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def sequence_level_kl(
    old_log_probs: Sequence[torch.Tensor], log_probs: Sequence[torch.Tensor], loss_masks: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Each response's masked mean of (old - new log-prob), expanded over its tokens: ``[T]``, differentiable.

    Source: GSPO (arXiv 2507.18071): its exponential is the length-normalised sequence ratio. A response
    masked throughout counts as one token, so that its mean is 0. Takes full responses, ``[R_i]`` each.
    """
    means = [
        _masked_mean(old - new, mask).expand_as(new)
        for old, new, mask in zip(old_log_probs, log_probs, loss_masks, strict=True)
    ]
    return torch.cat(means) if means else torch.zeros(0, dtype=torch.float32)


@torch.no_grad()
def opsm_mask(
    old_log_probs: Sequence[torch.Tensor],
    log_probs: Sequence[torch.Tensor],
    advantages: Sequence[torch.Tensor],
    loss_masks: Sequence[torch.Tensor],
    delta: float,
) -> torch.Tensor:
    """Off-policy sequence mask: 0 where A < 0 and the response's masked mean of (old - new) exceeds ``delta``, else 1.

    ``[T]``, no gradient. A response that has already become much less likely is not pushed down further.
    """
    masks = []
    for old, new, advantage, mask in zip(old_log_probs, log_probs, advantages, loss_masks, strict=True):
        dropped = (advantage < 0) & (_masked_mean(old - new, mask) > delta)
        masks.append(1 - dropped.to(advantage.dtype))
    return torch.cat(masks) if masks else torch.zeros(0, dtype=torch.float32)


def _masked_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (values * mask).sum() / torch.clamp(mask.sum(), min=1)
