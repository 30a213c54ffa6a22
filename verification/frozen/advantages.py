"""Frozen advantages without a critic: broadcast, masked broadcast and discounted returns (baseline section 3)."""

from __future__ import annotations

import torch


def broadcast(rewards: torch.Tensor, kl: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Each response's reward at each of its tokens. ``advantages`` is another list of the tensors of ``returns``."""
    returns = []
    for i in range(len(kl)):
        returns.append(torch.ones_like(kl[i]) * rewards[i])
    advantages = []
    for tensor in returns:
        advantages.append(tensor)
    return advantages, returns


def masked_broadcast(
    rewards: torch.Tensor, kl: list[torch.Tensor], loss_masks: list[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Each response's reward at each unmasked token. ``returns`` is the very list ``advantages``."""
    advantages = []
    for i in range(len(kl)):
        advantages.append(torch.ones_like(kl[i]) * rewards[i] * loss_masks[i])
    returns = advantages
    return advantages, returns


def discounted_returns(
    rewards: torch.Tensor,
    kl: list[torch.Tensor],
    loss_masks: list[torch.Tensor],
    kl_coef: float,
    gamma: float,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Discounted sums, token by token from the end, of the KL penalty and the reward at the last unmasked token.

    ``advantages`` is another list of the tensors of ``returns``. An empty response gives an empty tensor.
    Errors: ValueError, naming the response, for a mask of another shape than the KL and for a mask of zeros only.
    """
    returns = []
    for i in range(len(kl)):
        k = kl[i]  # [R]
        m = loss_masks[i]  # [R]
        if m.shape != k.shape:
            raise ValueError(f"response {i}: the mask has shape {tuple(m.shape)}, the KL {tuple(k.shape)}")
        t = -kl_coef * (k * m)
        if t.numel() > 0:
            unmasked = torch.nonzero(m)
            if unmasked.numel() == 0:
                raise ValueError(f"response {i} is masked throughout: there is no token that could carry its reward")
            t[int(unmasked[-1])] += rewards[i]
        discounted = torch.zeros_like(t)
        running: float | torch.Tensor = 0.0
        for j in reversed(range(t.numel())):
            running = t[j] + gamma * running
            discounted[j] = running
        returns.append(discounted * m)
    advantages = []
    for tensor in returns:
        advantages.append(tensor)
    return advantages, returns
