"""What each rank of a world runs with its tensors on a device of its own: a GPU under NCCL, the CPU under gloo."""

from __future__ import annotations

import torch

from relax.algorithms.collective import collective_for
from relax.algorithms.exact import whiten_segments
from relax.algorithms.formulas.log_probs import vocab_parallel_log_probs
from relax.algorithms.formulas.token_normalization import token_global, whiten
from verification.ranks.step3 import Shard
from verification.ranks.worker import here

Placed = tuple[torch.Tensor, bool]  # a result on the CPU, and whether it came from the rank's own device


def whiten_batches(shard: Shard) -> Placed:
    """GDPO's step 3: this rank's whitened scores ``[n]``."""
    values = torch.tensor(shard.values, dtype=torch.float32, device=here().device)
    return _placed(whiten_segments(values, shard.sizes, collective=collective_for(here().group)))


def normalize_tokens(advantages: torch.Tensor) -> list[Placed]:
    """Both token normalisations of this rank's advantages ``[T]``, every token counted."""
    tokens, collective = advantages.to(here().device), collective_for(here().group)
    normalized = [normalize([tokens], [torch.ones_like(tokens)], collective) for normalize in (whiten, token_global)]
    return [_placed(result) for (result,) in normalized]


def shard_of_log_probs(argument: tuple[torch.Tensor, torch.Tensor]) -> list[Placed]:
    """Log-probs, entropy and the gradient of their sum, from this rank's part of the vocabulary ``[T, V_local]``."""
    logits, tokens = (tensor.to(here().device) for tensor in argument)
    log_probs, entropy = vocab_parallel_log_probs(logits.requires_grad_(), tokens, collective_for(here().group))
    (gradient,) = torch.autograd.grad((log_probs + entropy).sum(), logits)
    return [_placed(result) for result in (log_probs, entropy, gradient)]


def _placed(result: torch.Tensor) -> Placed:
    return result.detach().cpu(), result.device == here().device
