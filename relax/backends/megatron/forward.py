"""Whole sequences through the model, laid out as the losses read its output."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch.nn.functional import pad

# Fewer rows than this in a matrix product take another kernel, which rounds otherwise.
FEWEST_TOKENS = 8


def model_output(
    model: torch.nn.Module,
    *,
    qkv_format: str,
    tokens: Sequence[torch.Tensor],
    padded_total_lengths: Sequence[int] | None = None,
) -> torch.Tensor:
    """What the model gives for ``tokens`` (one int64 ``[total_i]`` a sequence): logits, or a critic's values.

    ``[1, T, V]`` with sequences end to end, at their padded lengths where given (thd), or ``[B, S, V]`` with one a row
    (bshd); either may be longer than the sequences fill. The row of a token has the same bits in every batch, at every
    place and in both layouts. Raises ValueError for a sequence longer than the model's positions, naming it.
    """
    lengths = [len(ids) for ids in tokens] if padded_total_lengths is None else list(padded_total_lengths)
    longest: Any = model.max_sequence_length
    for position, (ids, length) in enumerate(zip(tokens, lengths, strict=True)):
        if not len(ids) <= length <= longest:
            raise ValueError(
                f"sequence {position} has {len(ids)} tokens, {length} with its padding, and the model reads "
                f"{longest}: raise the model's max_length or shorten prompts and responses"
            )
    tokens = [ids.to(next(model.parameters()).device) for ids in tokens]
    if qkv_format == "bshd":
        width = max([FEWEST_TOKENS, *lengths])
        ids = torch.stack([pad(ids, (0, width - len(ids))) for ids in tokens])  # [B, S]
        return model(ids, torch.arange(width, device=ids.device).expand_as(ids), None)
    return _packed(model, tokens, lengths)


def output_of(args: Namespace, model: torch.nn.Module, columns: Mapping[str, Any]) -> torch.Tensor:
    """`model_output` of a batch's columns, in the layout of ``args.qkv_format``."""
    return model_output(
        model,
        qkv_format=args.qkv_format,
        tokens=columns["tokens"],
        padded_total_lengths=columns.get("padded_total_lengths"),
    )


def last_output(model: torch.nn.Module, tokens: Sequence[torch.Tensor]) -> torch.Tensor:
    """The row of `model_output` at the last token of each sequence, ``[n, V]``: of the same bits, and without the cost
    of a whole vocabulary at every other token.
    """
    last = torch.tensor([len(ids) - 1 for ids in tokens])

    def select(module: torch.nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        rows = inputs[0][last, torch.arange(len(last))]  # [S, B, H] to [n, H]
        return (pad(rows, (0, 0, 0, max(0, FEWEST_TOKENS - len(rows))))[:, None],)

    selecting: Any = model.output_layer
    with selecting.register_forward_pre_hook(select):
        return model_output(model, qkv_format="bshd", tokens=tokens)[0, : len(last)]


def _packed(model: torch.nn.Module, tokens: Sequence[torch.Tensor], lengths: list[int]) -> torch.Tensor:
    """Sequences end to end, ``[1, T, V]``; a short batch gains one of padding."""
    from megatron.core.packed_seq_params import PackedSeqParams

    if (missing := FEWEST_TOKENS - sum(lengths)) > 0:
        tokens, lengths = [*tokens, tokens[0].new_zeros(missing)], [*lengths, missing]
    ids = torch.cat([pad(ids, (0, length - len(ids))) for ids, length in zip(tokens, lengths, strict=True)])
    positions = torch.cat([torch.arange(length) for length in lengths]).to(ids.device)
    ends = torch.tensor(list(accumulate(lengths, initial=0)), dtype=torch.int32, device=ids.device)
    longest = max(lengths)
    packing = PackedSeqParams(
        qkv_format="thd", cu_seqlens_q=ends, cu_seqlens_kv=ends, max_seqlen_q=longest, max_seqlen_kv=longest
    )
    return model(ids[None], positions[None], None, packed_seq_params=packing)
