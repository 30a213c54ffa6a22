"""Samples as columns: what travels from the rollout to training, one entry a sample."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from relax.core.trace import keep
from relax.rollout.post_process import post_process_rewards
from relax.types import Sample

SEQUENCE_COLUMNS = ("tokens", "total_lengths", "response_lengths", "loss_masks")
"""What any training needs of a sample."""


def sequence_columns(samples: Sequence[Sample]) -> dict[str, list[Any]]:
    """The `SEQUENCE_COLUMNS` of samples.

    ``tokens`` int64 ``[total_i]``; ``total_lengths``, ``response_lengths``; ``loss_masks`` float32 ``[R_i]``.
    """
    return {
        "tokens": [torch.tensor(sample.tokens, dtype=torch.int64) for sample in samples],
        "total_lengths": [len(sample.tokens) for sample in samples],
        "response_lengths": [sample.response_length for sample in samples],
        "loss_masks": [_mask(sample) for sample in samples],
    }


def rollout_columns(args: Namespace, samples: Sequence[Sample]) -> dict[str, list[Any]]:
    """`sequence_columns` of whole prompt groups, and what the reward stage and sampling add to them.

    ``rewards`` (what training sees) and ``raw_reward``, floats; ``rollout_log_probs`` float32 ``[R_i]`` where every
    sample has them.
    """
    raw_rewards, rewards = post_process_rewards(args, samples)
    keep("reward.normalize", args, {"samples": samples}, {"raw_rewards": raw_rewards, "rewards": rewards})
    columns = {**sequence_columns(samples), "rewards": rewards, "raw_reward": raw_rewards}
    if all(sample.rollout_log_probs is not None for sample in samples):
        columns["rollout_log_probs"] = [_float32(sample.rollout_log_probs) for sample in samples]
    return columns


def take(columns: Mapping[str, Sequence[Any]], positions: Sequence[int]) -> dict[str, list[Any]]:
    """The entries at ``positions`` of every column, in that order."""
    return {name: [column[position] for position in positions] for name, column in columns.items()}


def require_finite(keys: Sequence[str], advantages: Sequence[torch.Tensor]) -> None:
    """Raises ValueError naming the first row whose advantages ``[R_i]`` are not all finite."""
    for key, tokens in zip(keys, advantages, strict=True):
        if not bool(tokens.isfinite().all()):
            rollout, position = map(int, key.split("/"))
            raise ValueError(
                f"rollout {rollout}, row {position}: an advantage is not finite, and nothing was trained on it; look "
                "at the reward of that sample, at those of its prompt group, and at --kl-coef"
            )


def _mask(sample: Sample) -> torch.Tensor:
    return torch.ones(sample.response_length) if sample.loss_mask is None else _float32(sample.loss_mask)


def _float32(numbers: Any) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32)
