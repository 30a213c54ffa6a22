"""What the driver's own clock says of a run: its warm-up, its steps, and what it does beside them."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from relax.core.registry import SFT_LOSS_TYPE
from relax.core.units import Unit
from relax.progress.times import Times

EVALUATING = frozenset({"evaluate"})
SAVING = frozenset({"save", "open_checkpoint", "commit_checkpoint"})


class StepTimer:
    """Told of every unit that is done, and of every row of numbers, which ends a step.

    Where one role works at a time, the time of a unit is that since the unit before it was done. Evaluations are no
    part of a step: nothing else is done meanwhile. Nor are checkpoints, where nothing is done beside them.
    """

    def __init__(self, args: Namespace) -> None:
        self._supervised = args.loss_type == SFT_LOSS_TYPE
        self._in_turn = not (args.hybrid or args.fully_async or self._supervised)
        self._beside_steps = EVALUATING | SAVING if self._in_turn else EVALUATING
        self._began = self._row = self._unit = time.perf_counter()
        self._aside = self._warm_up = self._steps = 0.0
        self._since_row = 0.0  # of what is beside the steps
        self._spent: dict[str, dict[str, float]] = {}

    def begin(self) -> None:
        """The time of the run counts from now."""
        self._began = self._row = self._unit = time.perf_counter()

    def take(self, unit: Unit, results: Sequence[Any]) -> None:
        """A unit is done; ``results`` are what its processes gave, with ``seconds`` by name where they counted them."""
        now = time.perf_counter()
        passed, self._unit = now - self._unit, now
        if unit.call in self._beside_steps:
            self._aside += passed
            self._since_row += passed
            return
        spent = self._spent.setdefault(unit.role, {})
        for facts in results:
            of_process: Mapping[str, float] = facts.get("seconds", {}) if isinstance(facts, Mapping) else {}
            for name, seconds in of_process.items():
                spent[name] = spent.get(name, 0.0) + seconds / len(results)

    def row(self) -> float:
        """The seconds of the step, or of the steps, that end now."""
        now = time.perf_counter()
        passed, self._row = now - self._row - self._since_row, now
        self._since_row = 0.0
        self._steps += passed
        return passed

    def supervised_row(self) -> None:
        """Supervised steps end now: those of the run, or of the warm-up before its steps, which are counted anew."""
        passed = self.row()
        if not self._supervised:
            self._warm_up += passed
            self._steps, self._spent = 0.0, {}

    def times(self) -> Times:
        """The times so far."""
        return Times(
            elapsed=time.perf_counter() - self._began,
            warm_up=self._warm_up,
            aside=self._aside,
            steps=self._steps,
            spent=self._spent,
            in_turn=self._in_turn,
        )
