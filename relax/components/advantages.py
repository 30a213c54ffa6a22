"""The fully asynchronous advantage path: the columns that a batch of whole responses gains, and the role that asks."""

from __future__ import annotations

import copy
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import torch

from relax.algorithms.advantages import compute_advantages_and_returns
from relax.algorithms.formulas.kl import kl_of_batch
from relax.algorithms.spec import get_algorithm
from relax.core.clock import Clock
from relax.core.rows import batch_keys, needs_reference, rollouts_of, slice_keys
from relax.core.trace import keep, tracing
from relax.transport.queue import Queue


def advantages_of_batch(args: Namespace, batch: Mapping[str, Any]) -> dict[str, list[torch.Tensor]]:
    """The columns ``kl``, ``advantages`` and ``returns`` of ``batch``, ``[R_i]`` a response, with the bits of the
    colocated path before it normalises tokens; no column where ``batch`` has neither ``log_probs``,
    ``rollout_log_probs`` nor ``values``.

    Reads ``rewards`` (floats), ``response_lengths``, ``loss_masks`` and ``ref_log_probs`` beside them; all but the
    rewards may be absent. ``keys`` may name the rows, for a trace. Responses are whole, however the actor's ranks cut
    them, and padded lengths mean nothing here. Tokens are not normalised: their mean would be that of a part of the
    batch. Where rewards are whitened, the batch must be one whole optimizer batch.
    """
    kl = kl_of_batch(args, batch)
    if kl is None:
        return {}
    whole = copy.copy(args)
    whole.context_parallel_size = 1
    given = {
        "rewards": batch["rewards"],
        "kl": kl,
        "loss_masks": batch.get("loss_masks"),
        "response_lengths": batch.get("response_lengths"),
        "values": batch.get("values"),
        "mini_batch_sizes": [len(kl)],
    }
    advantages, returns = compute_advantages_and_returns(whole, **given)
    results = {"advantages": advantages, "returns": returns}
    keep("advantage.estimate", whole, given, results, rows=batch.get("keys"))
    return {"kl": kl, "advantages": advantages, "returns": returns}


class Advantages:
    """The role: gathers one whole optimizer batch, slice by slice, then writes its advantages.

    A statistic over a batch has one value whatever the order of the slices was, since they are put into the batch's own
    order before anything is computed, and nothing is computed before all of them are there.
    """

    def __init__(self, args: Namespace, queue: Queue) -> None:
        self.args, self.queue = args, queue
        self._columns = _columns(args)
        self._batch: int | None = None  # the number of the batch that is gathered, or was last
        self._slices: dict[int, dict[str, list[Any]]] = {}  # its columns so far, by the number of the slice
        self._whitened = 0
        self._clock = Clock()

    def add(self, batch: int, slice: int) -> dict[str, Any]:
        """Adds a slice of an optimizer batch, whole responses; where it is the last, writes for all rows of the batch
        the columns ``kl``, ``advantages`` and ``returns``, float32 ``[R_i]``.

        Gives ``whitened``, how many rows have got theirs so far, and ``seconds``. Raises ValueError, and takes nothing,
        where the slice was added before, or is of another batch than the one that is gathered.
        """
        self._require_next(batch, slice)
        with self._clock("transport"):
            columns = self.queue.get(slice_keys(self.args, batch, slice), self._columns)
        if batch != self._batch:
            self._batch, self._slices = batch, {}
        self._slices[slice] = columns
        if self._is_whole():
            self._write(batch)
        return {"whitened": self._whitened, "seconds": self._clock.take()}

    def _is_whole(self) -> bool:
        return len(self._slices) == self.args.num_iters_per_train_update

    def _require_next(self, batch: int, slice: int) -> None:
        if self._batch is None:
            return
        if batch < self._batch or (batch == self._batch and slice in self._slices):
            raise ValueError(f"slice {slice} of batch {batch} was given to the advantages before: each goes in once")
        if batch != self._batch and not self._is_whole():
            raise ValueError(
                f"slice {slice} is of batch {batch}, and the advantages have {len(self._slices)} of the "
                f"{self.args.num_iters_per_train_update} slices of batch {self._batch}: a batch is whole before the "
                "next one begins"
            )

    def _write(self, batch: int) -> None:
        slices = range(self.args.num_iters_per_train_update)
        keys = batch_keys(self.args, batch)
        columns = {name: [value for slice in slices for value in self._slices[slice][name]] for name in self._columns}
        with self._clock("advantages"), tracing(self.args, rollouts_of(self.args, batch), "advantages"):
            written = advantages_of_batch(self.args, {**columns, "keys": keys})
        with self._clock("transport"):
            self.queue.put(keys, written)
        self._whitened += len(keys)


def _columns(args: Namespace) -> list[str]:
    """What the roles before this one put into the rows."""
    names = ["rewards", "response_lengths", "loss_masks", "rollout_log_probs"]
    if not args.true_on_policy_mode:
        names.append("log_probs")
    if needs_reference(args):
        names.append("ref_log_probs")
    if get_algorithm(args.advantage_estimator).needs_critic:
        names.append("values")
    return names
