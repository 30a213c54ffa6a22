"""Faults on purpose: what goes wrong, on which rank, at which of its collectives."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

START, ENTRY, EXIT = "start", "entry", "exit"
# For each kind the moment at which it strikes, and how many collectives after `at` that is.
_MOMENTS = {
    "raise": (START, 0),
    "kill-before": (ENTRY, 0),
    "kill-between": (ENTRY, 1),
    "kill-after": (EXIT, 0),
    "delay": (ENTRY, 0),
    "skip": (ENTRY, 0),
    "hang": (ENTRY, 0),
}
KINDS = tuple(_MOMENTS)


class InjectedFault(RuntimeError):
    """The exception that a rank meets before the call."""


class Skipped(BaseException):
    """Takes a rank out of the function under test, past handlers of Exception."""


@dataclass(frozen=True)
class Fault:
    """One fault of rank ``rank``. Collectives are counted from 1, point-to-point calls included.

    | kind | what happens |
    |---|---|
    | raise | an `InjectedFault` before the function runs; ``at`` does not matter |
    | kill-before | SIGKILL where the rank would enter collective ``at`` |
    | kill-between | SIGKILL where the rank would enter the collective after ``at`` |
    | kill-after | SIGKILL once collective ``at`` has returned |
    | delay | sleeps ``seconds`` where the rank would enter collective ``at``, then goes on |
    | skip | leaves the function where the rank would enter collective ``at`` |
    | hang | sleeps from there until it is killed |
    """

    kind: str
    rank: int
    at: int = 1
    seconds: float = 0.2

    def __post_init__(self) -> None:
        if self.kind not in _MOMENTS:
            raise ValueError(f"{self.kind!r} is no kind of fault: use one of {', '.join(KINDS)}")
        if self.at < 1:
            raise ValueError(f"fault {self.kind} at collective {self.at}: collectives are counted from 1")

    def due(self, moment: str, collective: int) -> bool:
        """Whether it strikes at ``moment`` of the collective with that number."""
        when, later = _MOMENTS[self.kind]
        return moment == when and (moment == START or collective == self.at + later)

    def strike(self) -> None:
        """Does the damage to this process; returns after a delay only."""
        match self.kind:
            case "raise":
                raise InjectedFault(f"rank {self.rank} failed before the call, on purpose")
            case "delay":
                time.sleep(self.seconds)
            case "skip":
                raise Skipped
            case "hang":
                while True:
                    time.sleep(3600)
            case _:
                os.kill(os.getpid(), signal.SIGKILL)
