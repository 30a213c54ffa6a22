"""Ordinals and distances in ulps for the four float formats."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verification.judges.ulps import FORMATS, NAN_ORDINAL, ordinals, ulp, ulp_distance

DTYPES = tuple(FORMATS)
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def every_pattern(dtype: torch.dtype) -> torch.Tensor:
    """All 65,536 numbers of a 16-bit format."""
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_ordinals_of_a_16_bit_format_count_its_numbers(dtype):
    """Sorted by value, the distinct numbers from -inf to inf have consecutive ordinals around 0 at zero."""
    patterns = every_pattern(dtype)
    numbers = patterns[~torch.isnan(patterns)].to(torch.float64)
    order = torch.argsort(numbers, stable=True)
    sorted_ordinals = ordinals(patterns[~torch.isnan(patterns)])[order]
    steps = torch.diff(sorted_ordinals)
    assert int(sorted_ordinals[0]) == -int(sorted_ordinals[-1])
    assert sorted(steps.unique().tolist()) == [0, 1]
    assert int((steps == 0).sum()) == 1  # -0 and +0 alone share an ordinal


@by_dtype
def test_infinity_follows_the_largest_finite_number(dtype):
    """The ordinal of inf is one more than that of the largest finite number, and likewise below."""
    ends = torch.tensor([torch.finfo(dtype).max, math.inf, -torch.finfo(dtype).max, -math.inf], dtype=dtype)
    largest, infinity, least, minus = ordinals(ends).tolist()
    assert infinity == largest + 1
    assert minus == least - 1


@by_dtype
def test_neighbours_across_zero_are_two_apart(dtype):
    """The least subnormals of either sign are one from zero and two from each other."""
    bits = FORMATS[dtype].bits
    least = torch.tensor([1], dtype=bits).view(dtype)
    assert ulp_distance(least, -least).tolist() == [2.0]
    assert ulp_distance(least, torch.zeros(1, dtype=dtype)).tolist() == [1.0]
    assert ulp_distance(-torch.zeros(1, dtype=dtype), torch.zeros(1, dtype=dtype)).tolist() == [0.0]


@by_dtype
def test_nan_is_infinitely_far_from_a_number_only(dtype):
    """A NaN is 0 from a NaN, infinitely far from any number, and has the ordinal that no number has."""
    nan = torch.tensor([math.nan], dtype=dtype)
    for number in (0.0, 1.0, -math.inf):
        assert ulp_distance(nan, torch.tensor([number], dtype=dtype)).tolist() == [math.inf]
        assert ulp_distance(torch.tensor([number], dtype=dtype), nan).tolist() == [math.inf]
    assert ulp_distance(nan, nan).tolist() == [0.0]
    assert ordinals(nan).tolist() == [NAN_ORDINAL]


def test_the_whole_line_of_float64_has_a_distance():
    """Between -inf and inf lie 2 * 0x7ff0000000000000 steps, more than int64 holds."""
    ends = torch.tensor([-math.inf, math.inf], dtype=torch.float64)
    assert ulp_distance(ends[:1], ends[1:]).item() == 2.0 * 0x7FF0000000000000


WELL_BELOW_THE_END = 2.0**127
finite_singles = st.floats(-WELL_BELOW_THE_END, WELL_BELOW_THE_END, width=32)


@given(finite_singles, st.integers(1, 40))
def test_steps_of_nextafter_are_counted(start, steps):
    """``steps`` calls of numpy's nextafter towards inf lead ``steps`` ulps away."""
    number = np.float32(start)
    for _ in range(steps):
        number = np.nextafter(number, np.float32(math.inf))
    assert ulp_distance(torch.tensor([start], dtype=torch.float32), torch.tensor([float(number)])).item() == steps


@given(finite_singles)
def test_ulp_is_the_gap_above_the_magnitude(value):
    """For float32 the ulp of a number is the distance from its magnitude to the next larger one."""
    size = np.float32(abs(value))
    above = np.nextafter(size, np.float32(math.inf))
    assert ulp(value, torch.float32) == float(above) - float(size)


@by_dtype
def test_ulp_of_one_is_epsilon(dtype):
    """The ulp of 1 is the machine epsilon, of 2 - epsilon the same, of 2 twice that."""
    eps = torch.finfo(dtype).eps
    assert ulp(1.0, dtype) == ulp(-1.0, dtype) == ulp(2.0 - eps, dtype) == eps
    assert ulp(2.0, dtype) == 2 * eps
    assert ulp(0.0, dtype) == torch.finfo(dtype).tiny * eps
    assert ulp(math.inf, dtype) == ulp(torch.finfo(dtype).max, dtype)
    assert math.isnan(ulp(math.nan, dtype))


def test_shape_and_strides_are_kept():
    """Ordinals of a transposed view come back in its shape and order."""
    grid = torch.tensor([[1.0, 2.0, 3.0], [-1.0, -2.0, -3.0]])
    expected = [
        [struct.unpack("<i", struct.pack("<f", abs(v)))[0] * (1 if v > 0 else -1) for v in r] for r in grid.tolist()
    ]
    assert ordinals(grid.t()).t().tolist() == expected
    assert ordinals(torch.zeros(0, dtype=torch.float16)).tolist() == []


def test_what_has_no_distance_is_refused():
    """Integers, unequal dtypes and unequal shapes are errors that name what was given."""
    with pytest.raises(TypeError, match="int64"):
        ordinals(torch.tensor([1]))
    with pytest.raises(ValueError, match="float16"):
        ulp_distance(torch.zeros(1), torch.zeros(1, dtype=torch.float16))
    with pytest.raises(ValueError, match=r"\(2,\)"):
        ulp_distance(torch.zeros(1), torch.zeros(2))
