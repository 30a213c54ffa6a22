"""The fully asynchronous advantage path: the columns that a batch of whole responses gains, and the role that asks."""

from __future__ import annotations

import copy
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from relax.algorithms.advantages import compute_advantages_and_returns
from relax.algorithms.formulas.kl import kl_of_batch
from relax.algorithms.spec import get_algorithm
from relax.core.clock import Clock
from relax.core.rows import batch_keys, needs_reference, rollouts_of, samples_of_rollout
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

    A statistic over a batch has one value whatever the slices and their order were, since rows are put into the
    batch's own order before anything is computed, and nothing is computed before all of them are there.
    """

    def __init__(self, args: Namespace, queue: Queue) -> None:
        self.args, self.queue = args, queue
        self._columns = _columns(args)
        self._batch: int | None = None  # the number of the batch that is gathered, or was last
        self._rows: dict[str, dict[str, Any]] = {}  # its rows so far, by key
        self._whitened = 0
        self._clock = Clock()

    def add(self, keys: Sequence[str]) -> dict[str, Any]:
        """Adds the rows ``keys``, whole responses; where they are the last of their batch, writes for all its rows
        the columns ``kl``, ``advantages`` and ``returns``, float32 ``[R_i]``.

        Gives ``whitened``, how many rows have got theirs so far, and ``seconds``. Raises ValueError, and takes none
        of them, where a row was added before or is of another batch than the one that is gathered.
        """
        batch = self._batch_for(keys)
        with self._clock("transport"):
            columns = self.queue.get(keys, self._columns)
        if batch != self._batch:
            self._batch, self._rows = batch, {}
        for position, key in enumerate(keys):
            self._rows[key] = {name: column[position] for name, column in columns.items()}
        if len(self._rows) == self.args.global_batch_size:
            self._write(batch)
        return {"whitened": self._whitened, "seconds": self._clock.take()}

    def _batch_for(self, keys: Sequence[str]) -> int:
        """The batch that all of ``keys`` are to be added to."""
        size, whole = self.args.global_batch_size, len(self._rows) in (0, self.args.global_batch_size)
        target = _batch_of(self.args, keys[0]) if whole else self._batch
        for place, key in enumerate(keys):
            own = _batch_of(self.args, key)
            if key in keys[:place] or (own == self._batch and key in self._rows) or own < (self._batch or 0):
                raise ValueError(
                    f"row {key!r} of batch {own} was given to the advantages before: each row goes in once"
                )
            if own != target:
                raise ValueError(
                    f"row {key!r} is of batch {own}, and the advantages have {0 if whole else len(self._rows)} of the "
                    f"{size} rows of batch {target}: a batch is whole before the next one begins"
                )
        assert target is not None
        return target

    def _write(self, batch: int) -> None:
        keys = batch_keys(self.args, batch)
        columns = {name: [self._rows[key][name] for key in keys] for name in self._columns}
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


def _batch_of(args: Namespace, key: str) -> int:
    """The optimizer batch of a row, by its key."""
    rollout, position = map(int, key.split("/"))
    return (rollout * samples_of_rollout(args) + position) // args.global_batch_size
