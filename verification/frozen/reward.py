"""Frozen reward stage: rewards as read, scores within a group, the signal of a group (baseline section 1)."""

from __future__ import annotations

import importlib
from typing import Any

import torch


def read_raw_rewards(samples: list[Any], reward_key: str | None) -> list[Any]:
    """Each sample's ``reward``, or the entry ``reward_key`` of it where a key is set."""
    raw_rewards = []
    for sample in samples:
        if reward_key:
            raw_rewards.append(sample.reward[reward_key])
        else:
            raw_rewards.append(sample.reward)
    return raw_rewards


def call_hook(path: str, args: Any, samples: list[Any]) -> Any:
    """The result, as it is, of the function at the import path ``package.module.function``."""
    module_name, _, function_name = path.replace(":", ".").rpartition(".")
    function = getattr(importlib.import_module(module_name), function_name)
    return function(args, samples)


def read_custom_advantages(samples: list[Any]) -> list[Any]:
    """Each sample's ``custom_advantage``."""
    custom_advantages = []
    for sample in samples:
        custom_advantages.append(sample.custom_advantage)
    return custom_advantages


def group_positions(group_indices: list[Any], n_samples_per_prompt: int) -> dict[Any, list[int]]:
    """Positions of each group, groups in order of first appearance, positions ascending.

    Errors: ValueError for a missing group index and for a group of another size than ``n_samples_per_prompt``.
    """
    positions: dict[Any, list[int]] = {}
    for position, group_index in enumerate(group_indices):
        if group_index is None:
            raise ValueError(f"sample {position} has no group_index: rewards cannot be normalised by group without one")
        if group_index not in positions:
            positions[group_index] = []
        positions[group_index].append(position)
    for group_index, members in positions.items():
        if len(members) != n_samples_per_prompt:
            raise ValueError(
                f"group {group_index} has {len(members)} samples, but n_samples_per_prompt is {n_samples_per_prompt}"
            )
    return positions


def group_mean_std(
    raw_rewards: list[float], group_indices: list[Any], n_samples_per_prompt: int, std_normalization: bool
) -> list[float]:
    """Centre within each group; where ``std_normalization`` is on, divide by the centred values' std + 1e-6."""
    r = torch.tensor(raw_rewards, dtype=torch.float32)  # [n]
    rewards = [0.0] * len(raw_rewards)
    for members in group_positions(group_indices, n_samples_per_prompt).values():
        group = r[members]  # [G]
        c = group - group.mean()
        if std_normalization:
            c = c / (c.std() + 1e-6)
        for position, value in zip(members, c.tolist(), strict=True):
            rewards[position] = value
    return rewards


def group_mean(raw_rewards: list[float], group_indices: list[Any], n_samples_per_prompt: int) -> list[float]:
    """Centre within each group, never divide."""
    r = torch.tensor(raw_rewards, dtype=torch.float32)  # [n]
    rewards = [0.0] * len(raw_rewards)
    for members in group_positions(group_indices, n_samples_per_prompt).values():
        group = r[members]  # [G]
        c = group - group.mean()
        for position, value in zip(members, c.tolist(), strict=True):
            rewards[position] = value
    return rewards


def rewards_differ(raw_rewards: list[float]) -> bool:
    """Whether min and max of the float32 rewards differ; False where one of them is not finite, or there is none."""
    r = torch.tensor(raw_rewards, dtype=torch.float32)  # [G]
    if r.numel() == 0:
        return False
    if not bool(torch.isfinite(r).all()):
        return False
    return bool(r.min() != r.max())
