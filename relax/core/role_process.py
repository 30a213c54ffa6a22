"""One role in a process of its own: what Ray starts. Without Ray it is a plain object."""

from __future__ import annotations

import importlib
import os
import traceback
import warnings
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from relax.core.one_line import one_line
from relax.transport.queue import Queue

RAISED = (Exception, SystemExit)
"""What a function of one's own may end with: one that calls ``sys.exit`` must not end the process without a word."""


@dataclass(frozen=True)
class Start:
    """How one process of a role is started."""

    role: str
    path: str
    """``module:Class``."""
    rank: int = 0
    size: int = 1
    rendezvous: str | None = None
    """Where the ranks meet, as `relax.backends.megatron.ranks.start_ranks` takes it."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What this role's constructor takes beside the options of the run and the queue."""

    @property
    def name(self) -> str:
        """What errors call it."""
        return self.role if self.size == 1 else f"{self.role} rank {self.rank}"


@dataclass(frozen=True)
class Failure:
    """What went wrong inside a role, as data: an exception may not travel between processes, and these texts do."""

    kind: str
    message: str
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """That of an exception that was caught."""
        return cls(type(error).__name__, one_line(error), "".join(traceback.format_exception(error)))


class RoleProcess:
    """Joins its ranks, makes the role, and passes calls on. A failure is given back, never raised."""

    def __init__(self, start: Start, args: Namespace, queue: Queue) -> None:
        # Megatron's row-parallel layer warns, at every forward pass, of an argument that it itself leaves out.
        warnings.filterwarnings("ignore", "Warning. tp_group is None", DeprecationWarning)
        self._role: Any = None
        self._failure: Failure | None = None
        try:
            self._role = self._made(start, args, queue)
        except RAISED as error:
            self._failure = Failure.of(error)

    def ready(self) -> int | Failure:
        """This process's id, once the role is made."""
        return os.getpid() if self._failure is None else self._failure

    def call(self, name: str, arguments: Mapping[str, Any], weights: Any = None) -> Any:
        """What method ``name`` of the role gives; ``weights``, where there are any, are handed to it."""
        handed = {} if weights is None else {"weights": weights}
        try:
            return getattr(self._role, name)(**arguments, **handed)
        except RAISED as error:
            return Failure.of(error)

    def give(self, name: str, arguments: Mapping[str, Any]) -> tuple[Failure | None, Any]:
        """As `call`, for what goes to other roles: whether it failed comes apart from it."""
        given = self.call(name, arguments)
        return (given, None) if isinstance(given, Failure) else (None, given)

    @staticmethod
    def _made(start: Start, args: Namespace, queue: Queue) -> Any:
        import torch

        from relax.backends.megatron.ranks import start_ranks
        from relax.core.random_states import seed_random_states

        torch.set_num_threads(1)  # sums keep their order
        seed_random_states(args.seed)
        start_ranks(rank=start.rank, size=start.size, rendezvous=start.rendezvous, timeout=args.call_timeout)
        module, _, name = start.path.partition(":")
        return getattr(importlib.import_module(module), name)(args, queue, **start.options)
