"""The record that travels from rollout to training: one prompt with one response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Sample:
    """One response to one prompt, with what its reward and its loss need."""

    index: int | None = None
    """Position in the rollout, unique."""

    group_index: int | None = None
    """The prompt group: samples of one prompt share it. Two groups may hold the same prompt."""

    prompt: str = ""
    """The prompt as text."""

    tokens: Sequence[int] = ()
    """Token ids of prompt and response, the response last."""

    response_length: int = 0
    """How many of ``tokens`` are the response's; 0 is allowed."""

    reward: float | Mapping[str, float] | None = None
    """One number, or one a named component."""

    loss_mask: Sequence[int] | None = None
    """``response_length`` numbers, 1 where the token is trained on; None: everywhere."""

    rollout_log_probs: Sequence[float] | None = None
    """Log-probability of each response token when it was sampled."""

    custom_advantage: float | None = None
    """What ``--agentic-custom-advantage-path`` wrote in place of a normalised reward."""

    status: str = "completed"
    """How generation ended: completed, truncated or aborted."""

    metadata: dict[str, Any] = field(default_factory=dict)
    """Whatever the task needs to score the response."""
