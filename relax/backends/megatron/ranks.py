"""Starting and ending the ranks that train together: torch.distributed over gloo, and megatron's groups on top."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist


def start_ranks(*, rank: int = 0, size: int = 1, rendezvous: str | None = None, timeout: float = 60.0) -> None:
    """Joins this process to ``size`` data-parallel ranks, as number ``rank``, and makes megatron's groups.

    ``rendezvous`` is where they meet, an address of torch.distributed such as ``file:///folder/name`` (a file that does
    not exist yet); a rank alone needs none and opens no port to wait on. ``timeout`` is that of the collectives, in
    seconds: a peer that is gone by then is a `LostPeer`. Raises ValueError for several ranks without a place to meet.
    """
    if size > 1 and rendezvous is None:
        raise ValueError(f"{size} ranks need a place to meet: give rendezvous, such as file:///folder/name")
    meeting = {"store": dist.HashStore()} if rendezvous is None else {"init_method": rendezvous}
    dist.init_process_group("gloo", rank=rank, world_size=size, timeout=timedelta(seconds=timeout), **meeting)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of optional packages, as megatron loads
        from megatron.core import parallel_state
    parallel_state.initialize_model_parallel()


def stop_ranks() -> None:
    """Leaves the ranks that `start_ranks` joined; without any, nothing happens."""
    if not dist.is_initialized():
        return
    from megatron.core import parallel_state

    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


@contextmanager
def ranks(*, rank: int = 0, size: int = 1, rendezvous: str | None = None, timeout: float = 60.0) -> Iterator[None]:
    """`start_ranks` for a block, which ends with `stop_ranks`."""
    start_ranks(rank=rank, size=size, rendezvous=rendezvous, timeout=timeout)
    try:
        yield
    finally:
        stop_ranks()
