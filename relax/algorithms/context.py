"""Whole responses, whether or not context parallelism has cut them: what formulas along a response work on."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Protocol

import torch


class Context(Protocol):
    """How a rank holds the responses of a batch: whole, or parts of them that other ranks complete."""

    def cut(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """This rank's part of each whole response."""

    def gather_each(self, *lists: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
        """Lists of parts to lists of whole responses: one collective for all of them."""


class WholeResponses:
    """Responses that no rank shares: nothing to cut and nothing to gather."""

    def cut(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return list(tensors)

    def gather_each(self, *lists: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
        return [list(tensors) for tensors in lists]


def context_of(
    args: Namespace,
    *,
    total_lengths: Sequence[int] | None,
    response_lengths: Sequence[int] | None,
    padded_total_lengths: Sequence[int] | None,
) -> Context:
    """The context of responses of these lengths. Under context parallelism megatron's groups must be there.

    Raises ValueError where ``args.context_parallel_size`` exceeds 1 and the lengths, which say where responses are cut,
    are missing.
    """
    if args.context_parallel_size == 1:
        return WholeResponses()
    if total_lengths is None or response_lengths is None:
        missing = "total_lengths" if total_lengths is None else "response_lengths"
        raise ValueError(
            f"context_parallel_size is {args.context_parallel_size} and {missing} is None: pass the lengths of the "
            "whole sequences, they say which tokens a rank holds"
        )
    from relax.backends.megatron.context_parallel import context_parallel

    return context_parallel(args, total_lengths, response_lengths, padded_total_lengths)
