"""What a model says of responses that are there: log-probs, of the policy or the reference, and a critic's values."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from relax.backends.megatron.forward import output_of
from relax.backends.megatron.responses import get_values, log_probs_and_entropy, sequence_columns
from relax.backends.megatron.train_step import micro_batches


@torch.no_grad()
def score_log_probs(
    args: Namespace, model: torch.nn.Module, batch: Mapping[str, Sequence[Any]], *, micro_batch_size: int
) -> list[torch.Tensor]:
    """The log-probability of each response's tokens, float32 ``[R_i]``: the bits that sampling them recorded."""
    log_probs: list[torch.Tensor] = []
    for columns in micro_batches(sequence_columns(batch), micro_batch_size):
        log_probs += [one.cpu() for one in log_probs_and_entropy(args, output_of(args, model, columns), **columns)[0]]
    return log_probs


@torch.no_grad()
def score_values(
    args: Namespace, critic: torch.nn.Module, batch: Mapping[str, Sequence[Any]], *, micro_batch_size: int
) -> list[torch.Tensor]:
    """The critic's value at each response's tokens, float32 ``[R_i]``."""
    values: list[torch.Tensor] = []
    for columns in micro_batches(sequence_columns(batch), micro_batch_size):
        values += [one.cpu() for one in get_values(args, output_of(args, critic, columns), **columns)]
    return values
