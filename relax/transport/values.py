"""One value of a row as bytes, and back: every dtype, shape and bit, with nothing that runs code when it is read."""

from __future__ import annotations

import struct
from typing import Any

import torch


def to_bytes(value: Any) -> bytes:
    """``value``, a strided tensor of any dtype and shape, an int or a float, behind a line that says which it is.

    Raises `TypeError` for anything else: a truth value and a number of numpy would not come back as what they were.
    """
    if type(value) is int:
        return b"int\n%d" % value
    if type(value) is float:
        return b"float\n" + struct.pack("<d", value)
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_quantized:
        raise TypeError(f"a value must be a dense tensor, an int or a float, not {_kind(value)}")
    dense = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    shape = ",".join(map(str, dense.shape))
    data = dense.reshape(-1).view(torch.uint8).numpy().tobytes() if dense.numel() else b""
    return f"{str(dense.dtype).removeprefix('torch.')} {shape}\n".encode() + data


def from_bytes(data: bytes) -> Any:
    """The value that `to_bytes` was given; a tensor is on the CPU, and in memory of its own."""
    header, _, content = data.partition(b"\n")
    if header == b"int":
        return int(content)
    if header == b"float":
        return struct.unpack("<d", content)[0]
    name, shape = header.decode().split(" ")
    dtype, sizes = getattr(torch, name), [int(size) for size in shape.split(",") if size]
    if not content:
        return torch.empty(sizes, dtype=dtype)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(dtype).reshape(sizes)


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "a quantized tensor" if value.is_quantized else f"a tensor of layout {value.layout}"
    return type(value).__name__
