"""One rank: joins its world, then answers one task after the other until the pool is gone."""

from __future__ import annotations

import faulthandler
import importlib
import multiprocessing
import os
import shutil
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from verification.ranks.faults import Skipped
from verification.ranks.layout import Layout
from verification.ranks.loopback import use_loopback
from verification.ranks.messages import PRELOAD, STACK_SIGNAL, Answer, Post, Task
from verification.ranks.results import Failure, RankResult
from verification.ranks.tracing import Tracer, follow
from verification.ranks.transport import decode, encode

JOIN_TIMEOUT = timedelta(seconds=120)


@dataclass(frozen=True)
class Here:
    """This rank, for the function that runs on it."""

    rank: int
    layout: Layout
    group: dist.ProcessGroup
    device: torch.device
    tracer: Tracer

    @property
    def coordinates(self) -> tuple[int, int, int, int]:
        """The places of this rank along tensor, context, data and pipeline parallelism."""
        return self.layout.coordinates(self.rank)

    def fault_fired(self) -> None:
        """Counts a fault that the function made itself, such as a NaN in this rank's data."""
        self.tracer.fault_fired()


_here: Here | None = None


def here() -> Here:
    """The rank that this process is. A RuntimeError outside a rank of a pool."""
    if _here is None:
        raise RuntimeError("this process is no rank: here() works in functions that RankPool.run calls")
    return _here


def serve(post: Post, connection: Connection) -> None:
    """The life of a rank's process."""
    global _here
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the pool ends its ranks
    threading.Thread(target=_end_with_the_pool, args=(post.folder,), daemon=True).start()
    faulthandler.register(STACK_SIGNAL, file=post.stack.open("w"), all_threads=True)  # it keeps the file open
    try:
        _here = _join(post)
        answer = Answer(RankResult(post.rank))
    except Exception as error:
        answer = Answer(RankResult(post.rank, failure=_failure(error)), broken=True)
    while True:
        try:
            connection.send_bytes(_encoded(answer))
            data = connection.recv_bytes()
        except (EOFError, OSError):
            _leave(post.folder)
        answer = _answer(here(), data)


def _end_with_the_pool(folder: Path) -> None:
    """Waits for the end of the process that has the pool, then ends this one, whatever its other threads do."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    _leave(folder)


def _leave(folder: Path) -> NoReturn:
    """Ends this process, whose pool is gone; what the pool would have removed goes first, whoever comes to it."""
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _join(post: Post) -> Here:
    torch.set_num_threads(1)
    use_loopback()
    device = torch.device("cpu")
    if post.backend == "nccl":
        device = torch.device("cuda", post.rank)
        torch.cuda.set_device(device)
    tracer = Tracer(post.trace)
    dist.init_process_group(
        post.backend,
        init_method=(post.folder / "rendezvous").as_uri(),
        rank=post.rank,
        world_size=post.layout.world,
        timeout=JOIN_TIMEOUT,
    )
    if post.megatron:
        importlib.import_module(PRELOAD)  # before megatron; the fork server has it already, unless another started it
        from megatron.core import parallel_state

        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=post.layout.tp,
            pipeline_model_parallel_size=post.layout.pp,
            context_parallel_size=post.layout.cp,
        )
    follow(tracer)
    group = dist.group.WORLD
    assert group is not None
    return Here(post.rank, post.layout, group, device, tracer)


def _answer(me: Here, data: bytes) -> Answer:
    """Does the encoded task. Whatever is wrong with it, the rank stays able to take the next."""
    tracer, value, failure, skipped = me.tracer, None, None, False
    tracer.begin(None)
    try:
        task: Task = decode(data)
        _set_timeout(task.timeout)
        tracer.begin(task.fault)
        value = _resolve(task.function)(task.argument)
    except Skipped:
        skipped = True
    except Exception as error:
        failure = _failure(error)
    result = RankResult(
        me.rank,
        value,
        failure,
        skipped=skipped,
        collectives=tuple(tracer.entered),
        fault_fired=tracer.fired,
    )
    # A call without waiting fails where it is waited for, which the tracer does not see.
    broken = tracer.broken or skipped or (failure is not None and tracer.asynchronous)
    return Answer(result, tracer.by_group, broken)


def _encoded(answer: Answer) -> bytes:
    """The answer as bytes; a value that cannot travel is a failure of the rank."""
    try:
        return encode(answer)
    except Exception as error:
        return encode(replace(answer, result=replace(answer.result, value=None, failure=_failure(error))))


def _set_timeout(seconds: float) -> None:
    for group in distributed_c10d._world.pg_map:
        distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), group)


def _resolve(function: str) -> Callable[[Any], Any]:
    module, _, name = function.partition(":")
    found: Callable[[Any], Any] = getattr(importlib.import_module(module), name)
    return found


def _failure(error: Exception) -> Failure:
    return Failure(type(error).__name__, str(error), "".join(traceback.format_exception(error)))
