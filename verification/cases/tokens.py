"""Token tensors of responses: log-probabilities, advantages and loss masks, ragged, from integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from verification.cases.integers import Integers

LOG_PROB_BITS = 14  # multiples of 2**-14: sums and differences of a few of them are exact in float32

MASK_KINDS = ("full", "holes", "trailing", "leading", "first", "last")


def log_probs(stream: Integers, lengths: Sequence[int]) -> list[np.ndarray]:
    """One ``[R_i]`` array a response, values in [-8, 0]."""
    return [stream.array(length, -8 << LOG_PROB_BITS, 0, LOG_PROB_BITS) for length in lengths]


def moved(stream: Integers, arrays: Sequence[np.ndarray], *, by: float) -> list[np.ndarray]:
    """The arrays, each value moved by at most ``by`` in either direction; exact, since all are multiples of 2**-14."""
    reach = int(by * (1 << LOG_PROB_BITS))
    return [array + stream.array(len(array), -reach, reach, LOG_PROB_BITS) for array in arrays]


def noise(stream: Integers, lengths: Sequence[int], *, reach: int = 4) -> list[np.ndarray]:
    """One ``[R_i]`` array a response, values in [-reach, reach] with 16 bits behind the point."""
    return [stream.array(length, -reach << 16, reach << 16, 16) for length in lengths]


def constant(lengths: Sequence[int], values: Sequence[float]) -> list[np.ndarray]:
    """One ``[R_i]`` array a response, the response's own value at each token."""
    return [np.full(length, value, dtype=np.float32) for length, value in zip(lengths, values, strict=True)]


def mask(kind: str, stream: Integers, length: int) -> np.ndarray:
    """``[length]`` of zeros and ones. ``zero`` aside, a response of any token keeps at least one."""
    result = np.ones(length, dtype=np.float32)
    if kind == "full" or length == 0:
        return result
    if kind == "holes":
        result = np.array([stream.below(2) for _ in range(length)], dtype=np.float32)
        result[stream.below(length)] = 1.0
    elif kind == "trailing":
        result[(length + 1) // 2 :] = 0.0
    elif kind == "leading":
        result[: length // 2] = 0.0
    elif kind == "first":
        result[1:] = 0.0
    elif kind == "last":
        result[:-1] = 0.0
    elif kind == "zero":
        result[:] = 0.0
    else:
        raise ValueError(f"mask kind {kind!r} is not one of {', '.join(MASK_KINDS)}, zero")
    return result


def masks(kind: str, stream: Integers, lengths: Sequence[int]) -> list[np.ndarray]:
    """One mask a response."""
    return [mask(kind, stream, length) for length in lengths]


def other_masks(stream: Integers, lengths: Sequence[int]) -> Iterator[tuple[str, list[np.ndarray] | None]]:
    """Masks as samplers write them too, by name: none at all, integers, booleans, and one dtype after another."""
    yield "none", None
    holes = masks("holes", stream, lengths)
    yield "int64", [array.astype(np.int64) for array in holes]
    yield "bool", [array.astype(np.bool_) for array in holes]
    kinds = (np.int64, np.float32, np.bool_)
    yield "mixed-dtypes", [array.astype(kinds[k % 3]) for k, array in enumerate(holes)]
