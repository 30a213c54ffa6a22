"""What a run says of itself at its end: evaluations, where the time went, and the counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from relax.core.counts import Counted
from relax.progress.times import Times


@dataclass(frozen=True)
class Summary:
    """The numbers of a whole run."""

    evaluations: Mapping[str, Mapping[str, float]]
    """Mean rewards by ``start`` and ``end``."""
    times: Times
    expected: Counted
    """The samples of the run, by its options."""
    counted: Mapping[str, Counted]
    """Samples by what was done with them: all are the same, and those that are expected."""
    fingerprints: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """By rollout: of its ``tokens`` and ``advantages``. Two runs with the same bits have the same ones."""

    @property
    def nothing_lost(self) -> bool:
        """Whether every sample of the run was generated, enqueued and trained on, once."""
        return {self.expected} == set(self.counted.values())

    @property
    def counts(self) -> dict[str, int]:
        """How many samples, by what was done with them."""
        return {name: counted.samples for name, counted in self.counted.items()}

    def text(self) -> str:
        """As lines for the terminal."""
        return "".join(f"{line}\n" for line in (*self._evaluated(), *self._spent(), self._counted()))

    def _evaluated(self) -> list[str]:
        start, end = (self.evaluations.get(when, {}) for when in ("start", "end"))
        rows = [
            (name, f"{start[name]:.4f}", f"{end[name]:.4f}", f"{end[name] - start[name]:+.4f}")
            for name in start
            if name in end
        ]
        return _table(("evaluation", "start", "end", "change"), rows) if rows else []

    def _spent(self) -> list[str]:
        times = self.times
        of_run = [(name, f"{seconds:.2f}", _share(seconds, times.elapsed)) for name, seconds in times.of_the_run()]
        lines = _table(("where the time went", "seconds", "of the run"), of_run)
        if times.steps:
            head = "in the steps" if times.in_turn else "in the steps, of each role's own time: they overlap"
            of_steps = [(name, f"{spent:.2f}", _share(spent, times.steps)) for name, spent in times.of_the_steps()]
            lines += _table((head, "seconds", "of the steps"), of_steps)
        return lines

    def _counted(self) -> str:
        alike = len(set(self.counted.values())) <= 1
        line = (" == " if alike else " != ").join(f"{name} {n}" for name, n in self.counts.items())
        if self.nothing_lost:
            return line
        if {self.expected.samples} == set(self.counts.values()):
            return f"{line} (not the same samples)"
        return f"{line} (the run has {self.expected.samples})"


def _share(seconds: float, whole: float) -> str:
    return f"{seconds / whole:.1%}" if whole else ""


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Names to the left, a little further in than their heading, and numbers to the right."""
    cells = [head, *((f"  {row[0]}", *row[1:]) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join((row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:]))).rstrip() for row in cells]
