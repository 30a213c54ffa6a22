"""The driver of a run: starts its roles, does its schedule, watches over its processes, and keeps its record."""

from __future__ import annotations

import json
import os
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, Protocol

from relax.components.advantages_service import (
    AdvantagesService,
    ServiceError,
    deploy_advantages,
    stop_advantages,
)
from relax.core.checkpoint import Checkpoint, commit, pending_folder, write_part
from relax.core.clock import Clock
from relax.core.cluster import processes_of_ray
from relax.core.deadline import LOOK, in_thread
from relax.core.execution import RunError, execute
from relax.core.processes import (
    Process,
    RoleFailure,
    end_processes,
    is_running,
    raising,
    require_running,
    start_processes,
    starts_of,
    wait_for_death,
)
from relax.core.record import Record
from relax.core.registry import ADVANTAGES
from relax.core.resume import RUN, lasting_options, roles_to_load
from relax.core.rows import keys_of
from relax.core.schedule import roles_of, schedule
from relax.core.trace import seal_trace, start_trace
from relax.core.units import CONTROLLER, Unit
from relax.progress.summary import Summary
from relax.transport.queue import Queue, TransportError

FELT = ("LostPeer", "TransportError")  # what a role raises where another process died
DYING = 5.0  # seconds for a process to be gone, after a peer has felt it
# For tests that end a process at a known moment: before this unit the driver writes who is who, and waits until
# the file is removed.
STOP_BEFORE, STOPPED_FILE = "RELAX_STOP_BEFORE", "RELAX_STOPPED_FILE"


class Progress(Protocol):
    """Who shows the run."""

    def step(self, row: dict[str, float | int]) -> None:
        """The numbers of a rollout."""


