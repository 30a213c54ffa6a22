"""Does the bits judge notice? Each kind of planted difference, and equality in all its forms."""

from __future__ import annotations

import math
import struct

import pytest
import torch

from verification.cases.case import Case
from verification.judges.bits import first_difference, judge_bits, shown
from verification.subjects.outcome import Failure, Outcome

CASE = Case("loss.reduce/grpo/planted", "loss.reduce", "grpo", {})
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def float32_of(bits: int) -> torch.Tensor:
    return torch.frombuffer(bytearray(struct.pack("<I", bits)), dtype=torch.float32)


def differences(got: Outcome, expected: Outcome):
    return [one for one in judge_bits(CASE, got, expected, "frozen") if not one.agrees]


def arrays(**named: torch.Tensor) -> Outcome:
    return Outcome(arrays=named)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("direction", [math.inf, -math.inf])
def test_one_ulp_is_noticed(dtype, direction):
    """One ulp in one element is a difference of 1 ulp at that index, in every float format."""
    good = torch.tensor([[0.5, 1.0, 3.0], [-2.0, 7.0, 9.0]], dtype=dtype)
    bad = good.clone()
    bad[1, 0] = torch.nextafter(bad[1, 0], torch.tensor(direction, dtype=dtype))
    (found,) = differences(arrays(x=bad), arrays(x=good))
    assert (found.what, found.ulps) == ("x", 1.0)
    assert "1 of 6 differ, first at [1, 0]" in found.detail


def test_the_sign_of_zero_is_noticed():
    """-0 in place of +0 is a difference although no ulp lies between them."""
    (found,) = differences(arrays(x=torch.tensor([1.0, -0.0])), arrays(x=torch.tensor([1.0, 0.0])))
    assert found.ulps == 0.0
    assert "got -0 (0x80000000), expected 0 (0x00000000)" in found.detail


def test_a_nan_payload_is_noticed():
    """Two NaNs of different payload differ."""
    (found,) = differences(arrays(x=float32_of(0x7FC00001)), arrays(x=float32_of(0x7FC00000)))
    assert "0x7fc00001" in found.detail
    assert "0x7fc00000" in found.detail


def test_equal_nans_agree():
    """The same NaN bits agree, and so do equal values of every other kind."""
    values = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, 3.4028235e38]
    for dtype in FLOATS:
        one, other = torch.tensor(values, dtype=dtype), torch.tensor(values, dtype=dtype)
        assert differences(arrays(x=one), arrays(x=other)) == []
    assert differences(arrays(x=float32_of(0xFFC01234)), arrays(x=float32_of(0xFFC01234))) == []


def test_a_nan_for_a_number_is_infinitely_far():
    """A NaN where a number is due is a difference of infinitely many ulps."""
    (found,) = differences(arrays(x=torch.tensor([1.0, math.nan])), arrays(x=torch.tensor([1.0, 2.0])))
    assert found.ulps == math.inf


def test_dtype_is_noticed():
    """The same numbers in another dtype differ."""
    (found,) = differences(arrays(x=torch.ones(2, dtype=torch.float64)), arrays(x=torch.ones(2)))
    assert found.detail == "dtype float64, expected float32"


@pytest.mark.parametrize("shape", [(1, 6), (6, 1), (2, 3), ()])
def test_shape_is_noticed(shape):
    """The same numbers in another shape differ."""
    bad = torch.ones(6).reshape(shape) if shape else torch.tensor(1.0)
    (found,) = differences(arrays(x=bad), arrays(x=torch.ones(6)))
    assert found.detail == f"shape {list(shape)}, expected [6]"


def test_missing_and_surplus_arrays_are_noticed():
    """An array that only one side has is a difference on either side."""
    both, one = arrays(x=torch.ones(1), y=torch.ones(1)), arrays(x=torch.ones(1))
    assert [(found.what, found.detail) for found in differences(one, both)] == [("y", "missing")]
    (found,) = differences(both, one)
    assert found.what == "y"
    assert "not expected" in found.detail


def test_integers_and_decisions_are_compared():
    """A flipped bool and another int are differences without ulps."""
    good = arrays(b=torch.tensor([True, False]), n=torch.tensor([1, 2]))
    bad = arrays(b=torch.tensor([True, True]), n=torch.tensor([1, 3]))
    found = differences(bad, good)
    assert [(one.what, one.ulps) for one in found] == [("b", None), ("n", None)]
    assert differences(good, arrays(b=torch.tensor([True, False]), n=torch.tensor([1, 2]))) == []


def test_a_changed_input_is_noticed():
    """An input that only one side changed, or changed to other bits, is a difference; the same change is none."""
    changed = Outcome(mutated={"kl[2]": torch.tensor([1.0])})
    (found,) = differences(changed, Outcome())
    assert found.what == "mutated inputs"
    assert "kl[2] (changed, expected untouched)" in found.detail
    (found,) = differences(Outcome(), changed)
    assert "kl[2] (untouched, expected changed)" in found.detail
    assert len(differences(changed, Outcome(mutated={"kl[2]": torch.tensor([-1.0])}))) == 1
    assert differences(changed, Outcome(mutated={"kl[2]": torch.tensor([1.0])})) == []


def test_aliasing_is_noticed():
    """Sharing lost and sharing gained are both differences."""
    shared = Outcome(aliases=frozenset({("advantages", "returns")}))
    (lost,) = differences(Outcome(), shared)
    assert lost.what == "aliases"
    assert "no longer shared: advantages and returns" in lost.detail
    (gained,) = differences(shared, Outcome())
    assert "newly shared: advantages and returns" in gained.detail


def test_a_wrong_exception_is_noticed():
    """Another exception type is a difference; the same type agrees whatever its message."""
    value, key = Outcome(failure=Failure("ValueError", "a")), Outcome(failure=Failure("KeyError", "a"))
    (found,) = differences(key, value)
    assert found.what == "failure"
    assert differences(value, Outcome(failure=Failure("ValueError", "other words"))) == []


def test_success_in_place_of_failure_is_noticed():
    """A result where the reference fails is a difference, and so is a failure where it has a result."""
    failed = Outcome(failure=Failure("ValueError", "no"))
    for got, expected in ((Outcome(), failed), (failed, arrays(x=torch.ones(1)))):
        (found,) = differences(got, expected)
        assert found.what == "failure"


def test_an_input_changed_before_a_failure_is_noticed():
    """Where a call failed, what it did to its inputs is compared as well, whether or not the other one failed."""
    refusal, touched = Failure("ValueError", "no"), {"samples[0].reward": torch.tensor([1.0])}
    clean, dirty = Outcome(failure=refusal), Outcome(failure=refusal, mutated=touched)
    for got, expected in ((dirty, clean), (clean, dirty)):
        assert [one.what for one in differences(got, expected)] == ["mutated inputs"]
    other = Outcome(failure=refusal, mutated={"samples[0].reward": torch.tensor([-1.0])})
    assert [one.what for one in differences(other, dirty)] == ["mutated inputs"]
    assert differences(dirty, Outcome(failure=Failure("ValueError", "no"), mutated=dict(touched))) == []
    assert [one.what for one in differences(dirty, arrays(x=torch.ones(1)))] == ["failure", "mutated inputs"]
    assert [one.what for one in judge_bits(CASE, clean, clean, "frozen")] == ["failure", "mutated inputs"]


def test_texts_are_noticed():
    """Another text, a missing and a surplus one are differences."""
    good = Outcome(texts={"roles": "actor=a"})
    assert [one.what for one in differences(Outcome(texts={"roles": "actor=b"}), good)] == ["text roles"]
    assert [one.what for one in differences(Outcome(), good)] == ["text roles"]
    assert [one.what for one in differences(good, Outcome())] == ["text roles"]
    assert differences(good, Outcome(texts={"roles": "actor=a"})) == []


def test_every_part_is_counted():
    """Equal outcomes give one agreeing comparison an array and text, one for inputs and one for aliases."""
    outcome = Outcome(arrays={"x": torch.ones(2), "y[0]": torch.empty(0)}, texts={"t": "1"})
    found = judge_bits(CASE, outcome, outcome, "frozen")
    assert [one.what for one in found] == ["x", "y[0]", "text t", "mutated inputs", "aliases"]
    assert all(one.agrees and one.against == "frozen" and one.judge == "bits" for one in found)


def test_strided_and_expanded_arrays_are_read_by_element():
    """Bits are those of the elements in order, not of the memory behind a transposed or expanded tensor."""
    square = torch.arange(4.0).reshape(2, 2)
    assert first_difference(square.t(), square) == 1
    assert first_difference(torch.tensor([5.0]).expand(3), torch.tensor([5.0, 5.0, 5.0])) is None


@pytest.mark.parametrize(("value", "text"), [(0.1, "0.1 (0x3dcccccd)"), (1e-45, "1e-45 (0x00000001)")])
def test_values_are_shown_by_the_shortest_decimal(value, text):
    """A float32 is shown by the shortest decimal that gives its bits back, and its bits."""
    assert shown(torch.tensor([value]), 0) == text
    assert shown(torch.tensor([3.4028235e38]), 0) == "3.4028235e+38 (0x7f7fffff)"
