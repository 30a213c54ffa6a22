"""The role that runs the policy forward and trains nothing: old log-probs, and those of the reference."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import torch

from relax.backends.megatron.build import build_policy
from relax.backends.megatron.scoring import score_log_probs
from relax.backends.megatron.weights import load_weights
from relax.core.clock import Clock
from relax.core.rows import slice_keys
from relax.rollout.columns import SEQUENCE_COLUMNS
from relax.rollout.post_process import load_function
from relax.transport.queue import Queue


class ActorFwd:
    """Writes ``column`` into rows: ``log_probs``, or ``ref_log_probs`` of the policy before its first step."""

    def __init__(self, args: Namespace, queue: Queue, *, column: str = "log_probs") -> None:
        self.args, self.queue, self.column = args, queue, column
        self.model = build_policy(args, load_function(args.task_path)(args))
        self._clock = Clock()

    def forward(self, batch: int, slice: int, weights: Mapping[str, torch.Tensor] | None = None) -> dict[str, Any]:
        """Adds the column to the rows of a slice of an optimizer batch; with ``weights``, or those of the call
        before.
        """
        keys = slice_keys(self.args, batch, slice)
        if weights is not None:
            with self._clock("transport"):
                load_weights(self.model, weights)
        with self._clock("transport"):
            columns = self.queue.get(keys, SEQUENCE_COLUMNS)
        with self._clock(self.column):
            size = self.args.micro_batch_size
            log_probs = score_log_probs(self.args, self.model, columns, micro_batch_size=size)
        with self._clock("transport"):
            self.queue.put(keys, {self.column: log_probs})
        return {"seconds": self._clock.take()}