class Controller:
    """One run, in the Ray and on the queue that are there."""

    def __init__(
        self,
        args: Namespace,
        queue: Queue,
        progress: Progress,
        folder: Path,
        *,
        checkpoint: Checkpoint | None = None,
        announce: Callable[[str], None] = lambda what: None,
    ) -> None:
        """``folder`` is the run's own, where its ranks meet; ``announce`` is told when the roles' processes are up."""
        self._announce = announce
        self.args, self.queue, self.progress, self.folder, self.checkpoint = args, queue, progress, folder, checkpoint
        self.record = Record(args)
        if checkpoint is not None:
            self.record.restore(checkpoint.facts(RUN))
        self._ray = [Process("Ray", name, pid, None) for name, pid in processes_of_ray().items()]
        self._processes: list[Process] = []
        self._service: AdvantagesService | None = None
        self._given: dict[str, Any] = {}  # published weights that are still to be handed over, by unit
        self._users: Counter[str] = Counter()  # how many units each of them is for

    def run(self) -> Summary:
        """The whole run; raises `RunError` where a role fails or a process dies, naming it and its work."""
        args, checkpoint = self.args, self.checkpoint
        roles = roles_of(args, resumed=checkpoint is not None)
        first = None if checkpoint is None else checkpoint.step
        units = schedule(args, roles, resumed=first)
        self._users = Counter(unit.weights for unit in units if unit.weights is not None)
        if args.trace_rollout is not None and args.trace_rollout >= (first or 0):
            start_trace(args)
        with self._started(roles):
            if checkpoint is not None:
                self._load(checkpoint)
            self.record.begin()
            self._announce("the processes are up")
            execute(units, self, timeout=args.call_timeout)
            return self.record.summary()

    def start(self, unit: Unit) -> list[Future[Any]]:
        """Starts a unit: the driver's own are done at once."""
        self._stop_before(unit)
        if unit.role == CONTROLLER:
            return [_done(lambda: self._own(unit))]
        if unit.role == ADVANTAGES:
            assert self._service is not None
            return [raising(self._service.call(unit.call, unit.arguments))]
        handles = [process.handle for process in self._processes if process.role == unit.role]
        if unit.gives_weights:
            given = [_give(handle, unit) for handle in handles]
            if self._users[unit.key]:
                self._given[unit.key] = given[0][1]
            return [raising(failure.future()) for failure, _ in given]
        weights = None if unit.weights is None else self._given[unit.weights]
        asked = handles if unit.everywhere else handles[:1]
        return [raising(handle.call.remote(unit.call, unit.arguments, weights).future()) for handle in asked]

    def finish(self, unit: Unit, results: list[Any]) -> None:
        """Takes what came of a unit, and forgets weights that nobody needs any more."""
        self.record.take(unit, results)
        if unit.call == "evaluate":
            self.progress.step(self.record.evaluation_row(unit))
        if unit.weights is not None:
            self._users[unit.weights] -= 1
            if not self._users[unit.weights]:
                del self._given[unit.weights]

    def fail(self, unit: Unit, process: int, error: BaseException) -> NoReturn:
        """What ended the run: a process that died, rather than what others felt of it."""
        if not isinstance(error, RoleFailure) or error.kind in FELT:
            self._wait_for_death([unit])
        who = [one.described for one in self._processes if one.role == unit.role] or [unit.role]
        trace = error.trace if isinstance(error, RoleFailure) else None
        raise RunError(f"{who[process]} failed at '{unit.key}': {error}", trace) from error

    def look(self, running: Sequence[Unit]) -> None:
        """Raises where a process of Ray, of a role or of the queue is no more."""
        require_running([*self._ray, *self._processes], running)
        try:
            if self._service is not None:
                self._service.require_alive()
            self.queue.require_alive()
        except (ServiceError, TransportError) as error:
            raise RunError(str(error)) from error

    def _wait_for_death(self, running: Sequence[Unit]) -> None:
        wait_for_death([*self._ray, *self._processes], running, DYING)
        self.look(running)

    @contextmanager
    def _started(self, roles: Mapping[str, str]) -> Iterator[None]:
        """The roles' processes, started side by side."""
        own = {role: path for role, path in roles.items() if role != ADVANTAGES}
        service = in_thread(lambda: deploy_advantages(self.args, self.queue)) if ADVANTAGES in roles else None
        try:
            self._processes = start_processes(starts_of(self.args, own, self.folder), self.args, self.queue)
            self._service = None if service is None else service.result()
            yield
        except ServiceError as error:
            raise RunError(str(error)) from error
        finally:
            end_processes(self._processes)
            if service is not None and all(is_running(process.pid) for process in self._ray):
                stop_advantages()  # which a Ray that is dead would never answer

    def _load(self, checkpoint: Checkpoint) -> None:
        folder, held = str(checkpoint.folder), roles_to_load(checkpoint)
        units = [
            Unit(f"load {role}", role, "load", {"folder": folder}, everywhere=True)
            for role in dict.fromkeys(process.role for process in self._processes)
            if role in held
        ]
        execute(units, self, timeout=self.args.call_timeout)

    def _own(self, unit: Unit) -> dict[str, Any]:
        """Does a unit of the driver's own."""
        clock = Clock()
        with clock(unit.call):
            getattr(self, f"_{unit.call}")(**unit.arguments)
        return {"seconds": clock.take()}

    def _drop(self, **rows: int) -> None:
        self.queue.drop(keys_of(self.args, **rows))

    def _report(self, rollouts: Sequence[int], batches: Sequence[int]) -> None:
        self.progress.step(self.record.row(rollouts, batches))
        if self.args.trace_rollout in rollouts:
            seal_trace(self.args)

    def _report_supervised(self, step: int) -> None:
        self.progress.step(self.record.supervised_row(step))

    def _open_checkpoint(self, rollout: int) -> None:
        self._pending = pending_folder(Path(self.args.save), rollout)

    def _commit_checkpoint(self, rollout: int) -> None:
        facts = {**self.record.saved(rollout), "options": lasting_options(self.args)}

        def write() -> None:
            write_part(self._pending, RUN, tensors={}, facts=facts)
            commit(self._pending, rollout, keep=self.args.keep_checkpoints)

        done = in_thread(write)
        try:
            while not wait([done], timeout=LOOK).done:  # a large one takes minutes, in which a process may die
                self.look([])
        finally:
            wait([done])  # what cleans up must not find it at work
        done.result()

    def _stop_before(self, unit: Unit) -> None:
        if os.environ.get(STOP_BEFORE) != unit.key:
            return
        table = {process.name: process.pid for process in [*self._ray, *self._processes]}
        table |= {} if self._service is None else {ADVANTAGES: self._service.process}
        stopped = Path(os.environ[STOPPED_FILE])
        stopped.write_text(json.dumps({"driver": os.getpid(), **table, **self.queue.processes}))
        while stopped.exists():
            self.look([unit])
            time.sleep(0.1)


def _give(handle: Any, unit: Unit) -> Any:
    return handle.give.options(num_returns=2).remote(unit.call, unit.arguments)


def _done(function: Callable[[], Any]) -> Future[Any]:
    """A future of what ``function`` gives now."""
    future: Future[Any] = Future()
    try:
        future.set_result(function())
    except Exception as error:
        future.set_exception(error)
    return future
