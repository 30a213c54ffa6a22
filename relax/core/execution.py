"""Doing a schedule: each unit as soon as those before it are done, until all are, or until one fails."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, Protocol

from relax.core.units import Unit

LOOK = 0.5  # seconds after which the processes are looked at, where nothing else happens


class RunError(RuntimeError):
    """The run cannot go on; one line that names the role, its process and the unit of work.

    ``trace`` is the traceback from inside the role, where it raised.
    """

    def __init__(self, message: str, trace: str | None = None) -> None:
        super().__init__(message)
        self.trace = trace


class Crew(Protocol):
    """Who does the units. Each method raises `RunError` for what ends the run."""

    def start(self, unit: Unit) -> list[Future[Any]]:
        """Starts a unit and does not wait: one future for each process that does it."""

    def finish(self, unit: Unit, results: list[Any]) -> None:
        """Takes what came of it, in the order of the futures."""

    def fail(self, unit: Unit, process: int, error: BaseException) -> None:
        """Raises what ``error`` of the future number ``process`` means for the run."""

    def look(self, running: Sequence[Unit]) -> None:
        """Raises where a process of the run is no more."""


@dataclass(frozen=True)
class _Running:
    unit: Unit
    futures: list[Future[Any]]
    since: float


def execute(units: Sequence[Unit], crew: Crew, *, timeout: float) -> None:
    """Does all ``units``; a unit may take ``timeout`` seconds."""
    missing = {unit.key: len(unit.after) for unit in units}
    followers: dict[str, list[Unit]] = {unit.key: [] for unit in units}
    for unit in units:
        for before in unit.after:
            followers[before].append(unit)
    ready = [unit for unit in units if not unit.after]
    running: dict[str, _Running] = {}
    looked = time.monotonic()
    while ready or running:
        for unit in ready:
            running[unit.key] = _Running(unit, crew.start(unit), time.monotonic())
        ready = []
        wait(_unfinished(running.values()), LOOK, FIRST_COMPLETED)
        for one in [one for one in running.values() if _is_over(one, crew)]:
            del running[one.unit.key]
            crew.finish(one.unit, [future.result() for future in one.futures])
            for unit in followers[one.unit.key]:
                missing[unit.key] -= 1
                ready += [] if missing[unit.key] else [unit]
        if time.monotonic() - looked > LOOK:
            crew.look([one.unit for one in running.values()])
            _require_in_time(running.values(), timeout)
            looked = time.monotonic()


def _unfinished(running: Iterable[_Running]) -> list[Future[Any]]:
    return [future for one in running for future in one.futures if not future.done()]


def _is_over(running: _Running, crew: Crew) -> bool:
    """Whether all processes have done the unit; what failed on one is said without waiting for the others."""
    for process, future in enumerate(running.futures):
        error = future.exception() if future.done() else None
        if error is not None:
            crew.fail(running.unit, process, error)
    return all(future.done() for future in running.futures)


def _require_in_time(running: Iterable[_Running], timeout: float) -> None:
    for one in running:
        if time.monotonic() - one.since > timeout:
            raise RunError(
                f"{one.unit.role} has not done '{one.unit.key}' within {timeout:g} s, and its process lives: raise "
                "--call-timeout where a unit may take longer"
            )
