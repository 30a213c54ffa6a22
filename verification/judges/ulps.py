"""Distances between floats in units in the last place, through int64 ordinals.

The ordinal of a float counts representable values from zero: neighbours differ by one, +0 and -0 both have ordinal 0
(numerically they are the same number; the bits judge is the one that tells them apart), infinity comes right after
the largest finite value. A NaN has no place on that line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Format:
    """A binary float format: the integer type of the same width, stored mantissa bits, smallest normal exponent."""

    bits: torch.dtype
    mantissa: int
    min_exponent: int
    max_exponent: int


FORMATS = {
    torch.float16: Format(torch.int16, 10, -14, 15),
    torch.bfloat16: Format(torch.int16, 7, -126, 127),
    torch.float32: Format(torch.int32, 23, -126, 127),
    torch.float64: Format(torch.int64, 52, -1022, 1023),
}
NAN_ORDINAL = torch.iinfo(torch.int64).min


def float_format(dtype: torch.dtype) -> Format:
    """The format of ``dtype``; a TypeError names a dtype that is no supported float."""
    if dtype not in FORMATS:
        raise TypeError(f"no ulps for dtype {dtype}: one of {', '.join(str(known) for known in FORMATS)} is needed")
    return FORMATS[dtype]


def ordinals(tensor: torch.Tensor) -> torch.Tensor:
    """int64 ordinals, same shape as ``tensor``: strictly increasing over -inf, the finite values and +inf.

    -0 and +0 both give 0. Every NaN gives ``NAN_ORDINAL``, a value that no number has.
    """
    layout = float_format(tensor.dtype)
    pattern = tensor.detach().contiguous().view(layout.bits).to(torch.int64)
    magnitude = pattern & torch.iinfo(layout.bits).max
    signed = torch.where(pattern < 0, -magnitude, magnitude)
    return torch.where(torch.isnan(tensor), torch.full_like(signed, NAN_ORDINAL), signed)


def ulp_distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """float64 distances, same shape: how many representable values lie between ``a`` and ``b`` (neighbours: 1).

    0 between two NaNs (their payloads are the business of the bits judge) and between +0 and -0; infinity between a
    NaN and a number. Unequal dtypes or shapes are an error: neither has a distance.
    """
    if a.dtype != b.dtype or a.shape != b.shape:
        raise ValueError(f"no distance between {a.dtype} {tuple(a.shape)} and {b.dtype} {tuple(b.shape)}")
    left, right = ordinals(a), ordinals(b)
    # Equal signs: the difference fits int64. Opposite signs: it may not (float64), but then a double sum is at most
    # one rounding away, which cannot turn a distance of 1 into 0.
    same_sign = (left >= 0) == (right >= 0)
    far = left.to(torch.float64).abs() + right.to(torch.float64).abs()
    near = (left - right).to(torch.float64).abs()
    distance = torch.where(same_sign, near, far)
    a_nan, b_nan = torch.isnan(a), torch.isnan(b)
    distance = torch.where(a_nan ^ b_nan, torch.full_like(distance, math.inf), distance)
    return torch.where(a_nan & b_nan, torch.zeros_like(distance), distance)


def ulp(value: float, dtype: torch.dtype) -> float:
    """The spacing of ``dtype`` in the binade of ``value``: 2^(exponent - mantissa), never below the least subnormal.

    At a power of two this is the spacing above it. Values beyond the largest finite one take its spacing, so that a
    distance stays a number; a NaN gives NaN.
    """
    layout = float_format(dtype)
    if math.isnan(value):
        return math.nan
    magnitude = abs(value)
    if magnitude == 0.0:
        exponent = layout.min_exponent
    elif math.isinf(magnitude):
        exponent = layout.max_exponent
    else:
        exponent = min(max(math.frexp(magnitude)[1] - 1, layout.min_exponent), layout.max_exponent)
    return math.ldexp(1.0, exponent - layout.mantissa)
