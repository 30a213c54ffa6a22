"""Sequences as the model lays them out on one rank: end to end (``thd``) or padded rows (``bshd``), cut over ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from verification.ranks.plans import Plan

FILL = 3  # of the rows behind a sequence's end: no result may depend on it
NEVER = {np.dtype(np.uint16): 0xFF80}  # minus infinity, for bfloat16 by its bits
Place = tuple[int, int, int]  # of a rank: tensor, context and data parallelism


def pack(rows: Sequence[np.ndarray], plan: Plan, qkv_format: str, place: Place) -> np.ndarray:
    """One rank's part of ``rows``, ``[total_i, V]`` a sample, as ``[1, T, V / tp]`` or ``[B, S, V / tp]``.

    A vocabulary that tensor parallelism does not divide is padded with entries that are never drawn.
    """
    tp_rank, cp_rank, dp_rank = place
    kind, width = rows[0].dtype, -(-rows[0].shape[1] // plan.layout.tp)
    parts = []
    for sample in plan.samples(dp_rank):
        whole = np.full((plan.sequence_lengths[sample], width), FILL, dtype=kind)
        own = rows[sample][:, tp_rank * width : (tp_rank + 1) * width]
        whole[: len(own)] = NEVER.get(kind, -np.inf)
        whole[: len(own), : own.shape[1]] = own
        parts.append(whole[plan.positions(sample, cp_rank)])
    if qkv_format == "thd":
        return np.concatenate([*parts, np.zeros((0, width), dtype=kind)])[None]
    length = plan.sequence_lengths[0] // plan.layout.cp
    return np.stack(parts) if parts else np.zeros((0, length, width), dtype=kind)


def unpack(
    parts: Mapping[Place, torch.Tensor], plan: Plan, qkv_format: str, vocabulary: int
) -> dict[str, torch.Tensor]:
    """The rows of all responses, ``[T, V]``, from the parts of all ranks; under ``.elsewhere`` the sum of magnitudes of
    all that is left.

    The row of a token is that of the logit which it was drawn from. Zeros are positive: a gradient that goes through
    the packing is added to zeros on its way, and -0 + 0 is +0.
    """
    found = []
    elsewhere = torch.zeros((), dtype=torch.float64)
    for sample, dp_rank in enumerate(plan.holders):
        before = [other for other in plan.samples(dp_rank) if other < sample]
        pieces = []
        for tp_rank in range(plan.layout.tp):
            own = [parts[tp_rank, cp_rank, dp_rank] for cp_rank in range(plan.layout.cp)]
            piece = torch.zeros(plan.sequence_lengths[sample], own[0].shape[-1], dtype=own[0].dtype)
            for cp_rank, part in enumerate(own):
                held = plan.positions(sample, cp_rank)
                row, start = (0, sum(len(plan.positions(other, cp_rank)) for other in before))
                if qkv_format != "thd":
                    row, start = len(before), 0
                piece[held] = part[row, start : start + len(held)]
            pieces.append(piece)
        whole = torch.cat(pieces, dim=1) + 0.0
        last = plan.total_lengths[sample] - 1
        response = slice(last - plan.response_lengths[sample], last)
        rows = whole[response, :vocabulary].clone()
        found.append(rows)
        whole[response, :vocabulary] = 0
        whole[response][rows.isnan().any(dim=1)] = 0  # what is NaN throughout is so in the padding too
        elsewhere += whole.double().abs().sum()
    return {"": torch.cat(found), ".elsewhere": elsewhere}
