"""A whole run of the real roles and the real schedule within one process: no Ray, a local queue, one unit at a time."""

from __future__ import annotations

import importlib
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from relax.algorithms.spec import get_algorithm
from relax.arguments import parse_args
from relax.core.checkpoint import commit, open_checkpoint, pending_folder, write_part
from relax.core.random_states import seed_random_states
from relax.core.registry import REFERENCE
from relax.core.resume import RUN, lasting_options, roles_to_load
from relax.core.rows import keys_of
from relax.core.schedule import roles_of, schedule
from relax.core.units import CONTROLLER, Unit
from tests.relax.command_lines import LEAST
from tests.runtime.local_queue import LocalQueue
from tests.runtime.small_run import SmallRun

TINY = (
    *("--rollout-batch-size", "4", "--n-samples-per-prompt", "4", "--num-layers", "2", "--hidden-size", "32"),
    *("--num-attention-heads", "2", "--ffn-hidden-size", "64", "--lr", "1e-3", "--micro-batch-size", "8"),
    *("--custom-rm-path", "tests.runtime.small_run:varied_rewards", "--seed", "0"),
)


def tiny(algorithm: str, *options: str) -> Namespace:
    """The options of `tests.runtime.small_run.arguments`, for a run of the real roles; two optimizer batches a rollout
    where the algorithm allows it."""
    spec = get_algorithm(algorithm)
    keys = ["--gdpo-reward-keys", "correctness", "format"]
    least = keys if spec.uses_reward_components else [*LEAST[algorithm], "--reward-key", "total"]
    batch = [] if spec.requires_on_policy_updates else ["--global-batch-size", "8"]
    return parse_args(["--advantage-estimator", algorithm, *least, *TINY, *batch, *options])


class InProcess:
    """The roles of a run, and what came of each unit."""

    def __init__(self, args: Namespace, *, load: Path | None = None) -> None:
        self.args, self.queue = args, LocalQueue()
        seed_random_states(args.seed)  # as each process of a real run
        self.facts: dict[str, Any] = {}
        self.roles = {
            role: self._started(role, path) for role, path in roles_of(args, resumed=load is not None).items()
        }
        self.resumed = None
        if load is not None:
            checkpoint = open_checkpoint(load)
            self.resumed = checkpoint.step
            for role in sorted(self.roles.keys() & roles_to_load(checkpoint)):
                self.roles[role].load(str(checkpoint.folder))

    def _started(self, role: str, path: str) -> Any:
        module, _, name = path.partition(":")
        own = {"column": "ref_log_probs"} if role == REFERENCE else {}
        return getattr(importlib.import_module(module), name)(self.args, self.queue, **own)

    def units(self) -> list[Unit]:
        """The schedule of this run."""
        return schedule(self.args, self.roles, resumed=self.resumed)

    def run(self, *, since: str | None = None, until: str | None = None) -> InProcess:
        """Does the units in order; those from ``since`` on, and before ``until``."""
        units = self.units()
        keys = [unit.key for unit in units]
        start, stop = (default if key is None else keys.index(key) for key, default in ((since, 0), (until, None)))
        for unit in units[start:stop]:
            if unit.role == CONTROLLER:
                self._control(unit)
                continue
            weights = {} if unit.weights is None else {"weights": self.facts[unit.weights]}
            self.facts[unit.key] = getattr(self.roles[unit.role], unit.call)(**unit.arguments, **weights)
        return self

    def _control(self, unit: Unit) -> None:
        arguments = unit.arguments
        if unit.call == "drop":
            self.queue.drop(keys_of(self.args, **arguments))
        elif unit.call == "open_checkpoint":
            self._pending = pending_folder(Path(self.args.save), arguments["rollout"])
        elif unit.call == "commit_checkpoint":
            write_part(self._pending, RUN, tensors={}, facts={"options": lasting_options(self.args)})
            commit(self._pending, arguments["rollout"])

    def of(self, prefix: str) -> Iterator[Any]:
        """What came of the units whose keys start so, in order."""
        return (facts for key, facts in self.facts.items() if key.startswith(prefix))

    def bits(self) -> dict[str, bytes]:
        """Every weight and moment, as `tests.runtime.small_run.SmallRun.bits` gives them."""
        parts = {name: role.trained for name, role in self.roles.items() if hasattr(role, "trained")}
        return {
            f"{name}/{key}": tensor.detach().numpy().tobytes()
            for name, part in parts.items()
            for tensors in (dict(part.model.named_parameters()), part.optimizer.state())
            for key, tensor in tensors.items()
        }


def reference(run: InProcess) -> SmallRun:
    """The reference run of the same options, finished."""
    small = SmallRun(run.args, micro_batch_size=run.args.micro_batch_size)
    small.warm_up(run.args.sft_steps, batch=run.args.sft_batch_size, learning_rate=run.args.sft_lr)
    for _ in range(run.args.num_rollout):
        small.train(small.sample())
    return small
