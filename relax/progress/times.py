"""Where the time of a run went: the run as a whole, and the parts of its steps, in shares that add up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

PARTS = {
    "demonstrations": ("demonstrations",),
    "sampling": ("sample",),
    "rewards": ("rewards",),
    "transport": ("transport", "drop"),
    "log-probs, values": ("log_probs", "ref_log_probs", "values"),
    "advantages": ("advantages",),
    "loss, gradients": ("loss",),
    "optimizer": ("optimizer",),
}
"""The parts of a step, and what the roles' clocks call them."""

OTHER = "other, waiting"
"""What is no part: calls between processes, ranks that wait for one another, and roles that wait for their turn."""


@dataclass(frozen=True)
class Times:
    """Seconds. The steps are what the run repeats: rollouts with their optimizer steps, or supervised steps."""

    elapsed: float = 0.0
    """From the first unit to the last."""
    warm_up: float = 0.0
    aside: float = 0.0
    """Evaluations, and checkpoints where roles work in turn: else they are written beside the steps."""
    steps: float = 0.0
    spent: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """In the steps: by role and by what its clock calls it, the mean of the role's processes."""
    in_turn: bool = True
    """Whether one role works at a time, so that the parts of all roles add up to the steps."""

    def parts(self) -> dict[str, dict[str, float]]:
        """The steps by part, `OTHER` last: those of all roles together under an empty name where they work in turn,
        else those of each role. Each adds up to ``steps``.
        """
        groups = {"": list(self.spent.values())} if self.in_turn else {role: [own] for role, own in self.spent.items()}
        return {role: self._whole(clocks) for role, clocks in groups.items()}

    def _whole(self, clocks: list[Mapping[str, float]]) -> dict[str, float]:
        sums = {part: sum(one.get(name, 0.0) for one in clocks for name in names) for part, names in PARTS.items()}
        found = {part: seconds for part, seconds in sums.items() if seconds}
        return {**found, OTHER: self.steps - sum(found.values())}

    def of_the_run(self) -> Iterator[tuple[str, float]]:
        """The run by what was done, and the run."""
        aside = "evaluations, checkpoints" if self.in_turn else "evaluations"
        whole = {"warm-up": self.warm_up, aside: self.aside, "steps": self.steps}
        yield from ((name, seconds) for name, seconds in whole.items() if seconds)
        yield "the run", self.elapsed

    def of_the_steps(self) -> Iterator[tuple[str, float]]:
        """The steps by part, and the steps; each role's own where they work at the same time."""
        for role, parts in self.parts().items():
            yield from ((f"{role}: {part}" if role else part, seconds) for part, seconds in parts.items())
        yield "the steps", self.steps
