"""The collectives of this process, each written down as it is entered and left, and faults at the n-th of them."""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from verification.ranks.faults import ENTRY, EXIT, START, Fault
from verification.ranks.messages import Group

COLLECTIVES = (
    *("all_reduce", "all_reduce_coalesced", "reduce", "broadcast", "broadcast_object_list", "barrier"),
    *("monitored_barrier", "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "_all_gather_base"),
    *("all_gather_object", "gather", "gather_object", "scatter", "scatter_object_list", "reduce_scatter"),
    *("reduce_scatter_tensor", "_reduce_scatter_base", "all_to_all", "all_to_all_single"),
)
POINT_TO_POINT = ("send", "recv", "isend", "irecv", "send_object_list", "recv_object_list", "batch_isend_irecv")


@dataclass(frozen=True)
class Trace:
    """What a rank wrote down: the collectives that it entered, the one that it did not leave, and faults that fired."""

    entered: tuple[str, ...]
    inside: str | None
    fault_fired: int


def read_trace(path: Path) -> Trace:
    """The trace in the file of a rank that cannot answer any more."""
    entered: list[str] = []
    inside, fired = None, 0
    for line in path.read_text().splitlines() if path.exists() else ():
        event, _, label = line.partition(" ")
        if event == "entry":
            entered.append(label)
            inside = label
        elif event == "exit":
            inside = None
        else:
            fired += 1
    return Trace(tuple(entered), inside, fired)


class Tracer:
    """Follows the collectives of one task at a time: in memory, and in a file that outlives the process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self.begin(None)

    def begin(self, fault: Fault | None) -> None:
        """Starts a task with an empty trace; ``fault`` is this rank's, and strikes at once if that is its kind."""
        os.ftruncate(self._file, 0)
        self._fault = fault
        self.entered: list[str] = []
        self.by_group: dict[Group, int] = {}
        self.fired = 0
        self.broken = False
        self.asynchronous = False
        self._meet(START)

    def entry(self, name: str, label: str, group: Group) -> None:
        """The rank is about to enter a collective of ``group``."""
        self._meet(ENTRY, len(self.entered) + 1)
        self.entered.append(label)
        if name in COLLECTIVES:
            self.by_group[group] = self.by_group.get(group, 0) + 1
        self._write(f"entry {label}")

    def exit(self) -> None:
        """The collective that was entered last has returned."""
        self._write("exit")
        self._meet(EXIT, len(self.entered))

    def fault_fired(self) -> None:
        """Counts a fault, in the file as well: the process may not live to tell."""
        self.fired += 1
        self._write("fault")

    def _meet(self, moment: str, collective: int = 0) -> None:
        if self._fault is not None and self._fault.due(moment, collective):
            self.fault_fired()
            self._fault.strike()

    def _write(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())


_tracer: Tracer | None = None
_nested = threading.local()


def follow(tracer: Tracer) -> None:
    """From now on the collectives of this process are written down by ``tracer``."""
    global _tracer
    _tracer = tracer
    install()


def install() -> None:
    """Puts the recording functions in place of torch's own; without a tracer they only pass on.

    Before megatron is imported: it keeps some of these functions in variables of its own. The module that defines them
    gets the same functions, since it compares them by identity.
    """
    for name in (*COLLECTIVES, *POINT_TO_POINT):
        original = getattr(distributed_c10d, name, None)
        if original is not None and not hasattr(original, "is_traced"):
            traced = _traced(name, original)
            setattr(distributed_c10d, name, traced)
            setattr(dist, name, traced)


def _traced(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    names = tuple(inspect.signature(original).parameters)

    @functools.wraps(original)
    def call(*arguments: Any, **keywords: Any) -> Any:
        if _tracer is None or getattr(_nested, "now", False):
            return original(*arguments, **keywords)
        given = {**dict(zip(names, arguments, strict=False)), **keywords}
        group = given.get("group") or dist.group.WORLD
        if group is dist.GroupMember.NON_GROUP_MEMBER:
            return original(*arguments, **keywords)
        tracer, _nested.now = _tracer, True
        try:
            tracer.entry(name, _label(name, given, group), tuple(dist.get_process_group_ranks(group)))
            tracer.asynchronous |= bool(given.get("async_op", name in ("isend", "irecv", "batch_isend_irecv")))
            try:
                result = original(*arguments, **keywords)
            except Exception:
                tracer.broken = True
                raise
            tracer.exit()
            return result
        finally:
            _nested.now = False

    call.is_traced = True  # type: ignore[attr-defined]
    return call


def _label(name: str, given: dict[str, Any], group: Any) -> str:
    """Such as ``all_gather float64[2, 3] over 4 ranks``; the tensor is the first that the call was given."""
    tensor = next(_tensors(given.values()), None)
    what = "" if tensor is None else f" {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    return f"{name}{what} over {dist.get_world_size(group)} ranks"


def _tensors(things: Any) -> Iterator[torch.Tensor]:
    for thing in things:
        if isinstance(thing, torch.Tensor):
            yield thing
        elif isinstance(thing, list | tuple):
            yield from _tensors(thing)
