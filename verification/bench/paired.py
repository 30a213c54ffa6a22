"""Paired timing: both sides in turn, round by round, so that a machine that slows down slows both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Measure = Literal["times faster", "times the time", "ms more"]


@dataclass(frozen=True)
class Row:
    """One line of the table: what was timed, against what, and the figure that was promised.

    ``figure`` is the median over the rounds of reference / time ("times faster"), of time / reference ("times the
    time"), or of time - reference in milliseconds ("ms more").
    """

    name: str
    reference: str
    measure: Measure
    figure: float
    target: float
    seconds: float
    reference_seconds: float
    rounds: int

    @property
    def holds(self) -> bool:
        return self.figure >= self.target if self.measure == "times faster" else self.figure <= self.target


def compare(
    name: str,
    measured: Callable[[], object],
    reference_name: str,
    reference: Callable[[], object],
    *,
    measure: Measure,
    target: float,
    rounds: int = 7,
    calls: int = 1,
) -> Row:
    """Times ``reference`` and ``measured`` in turn for ``rounds`` rounds, after one that is not counted.

    ``calls``: how often each is called in a round, for calls of some milliseconds.
    """
    figures: dict[Measure, Callable[[float, float], float]] = {
        "times faster": lambda theirs, ours: theirs / ours,
        "times the time": lambda theirs, ours: ours / theirs,
        "ms more": lambda theirs, ours: 1000 * (ours - theirs),
    }
    pairs = [(_seconds(reference, calls), _seconds(measured, calls)) for _ in range(rounds + 1)][1:]
    return Row(
        name=name,
        reference=reference_name,
        measure=measure,
        figure=statistics.median(figures[measure](theirs, ours) for theirs, ours in pairs),
        target=target,
        seconds=statistics.median(ours for _, ours in pairs),
        reference_seconds=statistics.median(theirs for theirs, _ in pairs),
        rounds=rounds,
    )


def _seconds(call: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls
