"""What dispatch parity writes down of a call: values as they were, masks as numbers, and no trace left behind."""

from __future__ import annotations

import math
import re
import struct
from typing import Any

import pytest
import torch

from relax.algorithms import policy
from verification.parity.kernels import LIVE_KERNELS, Kernel, masks_as_numbers
from verification.parity.recorders import recording
from verification.parity.snapshots import difference, snapshot


class TestMasksAsNumbers:
    def test_dtypes_without_a_difference(self) -> None:
        """Integers and booleans read as the float32 that they count as, in both kinds of mask; nothing is changed."""
        numbers = [torch.tensor([1.0, 0.0])]
        for dtype in (torch.int64, torch.bool, torch.float32):
            given = {"loss_masks": [numbers[0].to(dtype)], "full_loss_masks": [numbers[0].to(dtype)], "kl_coef": 0.1}
            before = snapshot(given["loss_masks"])
            read = masks_as_numbers(given)
            assert snapshot(read["loss_masks"]) == snapshot(read["full_loss_masks"]) == snapshot(numbers)
            assert read["kl_coef"] == 0.1
            assert snapshot(given["loss_masks"]) == before

    def test_what_stays_a_difference(self) -> None:
        """Another mask, masks of double precision, and a mask that is missing where there is no KL still show."""
        ones = snapshot([torch.ones(2)])
        assert snapshot(masks_as_numbers({"loss_masks": [torch.tensor([1, 0])]})["loss_masks"]) != ones
        double = masks_as_numbers({"loss_masks": [torch.ones(2, dtype=torch.float64)]})
        assert snapshot(double["loss_masks"]) != ones
        assert masks_as_numbers({"loss_masks": None})["loss_masks"] is None
        assert snapshot(masks_as_numbers({"loss_masks": None, "kl": [torch.zeros(2)]})["loss_masks"]) == ones


NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]

UNEQUAL: list[tuple[Any, Any, str]] = [
    (torch.tensor([1.0, 0.0]), torch.tensor([1.0, -0.0]), "element 1: got 0 .*expected -0 "),
    (torch.tensor([1.0]), torch.tensor([1.0 + 2**-23]), "element 0"),
    (torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64), "float32.*float64"),
    (torch.tensor([1.0]), torch.tensor([[1.0]]), r"\[1\].*\[1, 1\]"),
    (torch.tensor([math.nan]).view(torch.int32), torch.tensor([math.nan]).view(torch.int32) + 1, "element 0"),
    ([1.0, [2.0, 3.0]], [1.0, [2.0, 4.0]], r"\[1\]\[1\] got 3.0, expected 4.0"),
    ([1.0], [1.0, 2.0], "list of 1.*list of 2"),
    (1, 1.0, "got 1, expected 1.0"),
    (0.0, -0.0, "got 0.0, expected -0.0"),
    (math.nan, NAN, "nan"),
    (True, 1, "True"),
    (None, 0, "None"),
    ("k1", "k2", "k1"),
]


class TestSnapshots:
    @pytest.mark.parametrize(("got", "expected", "words"), UNEQUAL)
    def test_differences_are_told(self, got: Any, expected: Any, words: str) -> None:
        """Type, shape, dtype and each bit count, and the first difference is named."""
        assert snapshot(got) != snapshot(expected)
        assert re.search(words, difference(snapshot(got), snapshot(expected)))

    def test_equal_values(self) -> None:
        """A value equals its own copy, NaN included, and a list equals a tuple of the same items."""
        value = [torch.tensor([math.nan, -0.0]), 0.1, None, "k1", (1, True)]
        copy = (torch.tensor([math.nan, -0.0]), 0.1, None, "k1", [1, True])
        assert difference(snapshot(value), snapshot(copy)) == ""

    def test_a_snapshot_does_not_follow_its_value(self) -> None:
        """What is changed later was recorded before."""
        value = torch.tensor([1.0])
        before = snapshot(value)
        value += 1
        assert before != snapshot(value)


class TestRecorders:
    def test_a_kernel_that_is_gone_is_an_error(self) -> None:
        """A recorder that cannot be placed is an error, not silence."""
        gone = Kernel("relax.algorithms.policy:no_such_formula", "", "no_such_formula")
        with pytest.raises(AttributeError, match="no_such_formula"), recording((gone,)):
            pass
        line = Kernel("relax.algorithms.policy:POLICY_LOSS_FNS[no_such_line]", "", None)
        with pytest.raises(KeyError, match="no_such_line"), recording((line,)):
            pass

    def test_recorders_leave_no_trace(self) -> None:
        """Tables and modules are as before once the block ends, also after an exception."""
        before = [dict(policy.POLICY_LOSS_FNS), policy.ppo_clip]

        def fail_while_recording() -> None:
            with recording(LIVE_KERNELS):
                assert policy.ppo_clip is not before[1]
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail_while_recording()
        assert [dict(policy.POLICY_LOSS_FNS), policy.ppo_clip] == before
