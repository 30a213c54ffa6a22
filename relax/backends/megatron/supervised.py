"""The losses that need no policy ratio: of supervised training, and of the critic."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import torch

from relax.algorithms.formulas.reducers import reduce_loss
from relax.algorithms.formulas.responses import require_same_shapes
from relax.backends.megatron.responses import get_values, log_probs_and_entropy, sequence_columns

LossAndMetrics = tuple[torch.Tensor, dict[str, torch.Tensor]]


def supervised_loss_function(args: Namespace, batch: Mapping[str, Any], logits: torch.Tensor) -> LossAndMetrics:
    """``(loss, metrics)`` of demonstrations: the negative log-probability of each response's tokens.

    Reduced as `relax.backends.megatron.loss.policy_loss_function` reduces; ``batch`` holds the same lengths, tokens and
    masks.
    """
    log_probs, entropy = log_probs_and_entropy(args, logits, **sequence_columns(batch))
    losses = [-tokens for tokens in log_probs]
    return _reduced(args, batch, {"loss": losses, "entropy": entropy})


def value_loss_function(args: Namespace, batch: Mapping[str, Any], values: torch.Tensor) -> LossAndMetrics:
    """``(loss, metrics)`` of a critic: half the squared distance of its values from ``returns``, ``[R_i]`` each."""
    predicted = get_values(args, values, **sequence_columns(batch))
    require_same_shapes(values=predicted, returns=batch["returns"])
    errors = [ours - theirs for ours, theirs in zip(predicted, batch["returns"], strict=True)]
    columns = {"loss": [error * error / 2 for error in errors], "value": predicted, "value_error": errors}
    return _reduced(args, batch, columns)


def _reduced(args: Namespace, batch: Mapping[str, Any], columns: Mapping[str, list[torch.Tensor]]) -> LossAndMetrics:
    masks = batch.get("loss_masks")
    reduced = {name: reduce_loss(args, values=values, loss_masks=masks) for name, values in columns.items()}
    return reduced["loss"], {name: value.detach().float() for name, value in reduced.items()}
