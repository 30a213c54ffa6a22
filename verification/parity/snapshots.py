"""Values as they were at one moment, to the bit: what a recorder keeps of arguments and results."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from verification.judges.bits import shown

Snapshot = tuple[Any, ...]


def snapshot(value: Any) -> Snapshot:
    """``value`` as nested tuples that compare equal exactly where type, shape, dtype and every bit are equal.

    Lists and tuples count alike: a kernel may be handed either.
    """
    if isinstance(value, torch.Tensor):
        kept = value.detach().cpu().contiguous().clone()
        return "tensor", str(kept.dtype), tuple(kept.shape), kept.reshape(-1).view(torch.uint8).numpy().tobytes()
    if isinstance(value, np.ndarray):
        return snapshot(torch.from_numpy(value.copy()))
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    if isinstance(value, list | tuple):
        return "list", tuple(snapshot(item) for item in value)
    if isinstance(value, Mapping):
        return "mapping", tuple((str(name), snapshot(item)) for name, item in value.items())
    return type(value).__name__, repr(value)


def identities(value: Any) -> Snapshot:
    """Which lists and tensors below ``value`` are the same object: each by the number of its first appearance."""
    numbers: dict[int, int] = {}

    def walk(item: Any) -> Snapshot:
        if isinstance(item, list):
            return numbers.setdefault(id(item), len(numbers)), tuple(walk(part) for part in item)
        if isinstance(item, tuple):
            return tuple(walk(part) for part in item)
        if isinstance(item, torch.Tensor):
            return (numbers.setdefault(id(item), len(numbers)),)
        return ()

    return walk(value)


def difference(got: Snapshot, expected: Snapshot, path: str = "") -> str:
    """The first place where two snapshots differ, with both values; empty where they do not."""
    if got == expected:
        return ""
    if got[0] == expected[0] == "list" and len(got[1]) == len(expected[1]):
        for index, (one, other) in enumerate(zip(got[1], expected[1], strict=True)):
            if one != other:
                return difference(one, other, f"{path}[{index}]")
    if got[0] == expected[0] == "tensor" and got[1:3] == expected[1:3]:
        dtype = getattr(torch, got[1].removeprefix("torch."))
        one = torch.frombuffer(bytearray(got[3]), dtype=dtype)
        other = torch.frombuffer(bytearray(expected[3]), dtype=dtype)
        size = one.element_size()
        for index in range(one.numel()):
            if got[3][index * size : (index + 1) * size] != expected[3][index * size : (index + 1) * size]:
                return f"{path} element {index}: got {shown(one, index)}, expected {shown(other, index)}".strip()
    return f"{path} got {_told(got)}, expected {_told(expected)}".strip()


def _told(value: Snapshot) -> str:
    if value[0] == "tensor":
        return f"{value[1].removeprefix('torch.')} {list(value[2])}"
    if value[0] == "float":
        return repr(struct.unpack("<d", value[1])[0])
    if value[0] == "list":
        return f"a list of {len(value[1])}"
    return str(value[-1])
