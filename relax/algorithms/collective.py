"""The collectives that a statistic over a batch may use: the one place that names how ranks exchange numbers.

A statistic is written once against `Collective`. One process answers it with `LocalCollective`, the ranks of a process
group with `GroupCollective`, and virtual ranks within one process with those of ``simulated.py``.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch

_LONGEST_COMPLAINT = 4096  # bytes


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
    - A peer that dies or stays away becomes a `LostPeer` on every rank that survives, within the group's time-out; with
      NCCL, whose calls return before they are done, only where TORCH_NCCL_BLOCKING_WAIT=1 makes them wait.

    The whitening of optimizer batches needs two calls of ``gather``, however many batches there are: a fixed int64
    header (version, status, first offending position, number of segments, number of samples, hash of the batch ids),
    then one padded float64 buffer.
    """

    @property
    def size(self) -> int:
        """How many ranks share the batch."""

    @property
    def rank(self) -> int:
        """This rank's place among them, from 0."""

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """The elementwise sum of every rank's ``tensor``: same shape, dtype and device."""

    def max(self, tensor: torch.Tensor) -> torch.Tensor:
        """The elementwise maximum of every rank's ``tensor``: same shape, dtype and device."""

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """Every rank's ``tensor`` in order of rank: ``[size, *shape]``, same dtype and device."""


class LostPeer(RuntimeError):
    """A collective did not complete: a rank of the group ended, stayed away, or brought another tensor."""


class RankFailure(RuntimeError):
    """Ranks failed before a statistic over all of them; raised on every rank, with each one's own message."""


class LocalCollective:
    """A group of one: the sum is the tensor, and so are the maximum and the one row that is gathered."""

    size = 1
    rank = 0

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def max(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.unsqueeze(0)


class GroupCollective:
    """The ranks of a torch.distributed process group, each method one collective.

    Tensors cross on the device that the group's backend works on: the current GPU for NCCL, the CPU for gloo, and for
    a group with a backend for each the device that they are on. They carry no gradient.
    """

    def __init__(self, process_group: torch.distributed.ProcessGroup) -> None:
        self.process_group = process_group
        self.size = torch.distributed.get_world_size(process_group)
        self.rank = torch.distributed.get_rank(process_group)
        if self.rank < 0:
            raise ValueError("this process is no member of process_group: call with the group that its rank belongs to")

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._reduced(tensor, torch.distributed.ReduceOp.SUM)

    def max(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._reduced(tensor, torch.distributed.ReduceOp.MAX)

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        sent = self._own_copy(tensor)
        gathered = sent.new_empty(self.size, *sent.shape)
        if torch.distributed.get_backend(self.process_group) == "gloo":
            # One hop to each peer, where gloo's all_gather takes size - 1 hops around a ring.
            copies = sent.expand_as(gathered).contiguous()
            self._collective(torch.distributed.all_to_all_single, tensor, gathered, copies)
        else:
            self._collective(torch.distributed.all_gather, tensor, list(gathered), sent)
        return gathered.to(tensor.device)

    def _reduced(self, tensor: torch.Tensor, operation: Any) -> torch.Tensor:
        result = self._own_copy(tensor)
        self._collective(torch.distributed.all_reduce, tensor, result, operation)
        return result.to(tensor.device)

    def _own_copy(self, tensor: torch.Tensor) -> torch.Tensor:
        backend = torch.distributed.get_backend(self.process_group)
        device = {"nccl": torch.device("cuda"), "gloo": torch.device("cpu")}.get(backend, tensor.device)
        return tensor.detach().to(device, copy=True, memory_format=torch.contiguous_format)

    def _collective(self, call: Any, tensor: torch.Tensor, *arguments: Any) -> None:
        try:
            call(*arguments, group=self.process_group)
        except RuntimeError as error:
            raise LostPeer(
                f"{call.__name__} of {tensor.dtype} {tuple(tensor.shape)} over {self.size} ranks failed on rank "
                f"{self.rank} of them: {error}; a peer has ended or did not arrive in time, see its own log"
            ) from error


def collective_for(process_group: Any) -> Collective:
    """The collective of a process group of torch.distributed; None is a group of one.

    A `Collective` is returned as it is, so that a simulated one can stand where a process group is expected. Raises
    TypeError for anything else, and ValueError for a group that this process is no member of.
    """
    if process_group is None:
        return LocalCollective()
    if isinstance(process_group, Collective):
        return process_group
    if torch.distributed.is_available() and isinstance(process_group, torch.distributed.ProcessGroup):
        return GroupCollective(process_group)
    raise TypeError(
        f"process_group is a {type(process_group).__name__}: expected a process group of torch.distributed, an object "
        "with size, rank, sum, max and gather, or None for this process alone"
    )


def agree(collective: Collective, failure: Exception | None) -> None:
    """Ends on every rank or fails on every rank: the meeting before the first statistic over all of them.

    Each rank brings what went wrong in its own preparation, or None. Where any rank brings a failure all raise the
    same `RankFailure`, which lists each such rank with the type and message of its own; where all bring the same one,
    each raises that. One small ``gather``, and a second one where there is something to tell.
    """
    told = b"" if failure is None else f"{type(failure).__name__}: {failure}".encode()[:_LONGEST_COMPLAINT]
    lengths = [int(length) for length in collective.gather(torch.tensor([len(told)]))]
    if not any(lengths):
        return
    sent = torch.zeros(max(lengths), dtype=torch.uint8)
    sent[: len(told)] = torch.tensor(list(told), dtype=torch.uint8)
    texts = [
        bytes(text[:length].tolist()).decode(errors="replace")
        for text, length in zip(collective.gather(sent), lengths, strict=True)
    ]
    by_text: dict[str, list[int]] = {}
    for rank, text in enumerate(texts):
        by_text.setdefault(text, []).append(rank)
    if failure is not None and len(by_text) == 1:
        raise failure
    said = "; ".join(f"{_named(ranks)}: {text}" for text, ranks in by_text.items() if text)
    raise RankFailure(f"before a statistic over {collective.size} ranks: {said}") from failure


def _named(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"rank{'s' * (len(ranks) > 1)} {shown}" + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
