"""The pool: worlds of rank processes by layout, kept warm, bounded in number, rebuilt when a task has spoilt one."""

from __future__ import annotations

import atexit
import importlib.util
import multiprocessing
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from multiprocessing import forkserver
from typing import Any

import torch

from verification.ranks.faults import Fault
from verification.ranks.layout import Layout
from verification.ranks.messages import PRELOAD, Task
from verification.ranks.results import RankRun
from verification.ranks.transport import encode
from verification.ranks.world import World

JOIN_DEADLINE = 120.0

_open: weakref.WeakSet[RankPool] = weakref.WeakSet()


class RankPool:
    """Runs functions on worlds of ranks; for one thread at a time. Leaving the context ends every process.

    ``timeout`` is that of the collectives, in seconds; ``backend`` is gloo, or nccl with a GPU for each rank. At most
    ``processes`` ranks are kept: the world that was used longest ago gives way (one larger than that stands alone).
    """

    def __init__(self, *, timeout: float = 20.0, backend: str = "gloo", processes: int = 12) -> None:
        if backend not in ("gloo", "nccl"):
            raise ValueError(f"backend {backend!r} is unknown: use gloo or nccl")
        self._timeout, self._backend, self._processes = timeout, backend, processes
        self._worlds: OrderedDict[tuple[Layout, bool], World] = OrderedDict()
        self.started = 0  # worlds, those included that are gone
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([PRELOAD])
        _open.add(self)

    def __enter__(self) -> RankPool:
        forkserver.ensure_running()  # it imports while the caller prepares
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of all ranks that are kept."""
        return tuple(pid for world in self._worlds.values() for pid in world.pids)

    def run(
        self,
        function: str,
        arguments: Sequence[Any],
        *,
        layout: Layout,
        fault: Fault | None = None,
        deadline: float = 30.0,
        timeout: float | None = None,
        megatron: bool | None = None,
    ) -> RankRun:
        """Calls ``function`` (``module:name``) on every rank, each with its own argument, and judges every rank's end.

        A rank without an answer after ``deadline`` seconds is hung. ``timeout`` stands in for the pool's. Megatron's
        groups exist where ``layout`` has more than data parallelism, or ``megatron`` says so. Ranks import what they
        are told to use: a function or a class of the main script is out of their reach.
        """
        if len(arguments) != layout.world:
            given = f"{len(arguments)} arguments for the {layout.world} ranks of {layout.name}"
            raise ValueError(f"{given}: give each rank one")
        if fault is not None and not 0 <= fault.rank < layout.world:
            raise ValueError(f"a fault on rank {fault.rank} of {layout.name}, which has ranks 0 to {layout.world - 1}")
        seconds = self._timeout if timeout is None else timeout
        tasks = [
            encode(Task(function, argument, fault if fault is not None and fault.rank == rank else None, seconds))
            for rank, argument in enumerate(arguments)
        ]
        key = (layout, layout.needs_megatron if megatron is None else megatron)
        world = self._world(*key)
        try:
            results = world.run(tasks, deadline)
        except BaseException:
            self._discard(key)
            raise
        if not world.reusable:
            self._discard(key)
        return RankRun(function, layout, results)

    def close(self) -> None:
        """Ends every process. The pool starts new ones if it is used again."""
        for key in list(self._worlds):
            self._discard(key)

    def _world(self, layout: Layout, megatron: bool) -> World:
        """A world that is ready, now the one used last."""
        key = (layout, megatron)
        if key in self._worlds and not self._worlds[key].is_alive():
            self._discard(key)
        if key not in self._worlds:
            self._refuse_what_is_missing(layout, megatron)
            while self._worlds and len(self.pids) + layout.world > self._processes:
                self._discard(next(iter(self._worlds)))
            self._worlds[key] = World(
                self._context, layout, megatron=megatron, backend=self._backend, deadline=JOIN_DEADLINE
            )
            self.started += 1
        self._worlds.move_to_end(key)
        return self._worlds[key]

    def _refuse_what_is_missing(self, layout: Layout, megatron: bool) -> None:
        if megatron and importlib.util.find_spec("megatron") is None:
            raise RuntimeError(f"{layout.name} needs megatron-core, which is missing: pip install -e '.[megatron]'")
        if self._backend == "nccl" and layout.world > (there := torch.cuda.device_count()):
            raise RuntimeError(f"{layout.name} needs {layout.world} GPUs, one a rank, and {there} are here: use gloo")

    def _discard(self, key: tuple[Layout, bool]) -> None:
        self._worlds.pop(key).stop()


@atexit.register
def _close_all() -> None:
    for pool in list(_open):
        pool.close()
