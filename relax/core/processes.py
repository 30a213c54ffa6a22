"""The processes of a run's roles: started side by side by Ray, called, and watched."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relax.core.execution import RunError
from relax.core.registry import ACTOR, REFERENCE
from relax.core.role_process import Failure, RoleProcess, Start
from relax.core.units import Unit
from relax.transport.queue import Queue

REF_LOG_PROBS = {"column": "ref_log_probs"}


class RoleFailure(Exception):
    """A role's own exception, as its process described it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.kind}: {failure.message}")
        self.kind, self.trace = failure.kind, failure.trace


@dataclass(frozen=True)
class Process:
    """One process of a role."""

    role: str
    name: str
    """``actor rank 1``."""
    pid: int
    handle: Any

    @property
    def described(self) -> str:
        """For an error."""
        return f"{self.name} (process {self.pid})"


def starts_of(args: Namespace, roles: Mapping[str, str], folder: Path) -> list[Start]:
    """What is to be started for ``roles``, name to path; ``folder`` is where ranks meet, new for each run."""
    starts = []
    for role, path in roles.items():
        if role != ACTOR:
            starts.append(Start(role, path, options=REF_LOG_PROBS if role == REFERENCE else {}))
            continue
        size = args.data_parallel_size
        meeting = f"file://{folder / 'actor-ranks'}" if size > 1 else None
        for rank in range(size):
            starts.append(Start(role, path, rank, size, meeting, {"rank": rank, "size": size}))
    return starts


def start_processes(starts: Sequence[Start], args: Namespace, queue: Queue) -> list[Process]:
    """Starts all at once; raises `RunError` naming the first that cannot be made within ``--call-timeout``."""
    import ray

    role_process: Any = ray.remote(num_cpus=1, max_restarts=0)(RoleProcess)
    handles = [role_process.remote(start, args, queue) for start in starts]
    futures = [raising(handle.ready.remote().future()) for handle in handles]
    done, waiting = wait(futures, args.call_timeout, FIRST_EXCEPTION)
    for start, future in zip(starts, futures, strict=True):
        error = future.exception() if future in done else None
        if isinstance(error, RoleFailure):
            raise RunError(f"{start.name} cannot be made: {error}", error.trace) from error
        if error is not None:
            raise RunError(f"{start.name} died as it was made: it was killed, or ran out of memory") from error
    for start, future in zip(starts, futures, strict=True):
        if future in waiting:
            raise RunError(
                f"{start.name} was not made within {args.call_timeout:g} s: raise --call-timeout, or "
                "--ray-logical-cpus if there are fewer of these than processes"
            )
    return [
        Process(start.role, start.name, future.result(), handle)
        for start, handle, future in zip(starts, handles, futures, strict=True)
    ]


def end_processes(processes: Sequence[Process]) -> None:
    """Ends them, without waiting."""
    import ray

    for process in processes:
        ray.kill(process.handle)


def raising(future: Future[Any]) -> Future[Any]:
    """The same outcome, with a `Failure` as the exception `RoleFailure`."""
    outcome: Future[Any] = Future()

    def pass_on(done: Future[Any]) -> None:
        error = done.exception()
        if error is not None:
            outcome.set_exception(error)
        elif isinstance(done.result(), Failure):
            outcome.set_exception(RoleFailure(done.result()))
        else:
            outcome.set_result(done.result())

    future.add_done_callback(pass_on)
    return outcome


def is_running(pid: int) -> bool:
    """Whether process ``pid`` of this machine lives (Linux)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def require_running(processes: Sequence[Process], running: Sequence[Unit]) -> None:
    """Raises `RunError` for the first of ``processes`` that died, with the unit of ``running`` that it was at."""
    for process in processes:
        if not is_running(process.pid):
            at = [unit.key for unit in running if unit.role == process.role]
            moment = f"at '{at[0]}'" if at else "between two units of work"
            raise RunError(f"{process.described} died {moment}: it was killed, or ran out of memory")


def wait_for_death(processes: Sequence[Process], running: Sequence[Unit], seconds: float) -> None:
    """As `require_running`, for a process that is on its way out."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        require_running(processes, running)
        time.sleep(0.05)
