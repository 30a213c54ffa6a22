"""What a run says of itself at its end: evaluations, where the time went, and the counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Summary:
    """The numbers of a whole run."""

    evaluations: Mapping[str, Mapping[str, float]]
    """Mean rewards by ``start`` and ``end``."""
    seconds: Mapping[str, Mapping[str, float]]
    """By role and by what it did, summed over the role's processes."""
    elapsed: float
    """Seconds from the first unit to the last."""
    counts: Mapping[str, int]
    """Samples by what was done with them: all are the same number."""

    fingerprints: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """By rollout: of its ``tokens`` and ``advantages``. Two runs with the same bits have the same ones."""

    @property
    def nothing_lost(self) -> bool:
        """Whether every sample that was generated was enqueued and trained on, once."""
        return len(set(self.counts.values())) <= 1

    def text(self) -> str:
        """As lines for the terminal."""
        return "".join(f"{line}\n" for line in (*self._evaluated(), *self._spent(), self._counted()))

    def _evaluated(self) -> list[str]:
        start, end = (self.evaluations.get(when, {}) for when in ("start", "end"))
        lines = [
            f"  {name:<24}{start[name]:>10.4f}{end[name]:>10.4f}{end[name] - start[name]:>+10.4f}"
            for name in start
            if name in end
        ]
        return [f"{'evaluation':<26}{'start':>10}{'end':>10}{'change':>10}", *lines] if lines else []

    def _spent(self) -> list[str]:
        lines = [f"{'where the time went':<26}{'seconds':>10}{'of the run':>12}"]
        for role, spent in self.seconds.items():
            for name, seconds in sorted(spent.items(), key=lambda item: -item[1]):
                lines.append(f"  {role + ': ' + name:<24}{seconds:>10.2f}{seconds / self.elapsed:>12.1%}")
        return [*lines, f"  {'the run':<24}{self.elapsed:>10.2f}"]

    def _counted(self) -> str:
        return (" == " if self.nothing_lost else " != ").join(f"{name} {count}" for name, count in self.counts.items())
