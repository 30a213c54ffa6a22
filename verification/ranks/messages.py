"""What a pool and its ranks tell each other: where to stand, what to do, how it went."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verification.ranks.faults import Fault
from verification.ranks.layout import Layout
from verification.ranks.results import RankResult

PRELOAD = "verification.ranks.preload"  # what the fork server imports once, for all ranks
STACK_SIGNAL = signal.SIGUSR1  # a rank answers it with its stacks, whatever it is doing
Group = tuple[int, ...]


@dataclass(frozen=True)
class Post:
    """Where a process stands: its rank in a world, and the folder that the ranks of the world share with the pool."""

    rank: int
    layout: Layout
    megatron: bool
    backend: str
    folder: Path

    @property
    def trace(self) -> Path:
        """The file in which it writes down its collectives."""
        return self.folder / f"trace-{self.rank}"

    @property
    def stack(self) -> Path:
        """The file for its stacks."""
        return self.folder / f"stack-{self.rank}"


@dataclass(frozen=True)
class Task:
    """A function ``module:name``, this rank's argument, its fault if it has one, and the time-out of collectives."""

    function: str
    argument: Any
    fault: Fault | None
    timeout: float


@dataclass(frozen=True)
class Answer:
    """A rank's result, and what the pool must know to decide whether the world is fit for another task.

    ``by_group`` counts the collectives that the rank entered with each group; ``broken`` says that its groups may not
    be used again.
    """

    result: RankResult
    by_group: Mapping[Group, int] = field(default_factory=dict)
    broken: bool = False
