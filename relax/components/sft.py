"""The SFT role: puts the task's demonstrations into the queue, for the actor to learn from."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from relax.core.clock import Clock
from relax.core.counts import Counted
from relax.rollout.collect import demonstrations
from relax.rollout.columns import sequence_columns
from relax.rollout.post_process import load_function
from relax.transport.queue import Queue


class SFT:
    """Needs no model and keeps no place: a demonstration follows from its number."""

    def __init__(self, args: Namespace, queue: Queue) -> None:
        self.queue = queue
        self.task = load_function(args.task_path)(args)
        self._clock = Clock()

    def demonstrate(self, keys: Sequence[str], first: int) -> dict[str, Any]:
        """Puts the demonstrations of the problems from ``first`` on, one a key."""
        with self._clock("demonstrations"):
            columns = sequence_columns(demonstrations(self.task, range(first, first + len(keys))))
        with self._clock("transport"):
            self.queue.put(keys, columns)
        return {"enqueued": Counted.of(set(self.queue.keys()) & set(keys)), "seconds": self._clock.take()}
