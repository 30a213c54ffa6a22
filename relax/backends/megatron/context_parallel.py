"""Context parallelism: cutting whole responses to a rank's part of them, and gathering the parts again."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from relax.algorithms.collective import collective_for
from relax.algorithms.formulas.responses import require_same_count
from relax.backends.megatron.parallel import parallel
from relax.backends.megatron.zigzag import chunk_length, zigzag_parts

__all__ = ["ContextParallel", "context_parallel", "zigzag_parts"]


@dataclass(frozen=True)
class ContextParallel:
    """How the responses of a batch are spread over the context-parallel ranks.

    ``group`` is their process group, or a `Collective`; the lists hold one entry a response, the same on every rank.
    With ``size`` 1 nothing is cut and nothing exchanged. Raises ValueError, naming the response, for lengths that
    `zigzag_parts` refuses.
    """

    size: int
    rank: int
    group: Any
    total_lengths: Sequence[int]
    response_lengths: Sequence[int]
    padded_total_lengths: Sequence[int] | None = None

    def __post_init__(self) -> None:
        require_same_count(
            response_lengths=self.response_lengths,
            total_lengths=self.total_lengths,
            padded_total_lengths=self.padded_total_lengths,
        )
        for position in range(len(self.response_lengths)):
            try:
                self.parts(position, self.rank)
            except ValueError as error:
                raise ValueError(f"response {position}: {error}") from None

    def parts(self, position: int, rank: int) -> tuple[range, range]:
        """What ``rank`` holds of the response at ``position``, as `zigzag_parts`."""
        return zigzag_parts(
            self.total_lengths[position],
            self.response_lengths[position],
            cp_size=self.size,
            cp_rank=rank,
            padded_total_length=self._padded(position),
        )

    def rows(self, position: int) -> list[slice]:
        """Where the logits of this rank's part of the response lie in its part of the sequence."""
        total, response = self.total_lengths[position], self.response_lengths[position]
        first_logit = total - response - 1
        if self.size == 1:
            start = max(first_logit, 0)  # an empty sequence has none
            return [slice(start, start + response)]
        chunk = chunk_length(total, self.size, self._padded(position))
        # The second chunk follows the first here, with those of the other ranks left out between them.
        shifts = (first_logit - self.rank * chunk, first_logit - (2 * self.size - 2 - self.rank) * chunk)
        pieces = zip(self.parts(position, self.rank), shifts, strict=True)
        return [slice(piece.start + shift, piece.stop + shift) for piece, shift in pieces]

    def sequence_length(self, position: int) -> int:
        """The length of this rank's part of the padded sequence."""
        if self.size == 1:
            return self._padded(position) or self.total_lengths[position]
        return 2 * chunk_length(self.total_lengths[position], self.size, self._padded(position))

    def _padded(self, position: int) -> int | None:
        return None if self.padded_total_lengths is None else self.padded_total_lengths[position]

    def cut(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """This rank's part of each whole response, ``[R_i]`` to ``[R_i local]``; differentiable."""
        if self.size == 1:
            return list(tensors)
        self._require_lengths({"tensors": tensors}, self.response_lengths, "the whole response")
        return [self.own_part(position, tokens) for position, tokens in enumerate(tensors)]

    def own_part(self, position: int, tokens: torch.Tensor) -> torch.Tensor:
        """This rank's part of the whole response at ``position``."""
        return torch.cat([tokens[piece.start : piece.stop] for piece in self.parts(position, self.rank)])

    def gather(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Whole responses from every rank's part of them, as `gather_each`."""
        return self.gather_each(tensors)[0]

    def gather_each(self, *lists: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
        """Several lists of parts, ``[R_i local]`` each, to as many lists of whole responses ``[R_i]``: one collective.

        Bits are moved, nothing is computed; dtypes may differ between the lists. The gradient of a part is the sum of
        what every rank's loss has for it: one more collective in the backward pass. A rank whose parts are all empty
        joins both. Raises ValueError, before the collective, for a part of another length.
        """
        responses = len(self.response_lengths)
        if self.size == 1 or not responses:
            return [list(tensors) for tensors in lists]
        for tensors in lists:
            self.require_parts(tensors=tensors)
        whole = _Gather.apply(self, *(tokens for tensors in lists for tokens in tensors))
        return [list(whole[start : start + responses]) for start in range(0, len(whole), responses)]

    def require_parts(self, **lists: Sequence[torch.Tensor] | None) -> None:
        """Raises ValueError naming list, response and both lengths unless each list holds this rank's parts."""
        lengths = [sum(map(len, self.parts(i, self.rank))) for i in range(len(self.response_lengths))]
        self._require_lengths(lists, lengths, f"the part of context-parallel rank {self.rank} of {self.size}")

    def _require_lengths(
        self, lists: Mapping[str, Sequence[torch.Tensor] | None], lengths: Sequence[int], what: str
    ) -> None:
        require_same_count(response_lengths=self.response_lengths, **lists)
        for name, tensors in lists.items():
            for position, (tokens, length) in enumerate(zip(tensors or (), lengths, strict=False)):
                if tokens.shape != (length,):
                    raise ValueError(
                        f"response {position}: {name} has shape {tuple(tokens.shape)} and {what} shape ({length},)"
                    )


def context_parallel(
    args: Namespace,
    total_lengths: Sequence[int],
    response_lengths: Sequence[int],
    padded_total_lengths: Sequence[int] | None = None,
) -> ContextParallel:
    """The context parallelism of this rank and of these responses.

    Raises ValueError where ``args.context_parallel_size`` is not the size of megatron's group.
    """
    group = parallel().context
    if group.size != args.context_parallel_size:
        raise ValueError(
            f"context_parallel_size is {args.context_parallel_size} and megatron's context-parallel group has "
            f"{group.size} rank(s): initialize_model_parallel must be given the same --context-parallel-size"
        )
    if group.size == 1:
        return ContextParallel(1, 0, None, total_lengths, response_lengths, padded_total_lengths)
    return ContextParallel(group.size, group.rank, group, total_lengths, response_lengths, padded_total_lengths)


class _Gather(torch.autograd.Function):
    """Parts to whole responses, as bytes; the gradient of whole responses, summed over ranks, to parts.

    Takes one tensor a response, or several lists of them end to end.
    """

    @staticmethod
    def forward(ctx: Any, context: ContextParallel, *parts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        responses, size = len(context.response_lengths), context.size
        sizes = [  # [rank][2 * part]: the bytes of each piece, in the order in which a rank sends them
            [
                len(piece) * tokens.element_size()
                for index, tokens in enumerate(parts)
                for piece in context.parts(index % responses, rank)
            ]
            for rank in range(size)
        ]
        sent = torch.cat([_as_bytes(tokens) for tokens in parts])
        padding = max(map(sum, sizes)) - len(sent)
        received = collective_for(context.group).gather(torch.nn.functional.pad(sent, (0, padding)))
        pieces = [row[: sum(own)].split(own) for row, own in zip(received, sizes, strict=True)]
        # Chunk k lies with rank k, its mirror image with the same rank.
        whole = tuple(
            torch.cat([own[2 * index] for own in pieces] + [own[2 * index + 1] for own in reversed(pieces)]).view(
                tokens.dtype
            )
            for index, tokens in enumerate(parts)
        )
        ctx.context = context
        ctx.mark_non_differentiable(
            *(one for one, needed in zip(whole, ctx.needs_input_grad[1:], strict=True) if not needed)
        )
        return whole

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        context, needed = ctx.context, [index for index, one in enumerate(ctx.needs_input_grad[1:]) if one]
        flat = torch.cat([gradients[index] for index in needed])  # in the widest of their dtypes
        summed = collective_for(context.group).sum(flat).split([len(gradients[index]) for index in needed])
        own: list[torch.Tensor | None] = [None] * len(gradients)
        for index, whole in zip(needed, summed, strict=True):
            own[index] = context.own_part(index % len(context.response_lengths), whole).to(gradients[index].dtype)
        return None, *own


def _as_bytes(tokens: torch.Tensor) -> torch.Tensor:
    """``[n]`` to its ``[n * itemsize]`` bytes; a copy, since an empty tensor or one number may have any stride."""
    return tokens.detach().clone(memory_format=torch.contiguous_format).view(torch.uint8)
