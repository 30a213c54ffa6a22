"""What every formula over a list of responses asks first: one entry a response, and equal shapes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch


def require_same_count(**lists: Sequence[Any] | torch.Tensor | None) -> None:
    """Raise a ValueError naming two lists of different length and both lengths; None stands for "not given"."""
    counts = [(name, len(entries)) for name, entries in lists.items() if entries is not None]
    for (first, expected), (name, count) in product(counts[:1], counts):
        if count != expected:
            raise ValueError(
                f"{first} holds {expected} responses and {name} holds {count}: each list needs one entry a response"
            )


def require_same_shapes(**lists: Sequence[torch.Tensor] | None) -> None:
    """Raise a ValueError naming the response, the two lists and both shapes where two entries differ in shape.

    The lists are checked for equal length first. A broadcast of one token over a response is never meant.
    """
    require_same_count(**lists)
    given = [(name, entries) for name, entries in lists.items() if entries is not None]
    for (first, expected), (name, entries) in product(given[:1], given):
        for position, (one, other) in enumerate(zip(expected, entries, strict=True)):
            if one.shape != other.shape:
                raise ValueError(
                    f"response {position}: {first} has shape {tuple(one.shape)} and {name} has shape "
                    f"{tuple(other.shape)}: both need one number a response token"
                )


def masks_or_ones(
    loss_masks: Sequence[torch.Tensor] | None, like: Sequence[torch.Tensor], name: str
) -> list[torch.Tensor]:
    """The loss masks on the device of ``like`` (called ``name`` in errors), in float32 or wider; None is every token.

    Masks are 0 or 1 of any dtype. They are counted, which half precision cannot do beyond 256 or 2,048 tokens; numbers
    of half precision become float32 when a mask multiplies them.
    """
    dtypes = [torch.promote_types(tokens.dtype, torch.float32) for tokens in like]
    if loss_masks is None:
        return [torch.ones_like(tokens, dtype=dtype) for tokens, dtype in zip(like, dtypes, strict=True)]
    require_same_shapes(**{name: like, "loss_masks": loss_masks})
    return [mask.to(tokens.device, dtype) for mask, tokens, dtype in zip(loss_masks, like, dtypes, strict=True)]


def concatenate(tokens: Sequence[torch.Tensor]) -> torch.Tensor:
    """All responses' tokens in one tensor ``[T]``; no response at all gives an empty float32 tensor."""
    return torch.cat(list(tokens)) if tokens else torch.zeros(0, dtype=torch.float32)
