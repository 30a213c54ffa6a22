"""Log-probability of each token and entropy of its distribution, over a vocabulary that may be spread over ranks."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from relax.algorithms.collective import Collective, LocalCollective
from relax.algorithms.formulas.responses import require_same_count

_VANISHED = -1000.0  # exp of it is 0 in float32 and float64, and 0 times it is 0, which 0 times -inf is not


def vocab_parallel_log_probs(
    logits: torch.Tensor, tokens: torch.Tensor, collective: Collective
) -> tuple[torch.Tensor, torch.Tensor]:
    """``(log_probs, entropy)``, each ``[T]`` float32 (float64 of float64 logits), differentiable in ``logits``.

    ``logits`` ``[T, V_local]`` are this rank's part of the vocabulary: rank r of ``collective`` holds the entries from
    ``r * V_local`` on, every rank equally many. ``tokens`` ``[T]`` are ids of the whole vocabulary, the same on every
    rank, and so are the results. Half precision is widened first. With x less the row's maximum, s = sum(exp(x)):
    log p = x[token] - log(s), entropy = log(s) - sum(exp(x) x) / s. An entry of -inf has probability 0 and adds nothing
    to the entropy; a row of nothing else, or with NaN or +inf, gives NaN.

    Two collectives, a maximum of T numbers and a sum of 3 T; none in the backward pass. For that the logits are
    kept as they were given, with five numbers a token; the softmax is computed again. So no other buffer of
    ``[T, V_local]`` lives between the passes; each of them works in two, in float32. Raises ValueError, on every rank
    alike, for other shapes, tokens that are no integers and an id outside the vocabulary.
    """
    _require_ids(logits, tokens, collective.size)
    return _LogProbsAndEntropy.apply(logits, tokens, collective)


def log_probs_and_entropy(
    args: Namespace, *, logits: Sequence[torch.Tensor], tokens: Sequence[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """``(log_probs, entropy)`` of each response, ``[R_i]`` each, from its logits ``[R_i, V]`` and tokens ``[R_i]``.

    Row j are the logits that token j was drawn from. See `vocab_parallel_log_probs`, whose errors name the response.
    No option of ``args`` is read yet.
    """
    require_same_count(logits=logits, tokens=tokens)
    log_probs, entropy = [], []
    for position, (rows, ids) in enumerate(zip(logits, tokens, strict=True)):
        try:
            found = vocab_parallel_log_probs(rows, ids, LocalCollective())
        except ValueError as error:
            raise ValueError(f"response {position}: {error}") from None
        log_probs.append(found[0])
        entropy.append(found[1])
    return log_probs, entropy


def _require_ids(logits: torch.Tensor, tokens: torch.Tensor, ranks: int) -> None:
    if logits.dim() != 2 or tokens.shape != logits.shape[:1] or not logits.shape[1]:
        raise ValueError(
            f"logits have shape {tuple(logits.shape)} and tokens {tuple(tokens.shape)}: each token needs the row of "
            "logits that it was drawn from, one number a vocabulary entry"
        )
    if not logits.is_floating_point() or tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise ValueError(f"logits are {logits.dtype} and tokens {tokens.dtype}: logits are floats, token ids integers")
    size = logits.shape[1] * ranks
    outside = (tokens < 0) | (tokens >= size)
    if outside.any():
        position = int(outside.nonzero()[0])
        raise ValueError(
            f"token {int(tokens[position])} at position {position} is no entry of the vocabulary of {size}, padding "
            "included: compare the tokenizer with the model's output layer"
        )


class _LogProbsAndEntropy(torch.autograd.Function):
    """The formula and its gradient: of log p, 1[v = token] - p_v; of the entropy H, -p_v (log p_v + H)."""

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, tokens: torch.Tensor, collective: Collective
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ids = tokens.long()[:, None] - collective.rank * logits.shape[1]  # [T, 1], as is every number of a token here
        held = (ids >= 0) & (ids < logits.shape[1])
        ids = torch.where(held, ids, 0)
        shifted = _widened(logits)  # [T, V_local]
        largest = collective.max(shifted.amax(dim=1, keepdim=True))
        target = shifted.sub_(largest).gather(1, ids).where(held, 0)
        powers = shifted.exp()
        total = powers.sum(dim=1, keepdim=True)
        products = shifted.clamp_(min=_VANISHED).mul_(powers).sum(dim=1, keepdim=True)
        total, target, products = collective.sum(torch.stack([total, target, products]))
        log_total = total.log()
        entropy = log_total - products / total
        ctx.save_for_backward(logits, ids, held, largest, log_total, entropy)
        return (target - log_total).squeeze(1), entropy.squeeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_log_probs: torch.Tensor, of_entropy: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        logits, ids, held, largest, log_total, entropy = ctx.saved_tensors
        of_log_probs, of_entropy = of_log_probs[:, None], of_entropy[:, None]
        log_p = _widened(logits).sub_(largest).sub_(log_total).clamp_(min=_VANISHED)  # [T, V_local]
        p = log_p.exp()
        gradient = log_p.add_(entropy).mul_(of_entropy).add_(of_log_probs).mul_(p)
        gradient.neg_().add_(0)  # every zero is +0, the token's among them
        gradient.scatter_(1, ids, gradient.gather(1, ids) + of_log_probs.where(held, 0))
        return gradient.to(logits.dtype), None, None


def _widened(logits: torch.Tensor) -> torch.Tensor:
    """A copy in float32 or wider, to be overwritten; contiguous, since the order of a sum may depend on the layout."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    return logits.detach().to(wide, copy=True, memory_format=torch.contiguous_format)
