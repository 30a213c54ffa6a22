"""The results of all ranks, put together to those of the whole batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from verification.ranks.cases import RankCase
from verification.ranks.packing import Place, unpack

Arrays = Mapping[str, torch.Tensor]
Parts = dict[Place, torch.Tensor]  # of one array, by the tensor-, context- and data-parallel rank that gave it


class Misfit(ValueError):
    """A rank's array is not of the rank's part of the batch; the message names both."""


def assemble(rank_case: RankCase, ranks: Sequence[Arrays]) -> dict[str, torch.Tensor]:
    """The arrays of the whole batch from those of each rank, in order of rank.

    A vector holds the rank's tokens of all its responses, and becomes ``[T]``; a scalar is the rank's addend, and they
    are added in float64; an array of three axes is laid out as the logits are. Parts come from the last pipeline stage,
    and but for the last kind from the first tensor-parallel rank.
    """
    by_name: dict[str, Parts] = {}
    for rank, arrays in enumerate(ranks):
        *place, stage = rank_case.layout.coordinates(rank)
        if stage == rank_case.layout.pp - 1:
            for name, tensor in arrays.items():
                by_name.setdefault(name, {})[place[0], place[1], place[2]] = tensor
    whole: dict[str, torch.Tensor] = {}
    for name, parts in by_name.items():
        axes = {part.dim() for part in parts.values()}
        if len(parts) != rank_case.layout.world // rank_case.layout.pp or len(axes) != 1:
            raise Misfit(f"{name} came from {len(parts)} ranks with {sorted(axes)} axes")
        if axes == {3}:
            vocabulary = rank_case.case.inputs["logits"][0].shape[1]
            rows = unpack(parts, rank_case.plan, rank_case.qkv_format, vocabulary)
            whole |= {name + more: tensor for more, tensor in rows.items()}
        elif axes == {0}:
            whole[name] = sum((part.double() for (tp, _, _), part in parts.items() if tp == 0), start=torch.zeros(()))
        else:
            whole[name] = _tokens(rank_case, name, {place[1:]: part for place, part in parts.items() if place[0] == 0})
    return whole


def _tokens(rank_case: RankCase, name: str, parts: Mapping[tuple[int, int], torch.Tensor]) -> torch.Tensor:
    """``[T]`` from each rank's tokens, by context- and data-parallel rank."""
    plan, kinds = rank_case.plan, {part.dtype for part in parts.values() if len(part)} or {torch.float32}
    if len(kinds) > 1:
        raise Misfit(f"{name} came as {', '.join(sorted(map(str, kinds)))}")
    starts = [sum(plan.response_lengths[:sample]) for sample in range(len(plan.holders))]
    whole = torch.empty(sum(plan.response_lengths), dtype=kinds.pop())
    for (cp, dp), part in parts.items():
        own = [starts[sample] + plan.own(sample, cp) for sample in plan.samples(dp)]
        held = sum(map(len, own))
        if part.shape != (held,):
            raise Misfit(f"{name} has shape {list(part.shape)} on cp {cp}, dp {dp}, which hold {held} tokens")
        if own:
            whole[np.concatenate(own)] = part
    return whole
