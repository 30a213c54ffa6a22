"""Discounted returns of REINFORCE++, all responses at once.

Source: J. Hu et al., "REINFORCE++" (arXiv 2501.03262): the reward at the last token, the KL as a penalty on each token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.utils.rnn import pad_sequence

from relax.algorithms.formulas.responses import masks_or_ones, require_same_count


def discounted_returns(
    rewards: Sequence[float] | torch.Tensor,
    kl: Sequence[torch.Tensor],
    loss_masks: Sequence[torch.Tensor] | None,
    *,
    kl_coef: float,
    gamma: float,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Returns ``G_j = t_j + gamma * G_(j+1)`` of each response: ``(advantages, returns)``, two lists of the same
    tensors.

    ``t = -kl_coef * (kl * mask)`` plus the reward at the last token whose mask is not 0; the result is times the
    mask. ``kl`` and ``loss_masks`` hold the full responses, ``[R_i]`` each; the result is float32, or float64 where the
    kl is, on its device. An empty response gives an empty tensor. Raises ValueError naming the position of a response
    that is masked throughout, and both shapes where a mask differs from its kl.
    """
    require_same_count(rewards=rewards, kl=kl)
    masks = masks_or_ones(loss_masks, kl, "kl")
    last = [_last_unmasked(mask, position) for position, mask in enumerate(masks)]
    scores = torch.as_tensor(rewards, dtype=torch.float32, device="cpu")  # [n]

    alike: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for position, tokens in enumerate(kl):
        if last[position] is not None:
            alike.setdefault((tokens.device, tokens.dtype), []).append(position)
    returns = [torch.empty_like(tokens, dtype=mask.dtype) for tokens, mask in zip(kl, masks, strict=True)]
    for (device, _), positions in alike.items():
        mask = pad_sequence([masks[position] for position in positions])  # [L, B]
        token_rewards = -kl_coef * (pad_sequence([kl[position] for position in positions]) * mask)  # [L, B]
        ends = torch.tensor([last[position] for position in positions], device=device)  # [B]
        columns = torch.arange(len(positions), device=device)
        outcome = token_rewards[ends, columns] + scores[positions].to(device)  # [B], float32 or wider
        token_rewards = token_rewards.index_put((ends, columns), outcome.to(token_rewards))
        masked = (_accumulate(token_rewards, gamma) * mask).T  # [B, L]
        for row, position in enumerate(positions):
            # A copy for each response: a view would keep the whole padded batch alive.
            returns[position] = masked[row, : kl[position].shape[0]].clone(memory_format=torch.contiguous_format)
    return list(returns), returns


def _last_unmasked(mask: torch.Tensor, position: int) -> int | None:
    """Where the reward of a response goes; None for a response without tokens."""
    if mask.numel() == 0:
        return None
    unmasked = torch.nonzero(mask)
    if len(unmasked) == 0:
        raise ValueError(
            f"response {position} is masked throughout its {mask.numel()} tokens: its reward has no token to go to; "
            "unmask one of them, or leave the response out"
        )
    return int(unmasked[-1])


def _accumulate(token_rewards: torch.Tensor, gamma: float) -> torch.Tensor:
    """The discounted sums from each position on, ``[L, B]``.

    Backwards over positions, one row of all responses at a time. Multiply, then add, since each is one rounding; the
    zeros behind a shorter response leave +0 to start from, as if it were alone.
    """
    rows = token_rewards.unbind(0)
    discount = torch.tensor(gamma, dtype=torch.float64)  # a number in a tensor once, not at each step
    running = torch.zeros_like(rows[-1])
    sums = []
    for row in reversed(rows):
        running = torch.add(row, torch.mul(running, discount))
        sums.append(running)
    sums.reverse()
    return torch.stack(sums)
