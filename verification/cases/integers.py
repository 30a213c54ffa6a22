"""Inputs that are the same on every machine: integers of the standard library's generator, scaled by a power of two.

A float32 that is an integer of fewer than 25 bits over a power of two is exact, so no rounding, no transcendental
function and no tensor library decides what a case holds.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")

FLOAT32_INTEGER_BITS = 24


class Integers:
    """A stream of integers named by a text: equal names give equal streams.

    Only ``getrandbits`` of ``random.Random`` is used: the Mersenne twister's words and the seeding by a text are
    fixed by the standard library, while methods built upon them may change.
    """

    def __init__(self, name: str) -> None:
        self._source = random.Random(name)

    def below(self, bound: int) -> int:
        """An integer in [0, bound), each equally likely: words that are too large are drawn again."""
        if bound < 1:
            raise ValueError(f"bound is {bound}: there is no integer in [0, {bound})")
        bits = (bound - 1).bit_length()
        while True:
            word = self._source.getrandbits(bits) if bits else 0
            if word < bound:
                return word

    def between(self, low: int, high: int) -> int:
        """An integer in [low, high], both ends included."""
        return low + self.below(high - low + 1)

    def choice(self, items: Sequence[T]) -> T:
        """One of ``items``."""
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """A copy of ``items`` in another order (Fisher and Yates)."""
        result = list(items)
        for last in range(len(result) - 1, 0, -1):
            other = self.below(last + 1)
            result[last], result[other] = result[other], result[last]
        return result

    def quotients(self, count: int, low: int, high: int, bits: int) -> list[float]:
        """``count`` doubles k / 2**bits with k in [low, high]."""
        return [self.between(low, high) / (1 << bits) for _ in range(count)]

    def array(self, count: int, low: int, high: int, bits: int) -> np.ndarray:
        """``count`` float32 values k / 2**bits with k in [low, high]: ``[count]``, every one of them exact."""
        if max(abs(low), abs(high)).bit_length() > FLOAT32_INTEGER_BITS:
            raise ValueError(f"[{low}, {high}] needs more than {FLOAT32_INTEGER_BITS} bits: float32 would round")
        return np.array(self.quotients(count, low, high, bits), dtype=np.float32)
