"""A unit of work, and the list of a run's units: their order, and the weights that are handed from role to role."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from relax.core.registry import ACTOR, SFT

CONTROLLER = "controller"
"""The role of what the driver does itself."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One call of one role."""

    key: str
    """Unique, and what an error calls it: ``train on batch 3``."""
    role: str
    call: str
    """The method's name."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Numbers: which rollout, optimizer batch, slice of it or supervised step; of its rows `relax.core.rows` knows."""
    after: tuple[str, ...] = ()
    """Keys of the units that must be done before."""
    weights: str | None = None
    """Key of the unit whose result is handed over as ``weights``."""
    everywhere: bool = False
    """Every rank of the role does it, each with its share; otherwise rank 0 alone."""
    gives_weights: bool = False
    """Its result is for other units, and not read by the driver."""


class Units:
    """The units so far. Each comes after the one before of its role; where roles work ``in_turn``, after the one before
    of any, but for demonstrations.
    """

    def __init__(self, *, in_turn: bool) -> None:
        self.so_far: list[Unit] = []
        self._in_turn = in_turn
        self._last_of: dict[str, str] = {}
        self._holds: dict[str, int] = {}  # role to the version of the weights that it was given last
        self._published: set[int] = set()

    def add(
        self,
        key: str,
        role: str,
        call: str,
        arguments: Mapping[str, Any] | None = None,
        after: Iterable[str] = (),
        *,
        version: int | None = None,
        everywhere: bool = False,
        gives_weights: bool = False,
    ) -> str:
        """Adds a unit that comes ``after`` others, of a role that holds ``version`` of the weights by then; gives its
        key.
        """
        weights = None
        if version is not None and self._holds.get(role) != version:
            weights, self._holds[role] = self.publish(version), version
        needed = dict.fromkeys(after)
        if self._in_turn and self.so_far and role != SFT:
            needed[self.so_far[-1].key] = None
        for one in (self._last_of.get(role), weights):
            if one is not None:
                needed[one] = None
        unit = Unit(key, role, call, arguments or {}, tuple(needed), weights, everywhere, gives_weights)
        self.so_far.append(unit)
        self._last_of[role] = key
        return key

    def publish(self, version: int) -> str:
        """The unit that gives ``version`` of the weights, added where it was not yet: the actor holds it now."""
        key = f"weights {version}"
        if version not in self._published:
            self._published.add(version)
            self.add(key, ACTOR, "weights", {"version": version}, everywhere=True, gives_weights=True)
        return key
