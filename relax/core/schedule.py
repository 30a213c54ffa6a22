"""The schedule of a run: which role does what, after what, with which version of the weights. Pure data.

Rollout k is sampled with version `relax.core.rows.sampled_version` of the weights, whichever process is faster: the
same command gives the same bits each time. A role does its units in the order of the list, and a unit comes after all
that it needs, so that doing the list from its start to its end is one right way to run it, and doing at any time
whatever can be done is another.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from relax.core.checkpoint import pending_path
from relax.core.registry import (
    ACTOR,
    ACTOR_FWD,
    ADVANTAGES,
    CLASS_OF_ROLE,
    CRITIC,
    REFERENCE,
    ROLLOUT,
    SFT,
    SFT_LOSS_TYPE,
    process_role,
)
from relax.core.rows import needs_reference, rollouts_of, sampled_version, samples_of_rollout, steps_before
from relax.core.units import CONTROLLER, Unit, Units

SHOWN = 20  # supervised steps from one row of numbers to the next
SAVED = (ACTOR, CRITIC, ROLLOUT)
"""The roles that have something to go on from."""


def roles_of(args: Namespace, *, resumed: bool = False) -> dict[str, str]:
    """The roles that a run starts, name to path: those of its mode, and the demonstrations of its warm-up."""
    roles = process_role(args)
    warms_up = args.sft_steps and not resumed and not args.debug_rollout_only
    return {**roles, SFT: CLASS_OF_ROLE[SFT]} if warms_up else roles


def schedule(args: Namespace, roles: Collection[str], *, resumed: int | None = None) -> list[Unit]:
    """The units of a run that starts ``roles``; of one that goes on with rollout ``resumed``, where a checkpoint ends.

    Its rollouts fill whole optimizer batches.
    """
    return _Plan(args, frozenset(roles), resumed).units()


class _Plan:
    """What a run has planned so far."""

    def __init__(self, args: Namespace, roles: frozenset[str], resumed: int | None) -> None:
        self.args, self.roles = args, roles
        self._anew, first = resumed is None, resumed or 0
        self._first = first
        self._asynchronous, self._trains = ADVANTAGES in roles, ACTOR in roles
        self._units = Units(in_turn=not (args.hybrid or self._asynchronous))
        self._add = self._units.add
        self._prepared = ""  # the unit that prepared the latest batches
        self._sampled = first  # the next rollout to sample

    def units(self) -> list[Unit]:
        args = self.args
        if self._trains and self._anew:
            self._warm_up()
        if args.loss_type == SFT_LOSS_TYPE:
            if self._anew:
                self._checkpoint(0)
        elif self._trains:
            self._policy_phase()
        else:
            if self._anew:
                self._evaluate("start", None)
            for rollout in range(self._first, args.num_rollout):
                self._generate(rollout)
                self._drop(f"rollout {rollout}", {"rollout": rollout}, [_generated(rollout)])
                self._report([rollout], [])
        return self._units.so_far

    def _policy_phase(self) -> None:
        args, samples = self.args, samples_of_rollout(self.args)
        if self._first == 0:
            if needs_reference(args):
                self._units.publish(0)
            self._evaluate("start", 0)
        if self._anew:
            self._checkpoint(0)
        done = self._first  # rollouts whose samples have all been trained on
        for batch in range(steps_before(args, self._first), steps_before(args, args.num_rollout)):
            while self._sampled < args.num_rollout and sampled_version(args, self._sampled) <= batch:
                self._sample(self._sampled)
            self._train(batch, self._columns(batch))
            trained = (batch + 1) * args.global_batch_size
            if trained % samples == 0:
                rollouts, done = range(done, trained // samples), trained // samples
                self._report(rollouts, range(steps_before(args, rollouts[0]), batch + 1))
                self._checkpoint(done)
        self._evaluate("end", steps_before(args, args.num_rollout))

    def _warm_up(self) -> None:
        for step in range(self.args.sft_steps):
            name, rows = f"supervised step {step}", {"step": step}
            one_ahead = [f"supervised step {step - 2}"] if step > 1 else []
            put = self._add(f"demonstrations of {name}", SFT, "demonstrate", rows, one_ahead)
            learned = self._add(name, ACTOR, "learn", rows, [put], everywhere=True)
            self._drop(name, rows, [learned])
            if (step + 1) % SHOWN == 0 or step + 1 == self.args.sft_steps:
                self._add(f"{name} reported", CONTROLLER, "report_supervised", rows)

    def _sample(self, rollout: int) -> None:
        if ROLLOUT in self.roles:
            self._generate(rollout)
        else:
            self._add(_generated(rollout), ACTOR, "fetch", {"rollout": rollout})
        self._sampled = rollout + 1

    def _generate(self, rollout: int) -> None:
        version = sampled_version(self.args, rollout) if self._trains else None
        self._add(_generated(rollout), ROLLOUT, "generate", {"rollout": rollout}, version=version)

    def _columns(self, batch: int) -> list[str]:
        """Adds what a batch needs before it is trained on; gives the units that training comes after."""
        return self._by_slices(batch) if self._asynchronous else self._in_the_actor(batch)

    def _in_the_actor(self, batch: int) -> list[str]:
        if together := list(self._together(batch)):
            after = [*self._rows_of(batch), *self._values(batch)]
            arguments = {"batches": together}
            self._prepared = self._add(f"prepare batch {batch}", ACTOR, "prepare", arguments, after, everywhere=True)
        return [self._prepared]

    def _by_slices(self, batch: int) -> list[str]:
        args = self.args
        version = sampled_version(args, rollouts_of(args, batch)[0])
        self._values(batch)
        added, rows = [], self._rows_of(batch)
        for name, slice in self._slices(batch):
            needed = [*rows, f"values of {name}"] if CRITIC in self.roles else list(rows)
            if ACTOR_FWD in self.roles:
                needed.append(self._add(f"log-probs of {name}", ACTOR_FWD, "forward", slice, rows, version=version))
            if REFERENCE in self.roles and needs_reference(args):
                unit = f"reference log-probs of {name}"
                needed.append(self._add(unit, REFERENCE, "forward", slice, rows, version=0))
            added.append(self._add(f"advantages of {name}", ADVANTAGES, "add", slice, needed))
        return added

    def _values(self, batch: int) -> list[str]:
        """Adds the values of ``batch`` and of those together with it, if there is a critic; gives the units."""
        if CRITIC not in self.roles:
            return []
        return [
            self._add(f"values of {name}", CRITIC, "values", slice, self._rows_of(own))
            for own in self._together(batch)
            for name, slice in self._slices(own)
        ]

    def _slices(self, batch: int) -> list[tuple[str, dict[str, int]]]:
        """The parts in which a batch comes, each with its name: in the actor it comes whole."""
        if not self._asynchronous:
            return [(f"batch {batch}", {"batch": batch})]
        slices = range(self.args.num_iters_per_train_update)
        return [(f"slice {slice} of batch {batch}", {"batch": batch, "slice": slice}) for slice in slices]

    def _together(self, batch: int) -> range:
        """The batches for which old log-probs and values are made before the first of them: those of a rollout, where
        ``batch`` is its first, and none where it is a later one.
        """
        of_rollout = max(1, samples_of_rollout(self.args) // self.args.global_batch_size)
        return range(batch, batch + of_rollout) if batch % of_rollout == 0 else range(0)

    def _rows_of(self, batch: int) -> list[str]:
        """The units that bring its rows."""
        return [_generated(rollout) for rollout in rollouts_of(self.args, batch)]

    def _train(self, batch: int, after: Sequence[str]) -> None:
        rows = {"batch": batch}
        trained = [self._add(_trained(batch), ACTOR, "train", rows, after, everywhere=True)]
        if CRITIC in self.roles:
            trained.append(self._add(f"train the critic on batch {batch}", CRITIC, "train", rows, after))
        self._drop(f"batch {batch}", rows, trained)

    def _drop(self, name: str, rows: Mapping[str, int], after: Sequence[str]) -> None:
        self._add(f"{name} dropped", CONTROLLER, "drop", rows, after)

    def _report(self, rollouts: Iterable[int], batches: Iterable[int]) -> None:
        arguments = {"rollouts": list(rollouts), "batches": list(batches)}
        self._add(f"rollout {arguments['rollouts'][-1]} reported", CONTROLLER, "report", arguments)

    def _evaluate(self, when: str, version: int | None) -> None:
        if ROLLOUT in self.roles and self.args.eval_problems:
            self._add(f"evaluation at the {when}", ROLLOUT, "evaluate", version=version)

    def _checkpoint(self, rollout: int) -> None:
        """Saves what a run needs that goes on with ``rollout``, where one is asked for at this point."""
        args = self.args
        last = 0 if args.loss_type == SFT_LOSS_TYPE else args.num_rollout
        due = rollout == last or (args.save_interval and rollout % args.save_interval == 0)
        if args.save is None or not due:
            return
        name, arguments = f"checkpoint {rollout}", {"rollout": rollout}
        opened = self._add(f"{name} opened", CONTROLLER, "open_checkpoint", arguments)
        folder = str(pending_path(Path(args.save), rollout))
        saved = [
            self._add(f"{name}, part {role}", role, "save", {**arguments, "folder": folder}, [opened])
            for role in SAVED
            if role in self.roles
        ]
        self._add(f"{name} committed", CONTROLLER, "commit_checkpoint", arguments, saved)


def _generated(rollout: int) -> str:
    return f"generate rollout {rollout}"


def _trained(batch: int) -> str:
    return f"train on batch {batch}"
