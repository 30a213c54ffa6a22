"""Which ranks this one shares what with: the process groups of megatron.core, read in one place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from relax.algorithms.collective import Collective, LocalCollective, LostPeer, agree, collective_for

_ALONE = LocalCollective()


@dataclass(frozen=True)
class Parallel:
    """A snapshot of this rank's groups, each with its ``size`` and this rank's ``rank`` in it; alone by default."""

    tensor: Collective = _ALONE
    """Holds the other parts of the vocabulary."""
    context: Collective = _ALONE
    """Holds the other parts of the same responses."""
    data: Collective = _ALONE
    """Holds the other samples, each of them once."""
    data_and_context: Collective = _ALONE
    """Holds the other tokens, each of them once."""
    stage: Collective = _ALONE
    """All ranks of this pipeline stage: tensor, context and data parallelism."""
    is_last_pipeline_stage: bool = True


def parallel() -> Parallel:
    """The groups of ``megatron.core.parallel_state``; one process alone where torch.distributed was not started.

    Raises RuntimeError where torch.distributed runs and megatron's groups were never made.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return Parallel()
    from megatron.core import parallel_state as groups

    if not groups.model_parallel_is_initialized():
        raise RuntimeError(
            "torch.distributed is started and megatron has no groups: call "
            "megatron.core.parallel_state.initialize_model_parallel on every rank first"
        )
    return Parallel(
        tensor=_collective(groups.get_tensor_model_parallel_group()),
        context=_collective(groups.get_context_parallel_group()),
        data=_collective(groups.get_data_parallel_group()),
        data_and_context=_collective(groups.get_data_parallel_group(with_context_parallel=True)),
        stage=_collective(groups.get_tensor_and_data_parallel_group(with_context_parallel=True)),
        is_last_pipeline_stage=groups.is_pipeline_last_stage(),
    )


def _collective(group: torch.distributed.ProcessGroup) -> Collective:
    """The group's collective; a group of one exchanges nothing."""
    collective = collective_for(group)
    return collective if collective.size > 1 else _ALONE


@contextmanager
def failing_together(ranks: Collective) -> Iterator[None]:
    """Every rank comes out of the block, or every rank raises what went wrong on any. A lost peer answers no more."""
    if ranks.size == 1:
        yield
        return
    try:
        yield
    except LostPeer:
        raise
    except Exception as failure:
        agree(ranks, failure)
        raise
    agree(ranks, None)
