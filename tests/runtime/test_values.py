"""Values on their way between processes: every type, dtype, shape and bit comes back, and nothing else is taken."""

from __future__ import annotations

import struct
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from relax.transport.values import from_bytes, to_bytes

SIZES = {torch.uint8: 1, torch.int16: 2, torch.int32: 4, torch.int64: 8, torch.float16: 2, torch.bfloat16: 2}
SIZES |= {torch.float32: 4, torch.float64: 8, torch.complex64: 8, torch.float8_e4m3fn: 1, torch.float8_e5m2: 1}


def bits(tensor: torch.Tensor) -> bytes:
    """The memory of a tensor, in the order of its entries."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


@pytest.mark.parametrize("dtype", SIZES, ids=str)
@given(data=some.data())
def test_any_bits(dtype: torch.dtype, data: some.DataObject) -> None:
    """A tensor of any bit patterns comes back with its dtype, its shape and those bits."""
    shape = data.draw(some.lists(some.integers(0, 3), max_size=4))
    size = SIZES[dtype] * torch.Size(shape).numel()
    memory = bytearray(data.draw(some.binary(min_size=size, max_size=size)))
    given_tensor = (torch.frombuffer(memory, dtype=dtype) if size else torch.empty(0, dtype=dtype)).reshape(shape)
    found = from_bytes(to_bytes(given_tensor))
    assert dtype == found.dtype
    assert torch.Size(shape) == found.shape
    assert bytes(memory) == bits(found)


@given(some.binary(min_size=8, max_size=8))
def test_floats(memory: bytes) -> None:
    """A float is a float64 of the same bits: signed zeros, subnormals, infinities, and which nan it was."""
    found = from_bytes(to_bytes(struct.unpack("<d", memory)[0]))
    assert float is type(found)
    assert memory == struct.pack("<d", found)


@given(some.integers())
def test_ints(value: int) -> None:
    """An int of any size is the same int."""
    found = from_bytes(to_bytes(value))
    assert int is type(found)
    assert value == found


def test_true_and_false() -> None:
    """A tensor of truth values stays one."""
    found = from_bytes(to_bytes(torch.tensor([[True, False], [False, True]])))
    assert torch.bool == found.dtype
    assert found.tolist() == [[True, False], [False, True]]


def test_strides_and_gradients() -> None:
    """What comes back is what a transposed, sliced, conjugated or differentiated tensor says, not its memory."""
    counted = torch.arange(12.0).reshape(3, 4)
    assert counted.t()[::2].tolist() == from_bytes(to_bytes(counted.t()[::2])).tolist()
    conjugate = torch.tensor([1 + 2j]).conj()
    assert from_bytes(to_bytes(conjugate)).tolist() == [1 - 2j]
    differentiated = from_bytes(to_bytes(counted.requires_grad_() * 2))
    assert not differentiated.requires_grad
    assert differentiated[2, 3].item() == 22.0


def test_own_memory() -> None:
    """A tensor that came back may be written to, whatever became of the bytes."""
    data = to_bytes(torch.zeros(3))
    from_bytes(data).add_(1)
    assert from_bytes(data).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, "bool"),
        ("text", "str"),
        (None, "NoneType"),
        (numpy.float64(1.0), "float64"),
        ([1, 2], "list"),
        (torch.tensor([1.0]).to_sparse(), "a tensor of layout torch.sparse_coo"),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_refused(value: Any, kind: str) -> None:
    """What would not come back as what it was is refused by its kind."""
    with pytest.raises(TypeError) as caught:
        to_bytes(value)
    assert f"a value must be a dense tensor, an int or a float, not {kind}" == str(caught.value)
