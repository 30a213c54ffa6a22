"""The SFT role: puts the task's demonstrations into the queue, for the actor to learn from."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from relax.core.clock import Clock
from relax.core.counts import Counted
from relax.core.rows import demonstration_keys
from relax.rollout.collect import demonstrations
from relax.rollout.columns import sequence_columns
from relax.rollout.post_process import load_function
from relax.transport.queue import Queue


class SFT:
    """Needs no model and keeps no place: a demonstration follows from its number."""

    def __init__(self, args: Namespace, queue: Queue) -> None:
        self.args, self.queue = args, queue
        self.task = load_function(args.task_path)(args)
        self._clock = Clock()

    def demonstrate(self, step: int) -> dict[str, Any]:
        """Puts the demonstrations of supervised step ``step``, whose problems follow those of the step before."""
        keys = demonstration_keys(self.args, step)
        problems = range(step * len(keys), (step + 1) * len(keys))
        with self._clock("demonstrations"):
            columns = sequence_columns(demonstrations(self.task, problems))
        with self._clock("transport"):
            self.queue.put(keys, columns)
        return {"enqueued": Counted.of(set(self.queue.keys()) & set(keys)), "seconds": self._clock.take()}
