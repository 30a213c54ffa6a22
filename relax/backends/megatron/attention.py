"""Causal attention on any device, in which a token's bits do not depend on what else is in the batch.

Megatron's own attention modules ask for CUDA. This one is torch's ``scaled_dot_product_attention`` on rows of one fixed
length, whether sequences come packed (thd) or one a row (bshd): the kernel adds in an order that depends on the length
of the row, and on nothing beside it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad, scaled_dot_product_attention


class CausalAttention(torch.nn.Module):
    """Stands for ``core_attention`` in a layer of megatron; the arguments that it has no use for are ignored.

    ``row_length`` is the length to which every sequence is padded here: the longest that the model can read.
    """

    def __init__(self, *, row_length: int, softmax_scale: float | None = None, **_: Any) -> None:
        super().__init__()
        self.row_length = row_length
        self.softmax_scale = softmax_scale

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        packed_seq_params: Any = None,
        **_: Any,
    ) -> torch.Tensor:
        """``[S, B, heads, D]`` to ``[S, B, heads * D]``, or packed ``[T, heads, D]`` to ``[T, heads * D]``.

        Keys and values may have fewer heads, each for as many neighbouring heads of the query. Of ``packed_seq_params``
        it reads ``cu_seqlens_q``. A token sees itself and those before it in its sequence.
        """
        if packed_seq_params is None:
            length = query.shape[0]
            rows = [pad(each.permute(1, 2, 0, 3), (0, 0, 0, self.row_length - length)) for each in (query, key, value)]
            return self._attend(*rows)[:, :, :length].permute(2, 0, 1, 3).flatten(2)  # [S, B, heads * D]
        places, count = self._places(packed_seq_params.cu_seqlens_q)
        rows = [self._unpacked(each, places, count) for each in (query, key, value)]
        return self._attend(*rows).transpose(1, 2).flatten(0, 1).index_select(0, places).flatten(1)

    def _attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """``[rows, heads, row_length, D]`` each, and the result."""
        if (queries := query.shape[1] // key.shape[1]) > 1:
            key, value = (each.repeat_interleave(queries, dim=1) for each in (key, value))
        return scaled_dot_product_attention(query, key, value, is_causal=True, scale=self.softmax_scale)

    def _unpacked(self, packed: torch.Tensor, places: torch.Tensor, count: int) -> torch.Tensor:
        """``[T, heads, D]`` in ``count`` rows: ``[n, heads, row_length, D]``."""
        tokens = packed.new_zeros(count * self.row_length, *packed.shape[1:]).index_copy(0, places, packed)
        return tokens.unflatten(0, (count, self.row_length)).transpose(1, 2)

    def _places(self, ends: torch.Tensor) -> tuple[torch.Tensor, int]:
        """Where each packed token lies in rows end to end ``[T]``, and the number of rows."""
        lengths = ends.diff()
        row = torch.repeat_interleave(torch.arange(len(lengths), device=ends.device), lengths)  # [T]
        place = torch.arange(len(row), device=ends.device) - ends[:-1].long()[row]
        return row * self.row_length + place, len(lengths)
