"""The first columns of a row: put once, and counted by what the queue holds then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relax.core.counts import Counted
from relax.transport.queue import Queue, TransportError


def enqueue(queue: Queue, keys: Sequence[str], columns: Mapping[str, Sequence[Any]]) -> Counted:
    """Puts new rows, one entry of each column a key, and counts those that the queue holds afterwards.

    Raises `TransportError` naming a row that is there before: it would be trained on twice, or not as it was sampled.
    """
    there = sorted(set(queue.keys()) & set(keys))
    if there:
        raise TransportError(f"row {there[0]!r} is in the queue already: a sample is put once, and was put twice")
    queue.put(keys, columns)
    return Counted.of(set(queue.keys()) & set(keys))
