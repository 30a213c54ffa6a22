"""Virtual ranks within one process: the protocols of `Collective` at scales that no machine at hand could start."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from relax.algorithms.collective import LostPeer

STACK_BYTES = 1 << 20


class SimulatedWorld:
    """``size`` virtual ranks, each a thread; one of them runs at a time, so that memory is that of one.

    A collective completes when every rank has joined it. Where that can no longer happen, since a rank has ended or
    brings another operation, dtype or shape, those that wait get a `LostPeer`: nothing hangs.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.exchanges = [0] * size  # collectives that each rank entered
        self._turn = threading.Condition()  # held by the one rank that runs
        self._ended: list[int] = []
        self._begin()

    def run(self, function: Callable[[SimulatedRank, Any], Any], arguments: Sequence[Any]) -> list[Any]:
        """What ``function(collective, argument)`` returned on each rank, or the exception that it raised there."""
        results: list[Any] = [None] * self.size
        self._ended, self.exchanges = [], [0] * self.size
        self._begin()

        def one(rank: int, argument: Any) -> None:
            with self._turn:
                try:
                    results[rank] = function(SimulatedRank(self, rank), argument)
                except BaseException as error:  # whatever ends a rank, the others must not wait for it
                    results[rank] = error
                self._ended.append(rank)
                self._settle()

        before = threading.stack_size(STACK_BYTES)
        try:
            ranks = [
                threading.Thread(target=one, args=(rank, argument), daemon=True)
                for rank, argument in zip(range(self.size), arguments, strict=True)
            ]
            for thread in ranks:
                thread.start()
        finally:
            threading.stack_size(before)
        for thread in ranks:
            thread.join()
        return results

    def exchange(self, rank: int, what: str, tensor: torch.Tensor) -> torch.Tensor:
        """Joins the collective ``what``: every rank's tensor, ``[size, *shape]``, once all have joined."""
        self.exchanges[rank] += 1
        entered, outcome = self._entered, self._outcome
        entered[rank] = (f"{what} of {tensor.dtype} {tuple(tensor.shape)}", tensor.detach().clone())
        self._settle()
        while not outcome:
            self._turn.wait()
        if isinstance(outcome[0], LostPeer):
            raise LostPeer(str(outcome[0]))
        return outcome[0]

    def _begin(self) -> None:
        self._entered: dict[int, tuple[str, torch.Tensor]] = {}
        self._outcome: list[Any] = []  # filled once, and kept by those who wait for it

    def _settle(self) -> None:
        """Completes the collective where all have joined it, ends it where some never will."""
        entered = self._entered
        if not entered or len(entered) + len(self._ended) < self.size:
            return
        joined = sorted({name for name, _ in entered.values()})
        if self._ended:
            gone = ", ".join(map(str, sorted(self._ended)[:8]))
            self._outcome.append(LostPeer(f"rank {gone} ended, while others are in {' and '.join(joined)}"))
        elif len(joined) > 1:
            self._outcome.append(LostPeer(f"ranks are in different collectives: {' and '.join(joined)}"))
        else:
            self._outcome.append(torch.stack([entered[rank][1] for rank in range(self.size)]))
        self._begin()
        self._turn.notify_all()


class SimulatedRank:
    """One virtual rank's `Collective`."""

    def __init__(self, world: SimulatedWorld, rank: int) -> None:
        self.world, self.rank, self.size = world, rank, world.size

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        first, *others = self.world.exchange(self.rank, "sum", tensor)
        total = first.clone()
        for part in others:
            total += part
        return total

    def max(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.world.exchange(self.rank, "max", tensor).amax(dim=0)

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.world.exchange(self.rank, "gather", tensor)
