"""What a run has counted, measured and found so far: numbers only, from what the roles gave back."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from relax.core.counts import Counted, Counts
from relax.core.fingerprint import joined
from relax.core.means import means
from relax.core.registry import ACTOR, CRITIC, SFT_LOSS_TYPE
from relax.core.rows import demonstration_keys, rollout_keys, steps_before
from relax.core.step_timer import StepTimer
from relax.core.units import Unit
from relax.progress.summary import Summary

SHOWN = ("drawn", "response_length")
"""What a rollout is watched by, beside its rewards and their metrics."""


@dataclass
class Record:
    """Of a whole run: what came before the checkpoint that it goes on from, and since."""

    args: Namespace
    counts: Counts = field(default_factory=Counts)
    """Of what is finished: rollouts that were trained on, or sampled where nothing is trained."""
    demonstrations: Counts = field(default_factory=Counts)
    """Of the supervised steps, where nothing is generated."""
    evaluations: dict[str, dict[str, float]] = field(default_factory=dict)
    """Mean rewards by ``start`` and ``end``."""
    fingerprints: dict[int, dict[str, int]] = field(default_factory=dict)
    """By rollout, since this process started: of ``tokens`` and ``advantages``, equal where two runs' bits are."""
    _rollouts: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    _batches: dict[tuple[str, int], Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    _learned: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.timer = StepTimer(self.args)

    def begin(self) -> None:
        """The processes are there: the time of the run counts from now."""
        self.timer.begin()

    def take(self, unit: Unit, results: Sequence[Any]) -> None:
        """Takes what the processes of a role gave for a unit."""
        self.timer.take(unit, results)
        if unit.call in ("generate", "fetch"):
            self._rollouts[unit.arguments["rollout"]] = results[0]
        elif unit.call == "train":
            self._batches[unit.role, unit.arguments["batch"]] = results
        elif unit.call == "evaluate":
            self.evaluations[unit.key.rpartition(" ")[2]] = results[0]["rewards"]
        elif unit.call == "demonstrate":
            _count(self.demonstrations, "enqueued", results)
        elif unit.call == "learn":
            _count(self.demonstrations, "trained", results)
            self._learned = results[0]["metrics"]

    def row(self, rollouts: Sequence[int], batches: Sequence[int]) -> dict[str, float | int]:
        """Counts ``rollouts`` with their optimizer ``batches``, and gives the numbers people watch."""
        found = [self._rollouts.pop(rollout) for rollout in rollouts]
        actor = [self._batches.pop((ACTOR, batch)) for batch in batches]
        critic = [self._batches.pop((CRITIC, batch))[0] for batch in batches if (CRITIC, batch) in self._batches]
        self._fingerprint(rollouts, found, batches, actor)
        _count_all(self.counts, found, actor)
        seconds = self.timer.row()
        row: dict[str, float | int] = {"rollout": rollouts[-1], "step": steps_before(self.args, rollouts[-1] + 1)}
        row |= _means("reward/", [facts["rewards"] for facts in found if "rewards" in facts])
        row |= _means("rollout/", [facts["metrics"] for facts in found if "metrics" in facts])
        row |= _means("rollout/", [{name: facts[name] for name in SHOWN} for facts in found if "rewards" in facts])
        row |= _means("train/", [ranks[0]["metrics"] for ranks in actor])
        row |= _means("critic/", [facts["metrics"] for facts in critic])
        samples = sum(facts["generated"].samples for facts in found)
        return row | {"samples": samples, "seconds": seconds, "samples_per_second": samples / seconds}

    def supervised_row(self, step: int) -> dict[str, float | int]:
        """The numbers of supervised step ``step``, which was the last."""
        self.timer.supervised_row()
        return {"supervised_step": step, **_means("supervised/", [self._learned])}

    def summary(self) -> Summary:
        """Of the run as it is now; its counts hold what was begun and never finished too."""
        args, supervised = self.args, self.args.loss_type == SFT_LOSS_TYPE
        counts = replace(self.demonstrations if supervised else self.counts)
        _count_all(counts, self._rollouts.values(), [self._batches[of] for of in self._batches if of[0] == ACTOR])
        counted = dict(vars(counts))
        if supervised:
            del counted["generated"]
        if args.debug_rollout_only:
            del counted["trained"]
        keys_of, number = (demonstration_keys, args.sft_steps) if supervised else (rollout_keys, args.num_rollout)
        return Summary(
            evaluations=self.evaluations,
            times=self.timer.times(),
            expected=Counted.all_of(Counted.of(keys_of(args, one)) for one in range(number)),
            counted=counted,
            fingerprints=self.fingerprints,
        )

    def saved(self, rollout: int) -> dict[str, Any]:
        """What a checkpoint keeps of it, for JSON."""
        return {"rollouts": rollout, "counts": asdict(self.counts), "evaluations": _written(self.evaluations)}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continues from what `saved` gave."""
        self.counts = Counts(**{name: Counted(**counted) for name, counted in saved["counts"].items()})
        self.evaluations = _read(saved["evaluations"])

    def _fingerprint(
        self,
        rollouts: Sequence[int],
        found: Sequence[Mapping[str, Any]],
        batches: Sequence[int],
        actor: Sequence[Sequence[Mapping[str, Any]]],
    ) -> None:
        for rollout, facts in zip(rollouts, found, strict=True):
            self.fingerprints[rollout] = {"tokens": facts["fingerprint"]}
        for rollout in rollouts[:1] if actor else ():
            ranks = (facts["fingerprint"] for of_batch in actor for facts in of_batch)
            self.fingerprints[rollout]["advantages"] = joined(ranks)


def _count_all(
    counts: Counts, rollouts: Iterable[Mapping[str, Any]], batches: Iterable[Sequence[Mapping[str, Any]]]
) -> None:
    """Counts what came of rollouts, and what the actor's ranks gave for optimizer batches."""
    found = list(rollouts)
    _count(counts, "generated", found)
    _count(counts, "enqueued", found)
    _count(counts, "trained", [facts for ranks in batches for facts in ranks])


def _count(counts: Counts, name: str, found: Iterable[Mapping[str, Any]]) -> None:
    setattr(counts, name, Counted.all_of([getattr(counts, name), *(facts[name] for facts in found)]))


def _means(prefix: str, groups: Iterable[Mapping[str, float]]) -> dict[str, float]:
    return {prefix + name: mean for name, mean in means(groups).items()}


def _written(evaluations: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float | str]]:
    """For JSON, which has no number for NaN and the infinities: those as text."""
    return {
        when: {name: mean if math.isfinite(mean) else str(mean) for name, mean in found.items()}
        for when, found in evaluations.items()
    }


def _read(written: Mapping[str, Mapping[str, float | str]]) -> dict[str, dict[str, float]]:
    return {when: {name: float(mean) for name, mean in found.items()} for when, found in written.items()}
