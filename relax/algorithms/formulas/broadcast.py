"""One score a response, spread over its tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from relax.algorithms.formulas.responses import masks_or_ones, require_same_count


def broadcast(
    rewards: Sequence[float] | torch.Tensor, kl: Sequence[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Each response's float32 reward over ``ones_like(kl_i)``: ``(advantages, returns)``, ``[R_i]`` each.

    The two are different lists of the same tensors. An empty response gives an empty tensor.
    """
    require_same_count(rewards=rewards, kl=kl)
    scores = torch.as_tensor(rewards, dtype=torch.float32, device="cpu")  # [n]
    returns = [torch.ones_like(tokens) * score for tokens, score in zip(kl, scores, strict=True)]
    return list(returns), returns


def masked_broadcast(
    rewards: Sequence[float] | torch.Tensor, kl: Sequence[torch.Tensor], loss_masks: Sequence[torch.Tensor] | None
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """As `broadcast`, times the loss mask: ``(advantages, returns)``, ``[R_i]`` each, 0 where the mask is 0.

    The two are the very same list. ``loss_masks`` None is every token; a mask of another shape is a ValueError.
    """
    scored, _ = broadcast(rewards, kl)
    masks = masks_or_ones(loss_masks, kl, "kl")
    advantages = [tokens * mask for tokens, mask in zip(scored, masks, strict=True)]
    return advantages, advantages
