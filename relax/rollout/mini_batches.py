"""Which samples of a rollout each rank trains on, and in which optimizer step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MiniBatchPlan:
    """One data-parallel rank's samples, by their positions in the rollout."""

    batches: tuple[tuple[int, ...], ...]
    """Those of each optimizer batch, in the order of the steps."""

    @property
    def positions(self) -> list[int]:
        """All of them, in that order."""
        return [position for batch in self.batches for position in batch]

    @property
    def sizes(self) -> list[int]:
        """``mini_batch_sizes`` of the advantage stage."""
        return [len(batch) for batch in self.batches]

    @property
    def own_batches(self) -> list[range]:
        """Each optimizer batch as positions among this rank's own samples."""
        ends = [sum(self.sizes[: k + 1]) for k in range(len(self.sizes))]
        return [range(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]


def mini_batch_plan(samples: int, global_batch_size: int, *, rank: int = 0, size: int = 1) -> MiniBatchPlan:
    """Optimizer batch k is samples ``k * global_batch_size`` on; rank r of ``size`` has the r-th part of each.

    Raises ValueError, naming the numbers, where samples do not fill the batches or ranks do not divide them.
    """
    if samples % global_batch_size or global_batch_size % size:
        raise ValueError(
            f"{samples} samples in optimizer batches of {global_batch_size} over {size} data-parallel ranks: each rank "
            "needs equally many of every batch; change --global-batch-size"
        )
    share = global_batch_size // size
    starts = range(rank * share, samples, global_batch_size)
    return MiniBatchPlan(tuple(tuple(range(start, start + share)) for start in starts))
