"""Small inputs for the frozen copies, and results as bits that tell +0 from -0."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from verification.cases.arguments import namespace
from verification.frozen import dispatch

F = np.float32
SINGLE_REWARD = ("grpo", "gspo", "sapo", "cispo")


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def samples(rewards: list[Any], groups: list[Any], **fields: Any) -> list[SimpleNamespace]:
    return [
        SimpleNamespace(reward=value, group_index=group, **fields) for value, group in zip(rewards, groups, strict=True)
    ]


def bits(values: Any) -> list[str]:
    """Hex of each float: separates +0 from -0."""
    return [float(value).hex() for value in values]


def estimate(algorithm: str, options: dict[str, Any], **inputs: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    lengths = [k.numel() for k in inputs["kl"]]
    return dispatch.compute_advantages_and_returns(
        namespace(algorithm, **options), **{"response_lengths": lengths, "total_lengths": lengths, **inputs}
    )
