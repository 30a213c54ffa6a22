"""Frozen policy objectives and their corrections, elementwise over tokens (baseline section 5)."""

from __future__ import annotations

import torch


def ppo_clip(
    ppo_kl: torch.Tensor,
    advantages: torch.Tensor,
    eps_clip: float,
    eps_clip_high: float,
    eps_clip_c: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Clipped ratio objective, with the dual clip where ``eps_clip_c`` is given. ValueError unless it exceeds 1."""
    ratio = torch.exp(-ppo_kl)
    l1 = -ratio * advantages
    l2 = -torch.clamp(ratio, 1 - eps_clip, 1 + eps_clip_high) * advantages
    loss = torch.maximum(l1, l2)
    clipfrac = (l2 > l1).float()
    if eps_clip_c is not None:
        if not eps_clip_c > 1:
            raise ValueError(f"eps_clip_c is {eps_clip_c}: the dual clip must exceed 1")
        l3 = -eps_clip_c * advantages
        loss = torch.where(advantages < 0, torch.minimum(l3, loss), loss)
    return loss, clipfrac


def sapo(
    ppo_kl: torch.Tensor, advantages: torch.Tensor, tau_pos: float, tau_neg: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Soft gate in place of a clip."""
    ratio = torch.exp(-ppo_kl)
    tau = torch.where(advantages > 0, torch.full_like(ratio, tau_pos), torch.full_like(ratio, tau_neg))
    g = torch.sigmoid(tau * (ratio - 1))
    loss = -((4 / tau) * g * advantages)
    clipfrac = (4 * g * (1 - g) < 0.9).float()
    return loss, clipfrac


def cispo(
    ppo_kl: torch.Tensor,
    log_probs: torch.Tensor,
    advantages: torch.Tensor,
    eps_clip: float,
    eps_clip_high: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Clipped importance weight as a constant, the gradient through the log-probability alone."""
    ratio = torch.exp(-ppo_kl).detach()
    upper = 1 + eps_clip_high
    lower = 1 - eps_clip
    coefficient = torch.where(advantages >= 0, torch.clamp(ratio, max=upper), torch.clamp(ratio, min=lower))
    loss = -(coefficient * advantages * log_probs)
    clipfrac = (((advantages >= 0) & (ratio > upper)) | ((advantages < 0) & (ratio < lower))).float()
    return loss, clipfrac


def token_kl(old_log_probs: list[torch.Tensor], log_probs: list[torch.Tensor]) -> torch.Tensor:
    """``old - new`` of every token, ``[T]``."""
    ppo_kl = []
    for i in range(len(log_probs)):
        ppo_kl.append(old_log_probs[i] - log_probs[i])
    return torch.cat(ppo_kl)


def masked_mean_difference(old: torch.Tensor, new: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """``sum((old - new) * mask) / max(sum(mask), 1)`` of one response, ``[]``."""
    return ((old - new) * mask).sum() / torch.clamp(mask.sum(), min=1)


def sequence_kl(
    old_log_probs: list[torch.Tensor], log_probs: list[torch.Tensor], loss_masks: list[torch.Tensor]
) -> torch.Tensor:
    """The masked mean of each response, expanded to its tokens, ``[T]``."""
    ppo_kl = []
    for i in range(len(log_probs)):
        mean = masked_mean_difference(old_log_probs[i], log_probs[i], loss_masks[i])
        ppo_kl.append(mean.expand_as(log_probs[i]))
    return torch.cat(ppo_kl)


def opsm_mask(
    old_log_probs: list[torch.Tensor],
    log_probs: list[torch.Tensor],
    advantages: list[torch.Tensor],
    loss_masks: list[torch.Tensor],
    delta: float,
) -> torch.Tensor:
    """0 where the advantage is negative and the response's masked mean exceeds ``delta``, else 1, ``[T]``."""
    masks = []
    for i in range(len(log_probs)):
        mean = masked_mean_difference(old_log_probs[i], log_probs[i], loss_masks[i])
        dropped = (advantages[i] < 0) & (mean > delta)
        masks.append(1 - dropped.float())
    return torch.cat(masks)


def tis_weights(old: torch.Tensor, rollout: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Truncated importance weights, ``[T]``, without gradient."""
    w = torch.exp(old - rollout).detach()
    return torch.clamp(w, low, high)


def icepop_weights(old: torch.Tensor, rollout: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Importance weights inside the bounds, 0 outside, ``[T]``, without gradient."""
    w = torch.exp(old - rollout).detach()
    return torch.where((w >= low) & (w <= high), w, torch.zeros_like(w))
