"""Where the samples and tokens of one batch lie: which data-parallel rank holds which samples, which context-parallel
rank which tokens.

The arithmetic is the harness's own, a position at a time, so that it is a check on the code that cuts and gathers.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from verification.ranks.layout import Layout

SPREADS = ("contiguous", "interleaved", "one-empty")
LAST_CHUNK = 2


@dataclass(frozen=True)
class Plan:
    """One batch on one layout of ranks.

    ``holders``: the data-parallel rank of each sample. ``sequence_lengths``: what each sequence is padded to before it
    is cut; ``told``: whether the ranks are given these, or find them from the total lengths. Lengths count tokens.
    """

    layout: Layout
    holders: tuple[int, ...]
    response_lengths: tuple[int, ...]
    total_lengths: tuple[int, ...]
    sequence_lengths: tuple[int, ...]
    told: bool

    def samples(self, dp_rank: int) -> tuple[int, ...]:
        """The samples of a data-parallel rank, in order."""
        return tuple(sample for sample, holder in enumerate(self.holders) if holder == dp_rank)

    def positions(self, sample: int, cp_rank: int) -> np.ndarray:
        """The positions of the sequence that a context-parallel rank holds, in the order in which it holds them."""
        length = self.sequence_lengths[sample]
        return held(0, length, length, self.layout.cp, cp_rank)

    def own(self, sample: int, cp_rank: int) -> np.ndarray:
        """The tokens of a response that a context-parallel rank computes: those whose logit it holds.

        The logit of a token stands one position before it.
        """
        last = self.total_lengths[sample] - 1
        first = last - self.response_lengths[sample]
        return held(first, last, self.sequence_lengths[sample], self.layout.cp, cp_rank)

    def sizes(self, dp_rank: int, batches: Sequence[int]) -> list[int]:
        """How many samples of each optimizer batch a data-parallel rank holds; ``batches`` counts those of all."""
        ends = np.cumsum(batches)
        batch_of = np.searchsorted(ends, self.samples(dp_rank), side="right")
        return np.bincount(batch_of, minlength=len(batches)).tolist()


@lru_cache(maxsize=4096)
def held(first: int, last: int, padded: int, cp_size: int, cp_rank: int) -> np.ndarray:
    """Which positions in [first, last) a context-parallel rank holds, counted from ``first``.

    Rank r has chunk r from the front and chunk r from the back of a sequence that is padded to ``padded``.
    """
    if cp_size == 1:
        return np.arange(last - first)
    chunk = np.arange(first, last) // (padded // (2 * cp_size))
    return np.flatnonzero(np.minimum(chunk, 2 * cp_size - 1 - chunk) == cp_rank)


def plan_for(
    identity: str,
    layout: Layout,
    response_lengths: Sequence[int],
    *,
    padded: bool = False,
    alike: bool = False,
    late: bool = False,
    idle: bool = False,
) -> Plan:
    """The plan that a case's id stands for.

    ``padded``: sequences are padded beyond what the cut needs. ``alike``: all to one length, as ``bshd`` lays them.
    ``late``: all responses lie in the last chunk of their sequence, so that one context-parallel rank has every token.
    ``idle``: one data-parallel rank of several holds no sample.
    """
    draw = zlib.crc32(identity.encode())
    holders = spread("one-empty" if idle else SPREADS[draw % len(SPREADS)], len(response_lengths), layout.dp, draw // 3)
    totals = [
        length + prompt_length(length, LAST_CHUNK if late else draw // 7 + sample)
        for sample, length in enumerate(response_lengths)
    ]
    unit = 2 * layout.cp if layout.cp > 1 else 1
    sequences = [rounded_up(total, unit) for total in totals]
    if padded and not late:
        sequences = [
            length + unit * ((draw // 11 + sample) % 4 + (sample == 0)) for sample, length in enumerate(sequences)
        ]
    if alike:
        sequences = [max(sequences)] * len(sequences)
    told = padded or (alike and layout.cp > 1)
    return Plan(layout, holders, tuple(response_lengths), tuple(totals), tuple(sequences), told)


def spread(kind: str, count: int, dp_size: int, draw: int) -> tuple[int, ...]:
    """The data-parallel rank of each of ``count`` samples.

    ``contiguous`` cuts the batch into blocks, ``interleaved`` deals the samples out, ``one-empty`` does so to all ranks
    but one.
    """
    if kind == "contiguous":
        return tuple(sample * dp_size // count for sample in range(count))
    if kind == "interleaved":
        return tuple(sample % dp_size for sample in range(count))
    if kind == "one-empty":
        without = [rank for rank in range(dp_size) if rank != draw % dp_size] or [0]
        return tuple(without[sample % len(without)] for sample in range(count))
    raise ValueError(f"spread {kind!r} is not one of {', '.join(SPREADS)}")


def prompt_length(response_length: int, draw: int) -> int:
    """A prompt of one of four kinds: the response fills the sequence, its second half, its last eighth, or two thirds.

    With two context-parallel ranks the last quarter of a sequence lies on one of them, the second half on both.
    """
    return (1, response_length + 1, 7 * response_length + 3, response_length // 2 + 2)[draw % 4]


def rounded_up(length: int, unit: int) -> int:
    """The smallest multiple of ``unit`` that is not below ``length``."""
    return -(-length // unit) * unit
