"""Paired timing: both sides in turn, round by round, so that a machine that slows down slows both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Measure = Literal["times faster", "times the time", "ms more", "% of a step"]


@dataclass(frozen=True)
class Row:
    """One line of the table: what was timed, against what, and the figure that was promised.

    ``figure`` is the median over the rounds of reference / time ("times faster") or of time / reference ("times the
    time"); for the start of an interpreter, which much disturbs, the fastest time less the fastest reference ("ms
    more"); for what is a small part of something else, time less reference, in per cent of that ("% of a step").
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
    pairs = [(_seconds(reference, calls), _seconds(measured, calls)) for _ in range(rounds + 1)][1:]
    return row_of(name, reference_name, pairs, measure=measure, target=target)


def share(
    name: str,
    measured: Callable[[], object],
    reference_name: str,
    reference: Callable[[], object],
    step: Callable[[], object],
    *,
    target: float,
    rounds: int,
    calls: int = 5,
) -> Row:
    """What ``measured`` takes beyond ``reference``, in per cent of a ``step``: all three in turn, as in `compare`."""
    timed = [(_seconds(reference, calls), _seconds(measured, calls), _seconds(step, 1)) for _ in range(rounds + 1)][1:]
    whole = statistics.median(of_step for _, _, of_step in timed)
    return Row(
        name=name,
        reference=f"{reference_name}; a step of {1000 * whole:.0f} ms",
        measure="% of a step",
        figure=statistics.median(100 * (ours - theirs) / of_step for theirs, ours, of_step in timed),
        target=target,
        seconds=statistics.median(ours for _, ours, _ in timed),
        reference_seconds=statistics.median(theirs for theirs, _, _ in timed),
        rounds=rounds,
    )


def row_of(
    name: str, reference_name: str, pairs: Sequence[tuple[float, float]], *, measure: Measure, target: float
) -> Row:
    """The row of ``pairs``, ``(seconds of the reference, seconds of what is measured)``, one a round."""
    theirs, ours = [first for first, _ in pairs], [second for _, second in pairs]
    figure = 1000 * (min(ours) - min(theirs))
    if measure != "ms more":
        faster = statistics.median(a / b for a, b in pairs)
        figure = faster if measure == "times faster" else statistics.median(b / a for a, b in pairs)
    return Row(
        name=name,
        reference=reference_name,
        measure=measure,
        figure=figure,
        target=target,
        seconds=statistics.median(ours),
        reference_seconds=statistics.median(theirs),
        rounds=len(pairs),
    )


def _seconds(call: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls
