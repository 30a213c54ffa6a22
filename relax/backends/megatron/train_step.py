"""One optimizer step: gradients of micro-batches, added up over the data-parallel ranks in one order, then applied."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from relax.algorithms.collective import Collective
from relax.backends.megatron.forward import output_of
from relax.backends.megatron.optimizer import Optimizer
from relax.backends.megatron.parallel import failing_together, parallel
from relax.core.clock import Clock

LossFunction = Callable[[Namespace, Mapping[str, Any], torch.Tensor], tuple[torch.Tensor, dict[str, torch.Tensor]]]
"""Of options, columns and the model's output: a loss summed over samples (or tokens), and metrics summed alike."""


SAMPLES, TOKENS = "samples", "tokens"  # of the sums over ranks, beside the metrics


class NonFiniteGradient(RuntimeError):
    """A gradient is infinite or NaN; the weights are those from before the step."""


@dataclass(frozen=True)
class Update:
    """What one optimizer step did; but for ``rows`` the same on every rank."""

    metrics: dict[str, float]
    """Means over the optimizer batch: of its samples, or of its tokens with ``calculate_per_token_loss``."""
    grad_norm: float
    """Before clipping."""
    learning_rate: float
    rows: tuple[str, ...] = ()
    """The keys of this rank's samples whose loss was computed, where the batch names them."""


def train_step(
    args: Namespace,
    model: torch.nn.Module,
    optimizer: Optimizer,
    batch: Mapping[str, Sequence[Any]],
    loss_function: LossFunction,
    *,
    micro_batch_size: int,
    clock: Clock | None = None,
) -> Update:
    """Trains on this rank's samples of one optimizer batch.

    ``batch`` holds columns of one entry a sample: ``tokens``, ``total_lengths``, ``response_lengths``, ``loss_masks``,
    what ``loss_function`` reads, and ``keys`` where the rows are to be told. The loss is the mean over all ranks'
    samples, or over their unmasked tokens. Micro-batches of ``micro_batch_size`` samples bound the memory; their
    gradients, and then those of the ranks, are added in order. Raises, on every rank alike and with all weights
    unchanged, `NonFiniteGradient` naming the parameter, ValueError for a rank without a sample, and whatever else went
    wrong on any rank. ``clock`` counts the seconds of ``loss``, its gradients included, of the ``ranks`` waiting for
    one another, and of the ``optimizer``.
    """
    ranks, clock = parallel(), clock or Clock()
    with failing_together(ranks.stage), clock("loss"):
        gradient, sums, rows = _of_this_rank(args, model, optimizer, batch, loss_function, micro_batch_size)
    with clock("ranks"):
        added = in_rank_order(ranks.data, torch.stack(list(sums.values()))).tolist()
        gradient = in_rank_order(ranks.data, gradient)
    totals = dict(zip(sums, added, strict=True))
    samples, tokens = int(totals.pop(SAMPLES)), int(totals.pop(TOKENS))
    divisor = tokens if args.calculate_per_token_loss else samples
    if not divisor:
        raise ValueError("an optimizer batch has no unmasked token on any rank: there is nothing to learn from")
    metrics = {name: total / divisor for name, total in totals.items()}
    gradient = gradient / divisor  # [P]
    norm = math.sqrt(gradient.double().square().sum().item())
    if not math.isfinite(norm):
        _refuse(optimizer, gradient, metrics)
    rate = optimizer.learning_rate
    with clock("optimizer"):
        optimizer.step(gradient, norm)
    return Update(metrics, norm, rate, tuple(rows))


def in_rank_order(ranks: Collective, tensor: torch.Tensor) -> torch.Tensor:
    """The sum over ranks, added from rank 0 on: the same bits on every rank and in every run."""
    rows = ranks.gather(tensor)
    total = rows[0]
    for row in rows[1:]:
        total = total + row
    return total


def micro_batches(batch: Mapping[str, Sequence[Any]], size: int) -> Iterator[dict[str, Sequence[Any]]]:
    """The columns of ``batch`` in slices of ``size`` samples, the last one shorter."""
    for start in range(0, len(batch["tokens"]), size):
        yield {name: column[start : start + size] for name, column in batch.items()}


def _of_this_rank(
    args: Namespace,
    model: torch.nn.Module,
    optimizer: Optimizer,
    batch: Mapping[str, Sequence[Any]],
    loss_function: LossFunction,
    micro_batch_size: int,
) -> tuple[torch.Tensor, dict[str, torch.Tensor], list[str]]:
    """The gradient ``[P]``, metrics and counts in float64, each summed over this rank's samples, and their keys."""
    if not batch["tokens"]:
        raise ValueError("this rank has no sample of the optimizer batch: give each data-parallel rank one or more")
    parameters = list(optimizer.parameters.values())
    gradient = torch.zeros(sum(one.numel() for one in parameters), device=parameters[0].device)
    counts = {SAMPLES: len(batch["tokens"]), TOKENS: sum(float(mask.sum()) for mask in batch["loss_masks"])}
    sums = {name: torch.tensor(count, dtype=torch.float64) for name, count in counts.items()}
    rows: list[str] = []
    for columns in micro_batches(batch, micro_batch_size):
        there = {name: _moved(column, gradient.device) for name, column in columns.items()}
        loss, metrics = loss_function(args, there, output_of(args, model, there))
        gradient += torch.cat([part.flatten() for part in torch.autograd.grad(loss, parameters)])
        for name, value in metrics.items():
            sums[name] = value.cpu().double() + sums.get(name, 0.0)
        rows += columns.get("keys", ())
    return gradient, sums, rows


def _moved(column: Sequence[Any], device: torch.device) -> list[Any]:
    """The column with its tensors on ``device``, where the model is."""
    return [entry.to(device) if isinstance(entry, torch.Tensor) else entry for entry in column]


def _refuse(optimizer: Optimizer, gradient: torch.Tensor, metrics: Mapping[str, float]) -> None:
    parts = zip(optimizer.parameters, optimizer.split(gradient), strict=True)
    name = next(name for name, part in parts if not bool(part.isfinite().all()))
    raise NonFiniteGradient(
        f"optimizer step {optimizer.steps}: the gradient of {name} is not finite (loss {metrics.get('loss')}); "
        "the weights are those from before the step: lower the learning rate, or look at the batch's rewards"
    )
