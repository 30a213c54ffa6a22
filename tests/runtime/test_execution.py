"""Doing a schedule: what can be done is done at once, in any order; what fails or never ends is said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import process_time, sleep
from typing import Any, NoReturn

import pytest

from relax.core.execution import RunError, execute
from relax.core.units import Unit


class Workers:
    """Threads that do ``work``, and a diary of what was started and finished."""

    def __init__(self, work: Callable[[Unit], Any]) -> None:
        self.work, self.diary, self.looks = work, [], 0
        self._pool = ThreadPoolExecutor(8)

    def start(self, unit: Unit) -> list[Future[Any]]:
        """Twice over for a unit that is done everywhere."""
        self.diary.append(("start", unit.key))
        return [self._pool.submit(self.work, unit) for _ in range(2 if unit.everywhere else 1)]

    def finish(self, unit: Unit, results: list[Any]) -> None:
        """Notes the results."""
        self.diary.append(("finish", unit.key, *results))

    def fail(self, unit: Unit, process: int, error: BaseException) -> NoReturn:
        """Says which of the processes failed."""
        raise RunError(f"{unit.key}, process {process}: {error}")

    def look(self, running: Sequence[Unit]) -> None:
        """Counts, and ends the run where there is something to see."""
        self.looks += 1
        if any(unit.call == "die" for unit in running):
            raise RunError("a process died")


def unit(key: str, *after: str, call: str = "work", everywhere: bool = False) -> Unit:
    """A unit of a role of its own."""
    return Unit(key, key, call, after=after, everywhere=everywhere)


def test_order() -> None:
    """A unit starts when all before it are finished, and what does not wait for it runs meanwhile."""
    units = [unit("a"), unit("b"), unit("c", "a"), unit("d", "b", "c"), unit("e", "a")]
    slow = {"a": 0.05, "b": 0.3}
    workers = Workers(lambda one: sleep(slow.get(one.key, 0.0)))
    execute(units, workers, timeout=10.0)
    place = {entry[:2]: position for position, entry in enumerate(workers.diary)}
    assert len(place) == 10
    for one in units:
        assert all(place["finish", before] < place["start", one.key] for before in one.after)
    assert place["start", "b"] < place["finish", "a"] < place["start", "e"] < place["finish", "b"]


def test_everywhere() -> None:
    """The results of all processes come together, in their order."""
    workers = Workers(lambda one: one.key)
    execute([unit("all", everywhere=True)], workers, timeout=10.0)
    assert workers.diary == [("start", "all"), ("finish", "all", "all", "all")]


def test_failure() -> None:
    """What one process raises ends the run at once, though another is still at work, and nothing more is started."""
    numbers = iter([5.0, 0.0])

    def work(one: Unit) -> None:
        if (pause := next(numbers)) == 0.0:
            raise KeyError("gone")
        sleep(pause / 10)

    workers = Workers(work)
    with pytest.raises(RunError, match="a, process 1: 'gone'"):
        execute([unit("a", everywhere=True), unit("b", "a")], workers, timeout=10.0)
    assert workers.diary == [("start", "a")]


def test_no_haste() -> None:
    """While one of two processes is done and the other is not, the driver sleeps."""
    pauses = iter([0.0, 0.6])
    workers = Workers(lambda one: sleep(next(pauses)))
    before = process_time()
    execute([unit("a", everywhere=True)], workers, timeout=10.0)
    assert process_time() - before < 0.3  # reason: a wait that never waits takes all of the 0.6 s


def test_looks_while_waiting() -> None:
    """The processes are looked at while units run, and a death ends the run."""
    with pytest.raises(RunError, match="a process died"):
        execute([unit("a", call="die")], Workers(lambda one: sleep(2)), timeout=10.0)


def test_too_slow() -> None:
    """A unit that takes longer than it may is named, with the option to raise."""
    said = r"^a has not done 'a' within 0\.2 s, and its process lives: raise --call-timeout where"
    with pytest.raises(RunError, match=said):
        execute([unit("a")], Workers(lambda one: sleep(2)), timeout=0.2)
