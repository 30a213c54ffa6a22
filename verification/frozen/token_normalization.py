"""Frozen token-level normalisation of advantages: one-pass whitening and token-global (baseline section 4)."""

from __future__ import annotations

from typing import Any

import torch


def sum_over_ranks(stacked: torch.Tensor, process_group: Any) -> torch.Tensor:
    """The elementwise sum over the ranks of ``process_group``; without a group there is one rank."""
    if process_group is not None:
        torch.distributed.all_reduce(stacked, group=process_group)
    return stacked


def split_to_responses(flat: torch.Tensor, like: list[torch.Tensor]) -> list[torch.Tensor]:
    """Cut a flat vector ``[T]`` back to the lengths of ``like``."""
    responses = []
    start = 0
    for tensor in like:
        responses.append(flat[start : start + tensor.numel()])
        start = start + tensor.numel()
    return responses


def whiten(
    advantages: list[torch.Tensor], loss_masks: list[torch.Tensor], process_group: Any = None
) -> list[torch.Tensor]:
    """``(a - mean) * rsqrt(var + 1e-8)``, the variance in one pass. ValueError where no token counts on any rank."""
    a = torch.cat(advantages)  # [T]
    m = torch.cat(loss_masks)  # [T]
    s1 = (a * m).sum()
    s2 = (a**2 * m).sum()
    stacked = torch.stack([s1.float(), s2.float(), m.sum().float()])  # [3]
    s1, s2, n = sum_over_ranks(stacked, process_group)
    if n == 0:
        raise ValueError("advantages cannot be whitened: the loss masks of all ranks are zero throughout")
    mean = s1 / n
    var = s2 / n - mean**2
    if n >= 2:
        var = var * (n / (n - 1))
    result = (a - mean) * torch.rsqrt(var + 1e-8)
    return split_to_responses(result, advantages)


def token_global(
    advantages: list[torch.Tensor], loss_masks: list[torch.Tensor], process_group: Any = None
) -> list[torch.Tensor]:
    """``(a - mean) * rsqrt(max(var, 1e-8)) * m``, population variance. ValueError where no token counts on any rank."""
    a = torch.cat(advantages)  # [T]
    m = torch.cat(loss_masks)  # [T]
    stacked = torch.stack([(a * m).sum().float(), m.sum().float()])  # [2]
    s1, n = sum_over_ranks(stacked, process_group)
    if n == 0:
        raise ValueError("advantages cannot be normalised: the loss masks of all ranks are zero throughout")
    mean = s1 / n
    c = (a - mean) * m
    squares = sum_over_ranks((c**2).sum().float(), process_group)
    var = squares / n
    result = (a - mean) * torch.rsqrt(torch.clamp(var, min=1e-8)) * m
    return split_to_responses(result, advantages)
