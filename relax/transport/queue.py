"""The rows that the roles of a run exchange, held by TransferQueue: put columns, get them by key, drop rows.

TransferQueue returns fewer rows or columns than were asked for without a word, and waits minutes for a part of it that
died. Here both are a `TransportError`: what was asked for is compared with what came, and each call runs beside a
watch over the queue's processes.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from relax.core.deadline import LOOK, Overdue, within
from relax.core.one_line import kind_and_line
from relax.transport.values import from_bytes, to_bytes

T = TypeVar("T")

PARTITION = "rollouts"
CONTROLLER = "the queue's controller"
NAMED = ("TransferQueueController", "transfer_queue")  # what Ray calls it, and in which namespace
DEADLINE = 60.0  # seconds for one call, where nothing has died
STARTING = 120.0  # seconds for the queue to start, whatever a call may take; 20 are usual
ENDING = 30.0  # seconds for the queue to end; 1 is usual
LONGER = "raise --call-timeout where it may take longer"
AGAIN = "this machine is busy, or short of memory or of processes; start again when it has some"


class TransportError(RuntimeError):
    """A row or column is not there, a value cannot travel, or a part of the queue died or does not answer."""


@dataclass(frozen=True)
class Queue:
    """The rows of a run, from any of its processes.

    A value is a dense tensor of any dtype and shape, an int or a float; it comes back with its type, dtype, shape and
    bits, on the CPU. Travels to other processes of the same Ray as an argument of a call.
    """

    name: str  # of this queue among those that a process has been attached to
    handles: Mapping[str, Any]  # Ray's handle of each part, by the name that an error gives it
    processes: Mapping[str, int]  # the process id of each part
    deadline: float = DEADLINE

    def put(self, keys: Sequence[str], columns: Mapping[str, Sequence[Any]]) -> None:
        """Adds ``columns``, one entry a key, to the rows ``keys``, which are made where they are not there.

        A column that a row has already is replaced.
        """
        import torch  # noqa: F401  # tensordict's import needs it whole
        import transfer_queue
        from tensordict import TensorDict
        from tensordict.tensorclass import NonTensorStack

        if len(set(keys)) < len(keys):
            raise TransportError(f"row {_first_twice(keys)!r} is named twice in one put to the queue")
        for name, column in columns.items():
            if len(column) != len(keys):
                raise TransportError(f"column {name!r} has {len(column)} values for {len(keys)} rows of the queue")
        if not keys or not columns:
            return
        stacks = {name: NonTensorStack(*_encoded(name, keys, column)) for name, column in columns.items()}
        fields = TensorDict(stacks, batch_size=[len(keys)])
        self._call("put rows", lambda: transfer_queue.kv_batch_put(list(keys), PARTITION, fields))

    def get(self, keys: Sequence[str], names: Sequence[str]) -> dict[str, list[Any]]:
        """The columns ``names`` of the rows ``keys``, in the order of ``keys``."""
        if not keys or not names:
            return {name: [] for name in names}
        found = self._found(keys, names)
        if found is None:
            raise TransportError(self._missing(keys, names))
        return {name: [from_bytes(value) for value in found[name]] for name in names}

    def keys(self) -> list[str]:
        """The rows held now, sorted."""
        import transfer_queue

        listed = self._call("list its rows", lambda: transfer_queue.kv_list(PARTITION))
        return sorted(listed.get(PARTITION, {}))

    def drop(self, keys: Sequence[str]) -> None:
        """Forgets the rows ``keys``, each of which must be there."""
        import transfer_queue

        absent = sorted(set(keys) - set(self.keys())) if keys else []
        if absent:
            raise TransportError(f"row {absent[0]!r} is not in the queue: it was never put, or it was dropped")
        if keys:
            self._call("drop rows", lambda: transfer_queue.kv_clear(list(keys), PARTITION))

    def require_alive(self) -> None:
        """Raises a `TransportError` that names the part of the queue that died."""
        import ray

        probes = {handle.__ray_ready__.remote(): name for name, handle in self.handles.items()}
        answered, _ = ray.wait(list(probes), num_returns=len(probes), timeout=LOOK)
        for probe in answered:
            try:
                ray.get(probe)
            except ray.exceptions.RayActorError as error:
                name = probes[probe]
                raise TransportError(
                    f"{name} (process {self.processes[name]}) died, and what it held is lost"
                ) from error

    def _found(self, keys: Sequence[str], names: Sequence[str]) -> Mapping[str, Sequence[bytes]] | None:
        """The encoded columns, or None where a row or a column of a row is not there."""
        import transfer_queue

        def ask() -> Any:
            try:
                return transfer_queue.kv_batch_get(list(keys), PARTITION, list(names))
            except ValueError:  # none of the rows is there
                return None

        found = self._call("get rows", ask)
        whole = found is not None and len(found) == len(keys) and all(name in found.keys() for name in names)  # noqa: SIM118
        return found if whole else None

    def _missing(self, keys: Sequence[str], names: Sequence[str]) -> str:
        """What is the first thing that was asked for and is not there."""
        held = set(self.keys())
        for key in keys:
            if key not in held:
                return f"row {key!r} is not in the queue: it was never put, or it was dropped"
            for name in names:
                if self._found([key], [name]) is None:
                    return f"row {key!r} of the queue has no column {name!r}: no role has put it"
        return f"{len(keys)} rows changed while they were read from the queue: one process may write a row at a time"

    def _call(self, what: str, function: Callable[[], T]) -> T:
        """``function()`` of a process that is attached to the queue; an error where a part dies or does not answer."""

        def attached() -> T:
            _attach(self)
            return function()

        return _watched(f"the queue could not {what}", attached, self.require_alive, self.deadline)


@contextlib.contextmanager
def start_queue(storage_units: int, *, deadline: float = DEADLINE) -> Iterator[Queue]:
    """Starts the queue in the Ray that runs, with ``storage_units`` processes that hold rows, and ends it.

    ``deadline`` is in seconds, for the start and for each call. Every process of the queue reserves one logical CPU
    of Ray; where that many are not free this is a `TransportError` rather than a wait without an end.
    """
    import ray
    import transfer_queue

    needed, free = 1 + storage_units, int(ray.available_resources().get("CPU", 0))
    if free < needed:
        raise TransportError(
            f"the queue needs {needed} logical CPUs of Ray, one for itself and one a storage unit, and {free} are "
            "free: raise --ray-logical-cpus"
        )
    with contextlib.suppress(ValueError):
        ray.get_actor(*NAMED)
        raise TransportError("a queue runs in this Ray already: a run starts its own, one at a time")
    settings = {"backend": {"SimpleStorage": {"num_data_storage_units": storage_units}}}
    try:
        limit = min(deadline, STARTING)
        _watched("the queue did not start", lambda: transfer_queue.init(settings), lambda: None, limit, AGAIN)
        handles = _handles(storage_units)
        queue = Queue(uuid.uuid4().hex, handles, _processes(handles, deadline), deadline)
        _ATTACHED[:] = [queue.name]
        yield queue
    finally:
        _ATTACHED.clear()
        with contextlib.suppress(TransportError):
            _watched("the queue did not end", transfer_queue.close, lambda: None, ENDING)


_ATTACHED: list[str] = []  # the one queue that this process is attached to
_LOCK = threading.Lock()


def _attach(queue: Queue) -> None:
    """Connects this process to ``queue``, once, and lets go of one that has ended."""
    import transfer_queue

    with _LOCK:
        if queue.name in _ATTACHED:
            return
        if _ATTACHED:
            transfer_queue.close()
        transfer_queue.init()
        _ATTACHED[:] = [queue.name]


def _handles(storage_units: int) -> dict[str, Any]:
    import ray

    handles = {CONTROLLER: ray.get_actor(*NAMED)}
    for unit in range(storage_units):
        handles[f"storage unit {unit}"] = ray.get_actor(f"TransferQueueStorageUnit#{unit}")
    return handles


def _processes(handles: Mapping[str, Any], deadline: float) -> dict[str, int]:
    import ray

    asked = [handle.__ray_call__.remote(_process_id) for handle in handles.values()]
    return dict(zip(handles, ray.get(asked, timeout=deadline), strict=True))


def _process_id(_actor: Any) -> int:
    return os.getpid()


def _watched(
    trouble: str, function: Callable[[], T], look: Callable[[], None], deadline: float, advice: str = LONGER
) -> T:
    """``function()``; where that fails, what ``look`` raises if a part of the queue died, else ``trouble`` and why,
    with ``advice`` where it took too long."""
    try:
        return within(deadline, function, look)
    except TransportError:
        raise
    except Overdue as error:
        raise TransportError(f"{trouble}: {error}; {advice}") from error
    except Exception as error:
        look()
        raise TransportError(f"{trouble}: {kind_and_line(error)}") from error


def _encoded(name: str, keys: Sequence[str], column: Sequence[Any]) -> list[bytes]:
    encoded = []
    for key, value in zip(keys, column, strict=True):
        try:
            encoded.append(to_bytes(value))
        except TypeError as error:
            raise TransportError(f"column {name!r} of row {key!r} cannot be put into the queue: {error}") from error
    return encoded


def _first_twice(keys: Sequence[str]) -> str:
    return next(key for place, key in enumerate(keys) if key in keys[:place])
