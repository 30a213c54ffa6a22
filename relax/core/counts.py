"""How many samples, and which: what is counted where something happens to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from relax.core.fingerprint import fingerprint, joined


@dataclass(frozen=True)
class Counted:
    """Samples that something was done with: equal for the same ones, in any order, each as often."""

    samples: int = 0
    rows: int = 0
    """The joined fingerprints of their row keys: one lost and another twice do not cancel."""

    @classmethod
    def of(cls, keys: Iterable[str]) -> Counted:
        """The samples of these rows."""
        listed = list(keys)
        return cls(len(listed), fingerprint(listed))

    @classmethod
    def all_of(cls, parts: Iterable[Counted]) -> Counted:
        """Those of all parts together."""
        listed = list(parts)
        return cls(sum(part.samples for part in listed), joined(part.rows for part in listed))


@dataclass
class Counts:
    """Samples of a run, counted where each thing happens."""

    generated: Counted = field(default_factory=Counted)
    """By the rollout role, as responses are sampled."""
    enqueued: Counted = field(default_factory=Counted)
    """By what the queue holds after they were put."""
    trained: Counted = field(default_factory=Counted)
    """By the actor's ranks, after each optimizer step."""
