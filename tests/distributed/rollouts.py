"""A rollout as one rank sees it whole, and the part of it that each rank of a layout holds.

Cutting is done here position by position, so that it is a check on the code that cuts by arithmetic.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from verification.cases.arguments import namespace
from verification.cases.integers import Integers
from verification.ranks.layout import Layout

VOCABULARY = 8
# Prompts and responses: one token, none, several chunks; with two context-parallel ranks the third lies on one alone.
LENGTHS = ((3, 5), (6, 1), (37, 3), (9, 17), (2, 12), (5, 2))
TOKENS = ("log_probs", "ref_log_probs", "rollout_log_probs", "values", "advantages")  # cut with the responses


@dataclass(frozen=True)
class Rollout:
    """A whole batch: ``columns`` of one entry a response, the logits of each sequence ``[total_i, V]``, padding."""

    columns: Mapping[str, Sequence[Any]]
    logits: Sequence[torch.Tensor]
    padded: bool = False
    qkv_format: str = "thd"

    def sequence_length(self, sample: int, cp_size: int) -> int:
        """What a sequence is padded to: its own length, what the cut needs, or more; in bshd all to the longest."""
        multiple = 2 * cp_size if cp_size > 1 else 1
        of_all = [
            -(-total // multiple) * multiple + multiple * (self.padded * (2 + position % 3))
            for position, total in enumerate(self.columns["total_lengths"])
        ]
        return max(of_all) if self.qkv_format == "bshd" else of_all[sample]


def arguments(layout: Layout, algorithm: str = "grpo", **options: Any) -> Namespace:
    """The command line of a run on this layout."""
    return namespace(
        algorithm,
        tensor_model_parallel_size=layout.tp,
        context_parallel_size=layout.cp,
        pipeline_model_parallel_size=layout.pp,
        **options,
    )


def rollout(name: str, lengths: Sequence[tuple[int, int]] = LENGTHS, **layout: Any) -> Rollout:
    """The rollout of this name: numbers that are exact in float32, log-probs within reach of every clip."""
    stream, responses = Integers(name), [response for _, response in lengths]

    def each(low: int, high: int, bits: int = 12) -> list[torch.Tensor]:
        return [torch.from_numpy(stream.array(response, low, high, bits)) for response in responses]

    masks = each(0, 1, 0)
    for mask in masks:
        mask[-1:] = 1
    near = (-(11 << 10), -(6 << 10))  # log(1/8) is -2.08
    columns: dict[str, Sequence[Any]] = {
        "total_lengths": [prompt + response for prompt, response in lengths],
        "response_lengths": responses,
        "tokens": [torch.tensor([stream.below(VOCABULARY) for _ in range(sum(pair))]) for pair in lengths],
        "loss_masks": masks,
        "rewards": [stream.between(-99, 99) / 7 for _ in lengths],
        "log_probs": each(*near),
        "ref_log_probs": each(*near),
        "rollout_log_probs": each(*near),
        "values": each(-(2 << 12), 2 << 12),
        "advantages": [torch.full((n,), stream.between(-9, 9) / 4) for n in responses],
    }
    logits = [
        torch.from_numpy(stream.array(sum(pair) * VOCABULARY, -1 << 12, 1 << 12, 12)).reshape(-1, VOCABULARY)
        for pair in lengths
    ]
    return Rollout(columns, logits, **layout)


def held(batch: Rollout, sample: int, cp_size: int, cp_rank: int) -> list[int]:
    """The positions of a padded sequence that a context-parallel rank holds, in its order."""
    length = batch.sequence_length(sample, cp_size)
    if cp_size == 1:
        return list(range(length))
    order = [*range(cp_size), *reversed(range(cp_size))]
    return [position for position in range(length) if order[position * 2 * cp_size // length] == cp_rank]


def own_tokens(batch: Rollout, sample: int, cp_size: int, cp_rank: int) -> list[int]:
    """The tokens of a response whose logits, one position before them, a context-parallel rank holds."""
    total, response = (batch.columns[name][sample] for name in ("total_lengths", "response_lengths"))
    positions = set(held(batch, sample, cp_size, cp_rank))
    return [token for token in range(response) if total - response + token - 1 in positions]


def samples_of(batch: Rollout, dp_size: int, dp_rank: int) -> list[int]:
    """The samples of a data-parallel rank, dealt out in turn."""
    return list(range(dp_rank, len(batch.logits), dp_size))


def shard(batch: Rollout, layout: Layout, rank: int, mini_batches: Sequence[int] | None = None) -> dict[str, Any]:
    """The columns of a rank, its packed logits, and how many of its samples belong to each of ``mini_batches``.

    Positions of padding, which nothing may read, hold NaN.
    """
    tp, cp, dp, _ = layout.coordinates(rank)
    samples = samples_of(batch, layout.dp, dp)
    columns: dict[str, Any] = {name: [column[sample] for sample in samples] for name, column in batch.columns.items()}
    for name in TOKENS:
        columns[name] = [
            tokens[own_tokens(batch, sample, layout.cp, cp)]
            for sample, tokens in zip(samples, columns[name], strict=True)
        ]
    if batch.padded or batch.qkv_format == "bshd":
        columns["padded_total_lengths"] = [batch.sequence_length(sample, layout.cp) for sample in samples]
    ends = [sum(mini_batches[: k + 1]) for k in range(len(mini_batches))] if mini_batches else [len(batch.logits)]
    batch_of = [next(k for k, end in enumerate(ends) if sample < end) for sample in samples]
    columns["mini_batch_sizes"] = [batch_of.count(k) for k in range(len(ends))]
    width = VOCABULARY // layout.tp
    rows = [
        _padded(batch.logits[sample], batch.sequence_length(sample, layout.cp))[held(batch, sample, layout.cp, cp)]
        for sample in samples
    ]
    empty = torch.zeros(1 if batch.qkv_format == "thd" else 0, 0, VOCABULARY)
    packed = empty if not rows else torch.cat(rows)[None] if batch.qkv_format == "thd" else torch.stack(rows)
    columns["logits"] = packed[..., tp * width : (tp + 1) * width].clone()
    return columns


def _padded(rows: torch.Tensor, length: int) -> torch.Tensor:
    return torch.cat([rows, torch.full((length - len(rows), rows.shape[1]), float("nan"))])


def whole_columns(
    batch: Rollout, layout: Layout, parts: Sequence[Sequence[torch.Tensor]], ranks: Sequence[int]
) -> list[torch.Tensor]:
    """Parts of responses, by rank, as whole responses; ``ranks`` hold every token once among them."""
    whole = [torch.full((response,), float("nan")) for response in batch.columns["response_lengths"]]
    for rank in ranks:
        _, cp, dp, _ = layout.coordinates(rank)
        for sample, part in zip(samples_of(batch, layout.dp, dp), parts[rank], strict=True):
            tokens = own_tokens(batch, sample, layout.cp, cp)
            assert len(tokens) == len(part), f"rank {rank} gave {len(part)} of its {len(tokens)} tokens"
            whole[sample] = whole[sample].to(part.dtype)
            whole[sample][tokens] = part
    return whole
