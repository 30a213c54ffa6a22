"""How many outputs went to exact arithmetic, over all calls: those of training, of filters and of metrics alike."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True)
class Tally:
    """Counts of outputs since the start of the process; ``fallback`` of them needed exact arithmetic."""

    outputs: int = 0
    fallback: int = 0

    @property
    def fallback_rate(self) -> float:
        return self.fallback / self.outputs if self.outputs else 0.0


_lock = threading.Lock()
_tallies: dict[str, Tally] = {}


def count(statistic: str, outputs: int, fallback: int) -> None:
    """Add one call's counts to those of ``statistic``."""
    with _lock:
        so_far = _tallies.get(statistic, Tally())
        _tallies[statistic] = Tally(so_far.outputs + outputs, so_far.fallback + fallback)


def counters() -> dict[str, Tally]:
    """The counts by statistic (``groups``, ``batch``) so far."""
    with _lock:
        return dict(_tallies)
