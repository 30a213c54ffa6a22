"""The collectives that a statistic over a batch may use: the one place that names how ranks exchange numbers.

A statistic is written once against `Collective`. One process answers it with `LocalCollective`; ranks answer it with
real collectives behind the same four names.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch


@runtime_checkable
class Collective(Protocol):
    """The ranks that share a batch, as a statistic sees them.

    Contract:
    - Every rank of the group calls the same methods in the same order, with tensors of the same shape and dtype; a rank
      that holds no token and no sample joins all the same. Nothing may be raised on one rank alone between its start
      and its first collective: a complaint travels as data, and every rank raises it after looking at the same table.
    - No method changes its argument, and what it returns is not to be changed in place: it may be the argument.
    - Results are the same bits on every rank, on the device of the argument.
    - ``gather`` moves bits and computes nothing, so int64 and float64 arrive as they were sent. ``sum`` adds in the
      dtype of its argument, in an order that depends on the group's size.
    - A peer that dies or stays away becomes an exception on every rank that survives, within the group's time-out.

    The whitening of optimizer batches needs two calls of ``gather``, however many batches there are: a fixed int64
    header (version, status, first offending position, number of segments, number of samples), then one padded float64
    buffer.
    """

    @property
    def size(self) -> int:
        """How many ranks share the batch."""

    @property
    def rank(self) -> int:
        """This rank's place among them, from 0."""

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """The elementwise sum of every rank's ``tensor``: same shape, dtype and device."""

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's ``tensor`` in order of rank: ``size`` tensors of the same shape, dtype and device."""


class LocalCollective:
    """A group of one: the sum is the tensor, and so is the one entry that is gathered."""

    size = 1
    rank = 0

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return [tensor]


def collective_for(process_group: Any) -> Collective:
    """The collective of a process group; None is a group of one.

    A `Collective` is returned as it is, so that a simulated one can stand where a process group is expected.
    """
    if process_group is None:
        return LocalCollective()
    if isinstance(process_group, Collective):
        return process_group
    raise NotImplementedError(
        f"process_group is a {type(process_group).__name__}: statistics over several processes are not available yet; "
        "pass None to compute over this process alone, or an object with size, rank, sum and gather"
    )
