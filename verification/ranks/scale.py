"""GDPO's step 3 at a scale that no machine at hand could start: thousands of virtual ranks, one protocol."""

from __future__ import annotations

import itertools
import resource
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch

from relax.algorithms.collective import Collective
from relax.algorithms.exact import whiten_segments
from relax.algorithms.exact.gdpo import whiten
from relax.algorithms.simulated import SimulatedWorld

RANKS, SEGMENTS, SAMPLES = 4096, 64, 262_144


@dataclass(frozen=True)
class ScaleProof:
    """What a run over virtual ranks gave, and what it took; ``differing`` counts samples whose bits are others than
    those of one process. ``grown_bytes`` is how much more memory the process held at its peak than before."""

    ranks: int
    segments: int
    samples: int
    differing: int
    failures: tuple[str, ...]
    exchanges: frozenset[int]
    seconds: float
    grown_bytes: int

    @property
    def holds(self) -> bool:
        return not self.differing and not self.failures and self.exchanges == {2}

    def __str__(self) -> str:
        return (
            f"step 3 over {self.ranks:,} virtual ranks, {self.segments} segments, {self.samples:,} samples: "
            f"{self.differing} samples differ from one process, exchanges a rank {sorted(self.exchanges)}, "
            f"{self.seconds:.1f} s ({1000 * self.seconds / self.ranks:.1f} ms a rank), {self.grown_bytes >> 20} MB more"
        )


def prove_at_scale(ranks: int = RANKS, segments: int = SEGMENTS, samples: int = SAMPLES) -> ScaleProof:
    """Whitens ``samples`` in ``segments`` optimizer batches over ``ranks`` virtual ranks, and once in one process.

    Half the samples lie in whole runs of one batch, the others one here and one there; some ranks hold nothing.
    """
    stream = np.random.default_rng(ranks)
    values = (stream.integers(-(2**23), 2**23, samples) / 2**21).astype(np.float32)
    segment_of = np.sort(stream.integers(0, segments, samples))
    rank_of = np.where(
        np.arange(samples) % 2, stream.integers(0, ranks, samples), np.arange(samples) * ranks // samples
    )
    rank_of[rank_of % 64 == 5] += 1  # every 64th rank is empty
    order = np.lexsort((segment_of, rank_of))
    bounds = np.searchsorted(rank_of[order], np.arange(ranks + 1))
    shards = [order[start:end] for start, end in itertools.pairwise(bounds)]

    def on_rank(collective: Collective, mine: np.ndarray) -> torch.Tensor:
        sizes = np.bincount(segment_of[mine], minlength=segments).tolist()
        return whiten_segments(torch.from_numpy(values[mine]), sizes, collective=collective)

    world = SimulatedWorld(ranks)
    before, started = _peak_bytes(), time.perf_counter()
    results = world.run(on_rank, shards)
    seconds, grown = time.perf_counter() - started, _peak_bytes() - before
    alone = np.empty(samples, dtype=np.float32)
    for segment in range(segments):
        alone[segment_of == segment] = whiten(values[segment_of == segment])
    failures = [f"rank {rank}: {result}" for rank, result in enumerate(results) if isinstance(result, Exception)]
    differing = sum(
        int((alone[mine].view(np.int32) != result.numpy().view(np.int32)).sum())
        for mine, result in zip(shards, results, strict=True)
        if isinstance(result, torch.Tensor)
    )
    return ScaleProof(ranks, segments, samples, differing, tuple(failures), frozenset(world.exchanges), seconds, grown)


def _peak_bytes() -> int:
    """The most memory that this process has held since its start."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
