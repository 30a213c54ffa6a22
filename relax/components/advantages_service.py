"""The advantages role as a Ray Serve deployment: one replica, reached by a handle, with no HTTP server beside it.

Serve starts a replica anew where one died, and the new one knows nothing of the rows that the old one had gathered.
Every call therefore says which process it means, and any other does nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
from argparse import Namespace
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from relax.core.deadline import Overdue, in_thread, within
from relax.core.one_line import kind_and_line
from relax.core.processes import is_running
from relax.core.role_process import RAISED, Failure
from relax.transport.queue import Queue

NAME = "advantages"


class ServiceError(RuntimeError):
    """The service did not start, or its replica died; one line with the remedy."""


class Replica:
    """What Serve runs: the role, its failures given back as data, as `relax.core.role_process.RoleProcess` does."""

    def __init__(self, args: Namespace, queue: Queue) -> None:
        import torch

        from relax.components.advantages import Advantages

        torch.set_num_threads(1)  # sums keep their order
        self._role = Advantages(args, queue)

    def process(self) -> int:
        """The id of this process."""
        return os.getpid()

    def call(self, process: int, name: str, arguments: Mapping[str, Any]) -> tuple[int, Any]:
        """This process's id, and what method ``name`` of the role gives if it is ``process`` that was meant."""
        if process != os.getpid():
            return os.getpid(), None
        try:
            return process, getattr(self._role, name)(**arguments)
        except RAISED as error:
            return process, Failure.of(error)


@dataclass(frozen=True)
class AdvantagesService:
    """The driver's side of the replica."""

    handle: Any
    process: int
    deadline: float  # seconds for one call

    def call(self, name: str, arguments: Mapping[str, Any]) -> Future[Any]:
        """What method ``name`` of `relax.components.advantages.Advantages` gives, or a `Failure`, when it is done.

        The future raises `ServiceError` where the replica died, and `Overdue` where it does not answer.
        """
        sent = dict(arguments)
        return in_thread(lambda: within(self.deadline, lambda: self._called(name, sent), self.require_alive))

    def require_alive(self) -> None:
        """Raises `ServiceError` where the replica's process is no more."""
        if not is_running(self.process):
            raise self._died()

    def _called(self, name: str, arguments: dict[str, Any]) -> Any:
        from ray.exceptions import RayError

        try:
            answering, result = self.handle.call.remote(self.process, name, arguments).result()
        except RayError as error:
            raise self._died() from error
        if answering != self.process:
            raise self._died()
        return result

    def _died(self) -> ServiceError:
        return ServiceError(
            f"the advantages replica (process {self.process}) died, and the rows that it had gathered are lost"
        )


def deploy_advantages(args: Namespace, queue: Queue) -> AdvantagesService:
    """Starts the service in the Ray that runs; raises `ServiceError` where it is not there in ``args.call_timeout`` s.

    Serve's controller and the replica reserve no logical CPU of a role's.
    """
    from ray import serve
    from ray.serve.schema import LoggingConfig

    logging.getLogger("ray.serve").setLevel(logging.CRITICAL)  # of this process; the others' by the configuration
    quiet = LoggingConfig(log_level=logging.CRITICAL, enable_access_log=False)
    deployment: Any = serve.deployment(
        Replica,
        name=NAME,
        num_replicas=1,
        max_ongoing_requests=1,
        ray_actor_options={"num_cpus": 0},
        graceful_shutdown_wait_loop_s=0.1,  # seconds that the replica waits at its end, where nothing is asked of it
        logging_config=quiet,
    )

    def start() -> AdvantagesService:
        serve.start(proxy_location="Disabled", logging_config=quiet)
        handle = serve.run(deployment.bind(args, queue), name=NAME, route_prefix=None, logging_config=quiet)
        return AdvantagesService(handle, handle.process.remote().result(), args.call_timeout)

    try:
        return within(args.call_timeout, start)
    except Overdue as error:
        raise ServiceError(f"the advantages service did not start: {error}; raise --call-timeout") from error
    except Exception as error:
        raise ServiceError(f"the advantages service did not start: {kind_and_line(error)}") from error


def stop_advantages(deadline: float = 30.0) -> None:
    """Ends Serve and its processes, where it runs; whatever is wrong by then has been said, and Ray's end is near."""
    from ray import serve

    with contextlib.suppress(Exception):
        within(deadline, serve.shutdown)
