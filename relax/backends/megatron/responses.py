"""From the logits of packed or padded sequences to one number a response token."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from relax.algorithms.formulas.log_probs import vocab_parallel_log_probs
from relax.algorithms.formulas.responses import require_same_count
from relax.backends.megatron.context_parallel import ContextParallel, context_parallel
from relax.backends.megatron.parallel import parallel


def sequence_columns(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a batch that tell its sequences, as `get_responses` takes them; padding only where it has one."""
    columns = {name: batch[name] for name in ("tokens", "total_lengths", "response_lengths")}
    padded = batch.get("padded_total_lengths")
    return columns if padded is None else {**columns, "padded_total_lengths": padded}


def get_responses(
    logits: torch.Tensor,
    *,
    args: Namespace,
    tokens: Sequence[torch.Tensor],
    total_lengths: Sequence[int],
    response_lengths: Sequence[int],
    padded_total_lengths: Sequence[int] | None = None,
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """``(logits [R_i local, V local], tokens [R_i local])`` of each response: row j is what token j was drawn from.

    ``logits`` are ``[1, T local, V local]`` with sequences end to end at their padded lengths, or their total lengths
    without any (``args.qkv_format`` thd), or ``[B, S local, V local]`` with a sequence a row (bshd); local is what
    context and tensor parallelism leave this rank. ``tokens`` are whole sequences, int64 ``[total_i]``. Under context
    parallelism rows of bshd are cut at their own length, so that ``padded_total_lengths`` must be just that.
    Differentiable. Raises ValueError where logits have no room for the sequences.
    """
    context = context_parallel(args, total_lengths, response_lengths, padded_total_lengths)
    require_same_count(response_lengths=response_lengths, tokens=tokens)
    for position, (ids, length) in enumerate(zip(tokens, total_lengths, strict=True)):
        if len(ids) < length:
            raise ValueError(f"response {position}: tokens holds {len(ids)} ids and its total length is {length}")
    responses = []
    for position, rows in enumerate(_sequences(args, logits, context)):
        pieces = [rows[piece] for piece in context.rows(position)]
        start = total_lengths[position] - response_lengths[position]
        ids = tokens[position][start : total_lengths[position]].to(logits.device)
        own = ids if context.size == 1 else context.own_part(position, ids)
        responses.append((pieces[0] if len(pieces) == 1 else torch.cat(pieces), own))
    return responses


def _sequences(args: Namespace, logits: torch.Tensor, context: ContextParallel) -> list[torch.Tensor]:
    """This rank's rows of each sequence, ``[length, V local]``."""
    lengths = [context.sequence_length(position) for position in range(len(context.total_lengths))]
    if args.qkv_format == "thd":
        if logits.dim() != 3 or logits.shape[0] != 1 or sum(lengths) > logits.shape[1]:
            raise ValueError(
                f"logits have shape {tuple(logits.shape)}: {len(lengths)} sequences end to end (thd) need "
                f"[1, {sum(lengths)} or more, vocabulary] on this rank; compare padded_total_lengths"
            )
        return list(logits[0, : sum(lengths)].split(lengths))
    rows, width = len(lengths), max(lengths, default=0)
    if logits.dim() != 3 or logits.shape[0] != rows or width > logits.shape[1]:
        raise ValueError(
            f"logits have shape {tuple(logits.shape)}: {rows} sequences, one a row (bshd), need "
            f"[{rows}, {width} or more, vocabulary] on this rank"
        )
    if context.size > 1 and any(length != logits.shape[1] for length in lengths):
        raise ValueError(
            f"rows of {logits.shape[1]} positions under context parallelism (bshd) are cut as sequences of "
            f"{logits.shape[1] * context.size}: padded_total_lengths must say so for each of them"
        )
    return list(logits.unbind(0))


def log_probs_and_entropy(
    args: Namespace,
    logits: torch.Tensor,
    *,
    tokens: Sequence[torch.Tensor],
    total_lengths: Sequence[int],
    response_lengths: Sequence[int],
    padded_total_lengths: Sequence[int] | None = None,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """``(log_probs, entropy)`` of this rank's tokens of each response, float32 ``[R_i local]``; differentiable.

    The logits are as in `get_responses`; tensor-parallel ranks meet twice, whatever the number of responses.
    """
    responses = get_responses(
        logits,
        args=args,
        tokens=tokens,
        total_lengths=total_lengths,
        response_lengths=response_lengths,
        padded_total_lengths=padded_total_lengths,
    )
    # A batch without responses stays connected to the logits, as one whose responses lie on other ranks does.
    rows = torch.cat([rows for rows, _ in responses] or [logits.flatten(0, 1)[:0]])  # [T, V local]
    ids = torch.cat([ids for _, ids in responses] or [torch.zeros(0, dtype=torch.int64, device=logits.device)])  # [T]
    lengths = [len(ids) for _, ids in responses]
    log_probs, entropy = vocab_parallel_log_probs(rows, ids, parallel().tensor)
    return list(log_probs.split(lengths)), list(entropy.split(lengths))


def get_values(
    args: Namespace,
    logits: torch.Tensor,
    *,
    tokens: Sequence[torch.Tensor],
    total_lengths: Sequence[int],
    response_lengths: Sequence[int],
    padded_total_lengths: Sequence[int] | None = None,
) -> list[torch.Tensor]:
    """The critic's value at this rank's tokens of each response, float32 ``[R_i local]``; differentiable.

    ``logits`` are what its head of one number gave, laid out as in `get_responses`, and the same on every
    tensor-parallel rank. The value of a token, like its logit, stands one position before it.
    """
    if logits.shape[-1] != 1:
        raise ValueError(f"a critic's head gives one number a position, and this one {logits.shape[-1]}")
    responses = get_responses(
        logits,
        args=args,
        tokens=tokens,
        total_lengths=total_lengths,
        response_lengths=response_lengths,
        padded_total_lengths=padded_total_lengths,
    )
    return [rows.squeeze(-1).float() for rows, _ in responses]
