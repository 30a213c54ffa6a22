"""What travels between a pool and its ranks, as bytes: any plain object, and tensors by value.

torch registers reductions that move tensors through shared memory and file descriptors. Those outlive a killed rank and
run out in a long session; here a tensor is its dtype, its shape and its bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch


class _ByValue(ForkingPickler):
    def reducer_override(self, thing: Any) -> Any:
        return _reduce(thing) if isinstance(thing, torch.Tensor) else NotImplemented


def encode(thing: Any) -> bytes:
    """``thing`` as bytes.

    A tensor arrives contiguous, on the CPU, without its graph; a leaf keeps ``requires_grad``. Bits survive, NaN
    payloads included. One object named twice in ``thing`` stays one object; storage shared by two tensors does not.
    """
    buffer = io.BytesIO()
    _ByValue(buffer, -1).dump(thing)
    return buffer.getvalue()


def decode(data: bytes) -> Any:
    """What was encoded. Only for bytes from a process that this one started, or that started this one."""
    return ForkingPickler.loads(data)


def _reduce(tensor: torch.Tensor) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]]:
    # A copy: an empty tensor, or one of a single number, may have any stride and still be called contiguous.
    flat = tensor.detach().cpu().clone(memory_format=torch.contiguous_format).reshape(-1)
    data = flat.view(torch.uint8).numpy().tobytes()
    return _restore, (data, tensor.dtype, tuple(tensor.shape), tensor.is_leaf and tensor.requires_grad)


def _restore(data: bytes, dtype: torch.dtype, shape: tuple[int, ...], requires_grad: bool) -> torch.Tensor:
    flat = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return flat.reshape(shape).requires_grad_(requires_grad)
