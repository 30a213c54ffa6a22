"""GDPO's step 3 on one rank of a world: the task of tests and bench, with the ways to spoil its arguments."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from relax.algorithms.collective import collective_for
from relax.algorithms.exact import whiten_segments
from relax.algorithms.exact.gdpo import EPSILON
from verification.ranks.worker import here


@dataclass(frozen=True)
class Shard:
    """What one rank holds: float32 scores, its count of each optimizer batch, and how its arguments are spoilt."""

    values: tuple[float, ...]
    sizes: tuple[int, ...]
    spoil: str | None = None


# What a rank passes in place of good arguments, and the words of its complaint.
SPOILT: dict[str, tuple[Callable[[torch.Tensor, list[int]], tuple[Any, Any]], str]] = {
    "nan": (lambda values, sizes: (_with_last(values, torch.nan), _one_more(sizes)), "is not finite"),
    "infinity": (lambda values, sizes: (_with_last(values, -torch.inf), _one_more(sizes)), "is not finite"),
    "no-plan": (lambda values, sizes: (values, None), "mini_batch_sizes is None"),
    "negative-size": (lambda values, sizes: (values, [*sizes[1:], -1]), "is not an int of 0 or more"),
    "one-number": (lambda values, sizes: (values, torch.tensor(len(values))), "is not an int of 0 or more"),
    "size-of-text": (lambda values, sizes: (values, [*sizes[1:], "2"]), "is not an int of 0 or more"),
    "wrong-sum": (lambda values, sizes: (values, _one_more(sizes)), "mini_batch_sizes sum to"),
    "one-segment-more": (lambda values, sizes: (values, [*sizes, 0]), "number of optimizer batches"),
    "float64": (lambda values, sizes: (values.double(), sizes), "are not float32"),
    "float16": (lambda values, sizes: (values.half(), sizes), "are not float32"),
    "a-list": (lambda values, sizes: (values.tolist(), sizes), "are not float32"),
    "two-dimensional": (lambda values, sizes: (values[:, None], sizes), "are not one-dimensional"),
}


def whiten_shard(shard: Shard) -> torch.Tensor:
    """This rank's whitened scores, float32 ``[n]``."""
    values: Any = torch.tensor(shard.values, dtype=torch.float32)
    sizes: Any = list(shard.sizes)
    if shard.spoil is not None:
        values, sizes = SPOILT[shard.spoil][0](values, sizes)
        here().fault_fired()
    return whiten_segments(values, sizes, collective=collective_for(here().group))


def whiten_by_all_reduce(values: torch.Tensor, sizes: Sequence[int], group: dist.ProcessGroup) -> torch.Tensor:
    """The straightforward way in float64: count, sum and squares of each segment, each summed over the ranks."""
    whitened = []
    for own in values.double().split(list(sizes)):
        count = torch.tensor([own.numel()], dtype=torch.float64)
        dist.all_reduce(count, group=group)
        total = own.sum().reshape(1)
        dist.all_reduce(total, group=group)
        centred = own - total / count
        squares = (centred * centred).sum().reshape(1)
        dist.all_reduce(squares, group=group)
        whitened.append(centred / ((squares / (count - 1)).sqrt() + EPSILON))
    return torch.cat(whitened).float()


def race(argument: tuple[Shard, int]) -> list[tuple[float, float]]:
    """``(by all-reduce, by two collectives)`` in seconds, round after round, every rank starting together."""
    shard, rounds = argument
    values, sizes, group = torch.tensor(shard.values, dtype=torch.float32), list(shard.sizes), here().group
    collective = collective_for(group)
    plain = whiten_by_all_reduce(values, sizes, group)
    exact = whiten_segments(values, sizes, collective=collective)
    torch.testing.assert_close(plain, exact, rtol=1e-5, atol=1e-6)  # the same statistic, whatever the last bits
    return [
        (
            _seconds(lambda: whiten_by_all_reduce(values, sizes, group), group),
            _seconds(lambda: whiten_segments(values, sizes, collective=collective), group),
        )
        for _ in range(rounds)
    ]


def _seconds(call: Callable[[], object], group: dist.ProcessGroup) -> float:
    dist.barrier(group=group)
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _with_last(values: torch.Tensor, last: float) -> torch.Tensor:
    return torch.cat([values, values.new_full((1,), last)])


def _one_more(sizes: list[int]) -> list[int]:
    return [*sizes[:-1], sizes[-1] + 1]
