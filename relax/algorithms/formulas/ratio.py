"""Policy objectives of one token: losses from the log-ratio of old and new policy, elementwise over ``[T]``.

Everywhere ``ppo_kl`` is old minus new log-prob, so that the ratio of new to old is ``exp(-ppo_kl)``. Each gives
``(loss, clipfrac)``, both ``[T]`` and not reduced; ``clipfrac`` is float32, 1 where the objective held the token back.
"""

from __future__ import annotations

import torch


def ppo_clip(
    ppo_kl: torch.Tensor,
    advantages: torch.Tensor,
    *,
    eps_clip: float,
    eps_clip_high: float,
    eps_clip_c: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``max(-ratio * A, -clamp(ratio, 1 - eps_clip, 1 + eps_clip_high) * A)``; at most ``-eps_clip_c * A`` where A < 0.

    Source: PPO (arXiv 1707.06347), equation 7, asymmetric as in DAPO (arXiv 2503.14476); the dual clip of
    arXiv 1912.09729. Raises ValueError unless ``eps_clip_c`` exceeds 1: below, it would cut ratios near 1.
    """
    ratio = torch.exp(-ppo_kl)
    unclipped = -ratio * advantages
    clipped = -torch.clamp(ratio, 1 - eps_clip, 1 + eps_clip_high) * advantages
    loss = torch.maximum(unclipped, clipped)
    clipfrac = (clipped > unclipped).float()
    if eps_clip_c is None:
        return loss, clipfrac
    if not eps_clip_c > 1:
        raise ValueError(f"eps_clip_c is {eps_clip_c}: the dual clip's bound on the ratio must exceed 1 (--eps-clip-c)")
    bound = -eps_clip_c * advantages
    return torch.where(advantages < 0, torch.minimum(bound, loss), loss), clipfrac


def soft_gate(
    ppo_kl: torch.Tensor, advantages: torch.Tensor, *, tau_pos: float, tau_neg: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """``-(4 / tau) * sigmoid(tau * (ratio - 1)) * A`` with tau by the sign of A: a gate that closes smoothly.

    Source: SAPO (arXiv 2511.20347). ``clipfrac`` counts tokens whose gradient weight
    ``4 * g * (1 - g)`` is below 0.9.
    """
    ratio = torch.exp(-ppo_kl)
    tau = torch.where(advantages > 0, torch.full_like(ratio, tau_pos), torch.full_like(ratio, tau_neg))
    gate = torch.sigmoid(tau * (ratio - 1))
    loss = -((4 / tau) * gate * advantages)
    return loss, (4 * gate * (1 - gate) < 0.9).float()


def clipped_is(
    log_probs: torch.Tensor, ppo_kl: torch.Tensor, advantages: torch.Tensor, *, eps_clip: float, eps_clip_high: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """``-(coefficient * A * log_prob)``, the coefficient being the ratio cut from above (A >= 0) or below (A < 0).

    Source: CISPO (arXiv 2506.13585). The coefficient carries no gradient, so that a token beyond
    the bound still teaches.
    """
    ratio = torch.exp(-ppo_kl.detach())
    lower, upper = 1 - eps_clip, 1 + eps_clip_high
    gains = advantages >= 0
    coefficient = torch.where(gains, torch.clamp(ratio, max=upper), torch.clamp(ratio, min=lower))
    loss = -(coefficient * advantages * log_probs)
    clipfrac = (gains & (ratio > upper)) | ((advantages < 0) & (ratio < lower))
    return loss, clipfrac.float()


def reinforce(log_probs: torch.Tensor, advantages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``-A * log_prob``: no ratio and nothing to clip, hence only for updates on the policy that sampled.

    Source: R. Williams, "Simple statistical gradient-following algorithms" (1992); as RLOO in arXiv 2402.14740.
    """
    return -advantages * log_probs, torch.zeros_like(log_probs, dtype=torch.float32)
