"""How long a role spends on what."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Seconds by name; names may repeat. Time in a block inside another one's counts for the inner one alone."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._inside = 0.0  # seconds of the blocks that are over, inside the one that is open

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Adds the time of the block to ``name``."""
        before, self._inside = self._inside, 0.0
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self._seconds[name] = self._seconds.get(name, 0.0) + spent - self._inside
            self._inside = before + spent

    def take(self) -> dict[str, float]:
        """The seconds since the last call, by name."""
        taken, self._seconds = self._seconds, {}
        return taken
