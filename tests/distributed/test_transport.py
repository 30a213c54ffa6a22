"""What travels to a rank and back arrives as it was sent, tensors to the bit."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from verification.ranks.transport import decode, encode

BITS = [0x7FC00001, 0xFFC12345 - 2**32, 0x7F800000, 0xFF800000 - 2**32, 0x80000000 - 2**32, 1, 0x3F800000]


@dataclass
class Batch:
    rewards: list[torch.Tensor]
    args: argparse.Namespace


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.float64]
)
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (5,), (2, 1, 3)])
def test_a_tensor_keeps_dtype_shape_and_bits(dtype, shape):
    """Every size of element and of tensor, scalars and empty ones included."""
    count = int(np.prod(shape))
    tensor = torch.arange(1, count + 1).to(dtype).reshape(shape)
    arrived = decode(encode(tensor))
    assert (dtype, torch.Size(shape)) == (arrived.dtype, arrived.shape)
    assert tensor.tolist() == arrived.tolist()


def test_every_special_value_keeps_its_bits():
    """NaN payloads, infinities, a negative zero and a subnormal number."""
    tensor = torch.tensor(BITS, dtype=torch.int32).view(torch.float32)
    assert decode(encode(tensor)).view(torch.int32).tolist() == BITS


def test_a_view_travels_without_the_rest_of_its_storage():
    """A transposed slice of a large tensor arrives with its own elements only."""
    tensor = torch.arange(1_000_000).reshape(1000, 1000)[:2, :3].T
    assert decode(encode(tensor)).tolist() == [[0, 1000], [1, 1001], [2, 1002]]
    assert len(encode(tensor)) < 500


@pytest.mark.parametrize("view", [torch.arange(6)[::7], torch.arange(6)[3:3:2], torch.ones(1, 4).expand(3, 4)[:, 1:2]])
def test_a_view_travels_whatever_its_strides(view):
    """Of one element, of none, and of one that is repeated."""
    assert decode(encode(view)).tolist() == view.tolist()


def test_a_leaf_asks_for_its_gradient_again_and_a_result_does_not():
    """An argument can be differentiated by; the graph of a result stays behind."""
    leaf = torch.ones(2, requires_grad=True)
    arrived, result = decode(encode((leaf, leaf * 2)))
    assert (arrived.requires_grad, result.requires_grad, result.grad_fn) == (True, False, None)


def test_tensors_are_found_in_whatever_holds_them():
    """In lists of dataclasses, in namespaces and in mappings; one object named twice stays one object."""
    reward = torch.tensor([0.25])
    sent = Batch([reward, reward], argparse.Namespace(table={"a": (np.float32(1.5), reward)}))
    arrived = decode(encode(sent))
    assert arrived.rewards[0] is arrived.rewards[1] is arrived.args.table["a"][1]
    assert (arrived.rewards[0].tolist(), arrived.args.table["a"][0]) == ([0.25], np.float32(1.5))


def test_what_arrives_shares_no_memory():
    """A change on the other side is not seen on this one."""
    tensor = torch.zeros(3)
    decode(encode(tensor)).fill_(1)
    assert tensor.tolist() == [0, 0, 0]
