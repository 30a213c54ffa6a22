"""From one number a token to the loss of a batch."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

import torch

from relax.algorithms.formulas.responses import masks_or_ones, require_same_count


def sample_mean(
    values: Sequence[torch.Tensor], loss_masks: Sequence[torch.Tensor], full_loss_masks: Sequence[torch.Tensor]
) -> torch.Tensor:
    """The sum over responses of each one's masked mean: a scalar in which every response weighs the same.

    ``values`` and ``loss_masks`` are this rank's tokens of each response, ``full_loss_masks`` the whole response's,
    so that the parts of context-parallel ranks add up. A response masked throughout counts as one token and adds 0.
    """
    return _total(
        [
            (tokens * mask).sum() / torch.clamp(full.sum(), min=1)
            for tokens, mask, full in zip(values, loss_masks, full_loss_masks, strict=True)
        ]
    )


def token_sum(values: Sequence[torch.Tensor], loss_masks: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum over responses of their masked sums: a scalar in which every token weighs the same."""
    return _total([(tokens * mask).sum() for tokens, mask in zip(values, loss_masks, strict=True)])


def reduce_loss(
    args: Namespace,
    *,
    values: Sequence[torch.Tensor],
    loss_masks: Sequence[torch.Tensor] | None,
    full_loss_masks: Sequence[torch.Tensor] | None = None,
) -> torch.Tensor:
    """`token_sum` where ``args.calculate_per_token_loss`` is set, else `sample_mean`; scalar, differentiable.

    ``loss_masks`` None is every token; ``full_loss_masks`` None means that each mask is already the whole response's.
    Raises ValueError where the lists differ in length or a mask in shape.
    """
    masks = masks_or_ones(loss_masks, values, "values")
    if args.calculate_per_token_loss:
        return token_sum(values, masks)
    if full_loss_masks is None:
        return sample_mean(values, masks, masks)
    require_same_count(values=values, full_loss_masks=full_loss_masks)
    return sample_mean(values, masks, [full.to(mask) for full, mask in zip(full_loss_masks, masks, strict=True)])


def _total(parts: list[torch.Tensor]) -> torch.Tensor:
    return sum(parts, start=torch.zeros((), dtype=torch.float32, device=parts[0].device if parts else None))
