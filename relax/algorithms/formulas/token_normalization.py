"""Normalisation of advantages over every unmasked token of a batch, across ranks.

One pass in float32, with its known weakness: the variance of numbers far from zero is lost to cancellation.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from relax.algorithms.collective import Collective
from relax.algorithms.formulas.responses import concatenate

EPSILON = 1e-8


def whiten(
    advantages: Sequence[torch.Tensor], loss_masks: Sequence[torch.Tensor], collective: Collective
) -> list[torch.Tensor]:
    """``(a - mean) * rsqrt(var + 1e-8)``, mean and unbiased variance over the unmasked tokens of all ranks.

    ``[R_i]`` each, float32; masked tokens are shifted and scaled like the rest. The variance of a single token is not
    corrected. A rank without responses joins the sum. Raises ValueError, on every rank, where no token is unmasked.
    """
    tokens, masks = _float32(advantages), _float32(loss_masks)
    flat, mask = concatenate(tokens), concatenate(masks)  # [T]
    total, total_of_squares, count = collective.sum(
        torch.stack([(flat * mask).sum(), (flat * flat * mask).sum(), mask.sum()])
    )
    _require_unmasked(count, collective)
    mean = total / count
    variance = total_of_squares / count - mean * mean
    if count >= 2:
        variance = variance * (count / (count - 1))
    scale = torch.rsqrt(variance + EPSILON)
    return [(response - mean) * scale for response in tokens]


def token_global(
    advantages: Sequence[torch.Tensor], loss_masks: Sequence[torch.Tensor], collective: Collective
) -> list[torch.Tensor]:
    """``(a - mean) * rsqrt(max(var, 1e-8)) * mask``, mean and population variance over the unmasked tokens of all
    ranks.

    As `whiten`, but centred before it squares, uncorrected, and 0 at masked tokens.
    """
    tokens, masks = _float32(advantages), _float32(loss_masks)
    flat, mask = concatenate(tokens), concatenate(masks)  # [T]
    total, count = collective.sum(torch.stack([(flat * mask).sum(), mask.sum()]))
    _require_unmasked(count, collective)
    mean = total / count
    centred = (flat - mean) * mask
    variance = collective.sum((centred * centred).sum()) / count
    scale = torch.rsqrt(torch.clamp(variance, min=EPSILON))
    return [(response - mean) * scale * kept for response, kept in zip(tokens, masks, strict=True)]


def _float32(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.float() for tensor in tensors]


def _require_unmasked(count: torch.Tensor, collective: Collective) -> None:
    if count == 0:
        raise ValueError(
            f"no token is unmasked on any of {collective.size} rank(s): advantages have no mean to be normalised by; "
            "unmask a token, or switch --normalize-advantages off"
        )
