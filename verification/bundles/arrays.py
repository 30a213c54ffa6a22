"""The arrays of a bundle as one safetensors file: a flat tensor for each dtype, in which arrays lie one by one.

A bundle has hundreds of small arrays, and a tensor of its own for each would cost more than all the rest. What stands
for an array in the document is where it lies: ``["F32", start, [shape]]``, both counted in elements.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from verification.bundles.error import BundleError
from verification.bundles.strict_json import from_json

FILE = "arrays.safetensors"
MAX_DIMENSIONS = 8

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_LENGTH_BYTES = 8  # in front of the header, by the definition of safetensors


class ArrayWriter:
    """Collects arrays. A dtype that a bundle cannot hold is a ValueError."""

    def __init__(self) -> None:
        self.count = 0
        self._parts: dict[str, list[torch.Tensor]] = defaultdict(list)
        self._lengths: dict[str, int] = defaultdict(int)

    def add(self, array: torch.Tensor) -> list[Any]:
        """Takes an array in, and gives where it will lie."""
        if array.dtype not in _NAMES:
            raise ValueError(f"an array of {array.dtype}; a bundle holds {', '.join(DTYPES)}")
        if array.dim() > MAX_DIMENSIONS:
            raise ValueError(f"an array of {array.dim()} dimensions; a bundle holds up to {MAX_DIMENSIONS}")
        name = _NAMES[array.dtype]
        start = self._lengths[name]
        self._parts[name].append(array.detach().cpu().reshape(-1))
        self._lengths[name] += array.numel()
        self.count += 1
        return [name, start, list(array.shape)]

    def to_bytes(self) -> bytes:
        """The contents of the file."""
        return save({name: torch.cat(parts) for name, parts in sorted(self._parts.items())})


class ArrayReader:
    """The arrays in ``data``. The header is checked before anything is made of it; a BundleError names ``file``."""

    def __init__(self, data: bytes, file: str) -> None:
        _check_header(data, file)
        try:
            self._flat = load(data)
        except (SafetensorError, RuntimeError, ValueError) as error:
            raise BundleError(f"{file}: {error}") from None
        truths = self._flat.get("BOOL")
        if truths is not None and truths.numel() and truths.view(torch.uint8).max() > 1:
            raise BundleError(f"{file}: a truth value that is neither 0 nor 1")

    def at(self, place: Any) -> torch.Tensor:
        """The array that lies at ``place``, in memory of its own; a ValueError where none can."""
        if not isinstance(place, list) or len(place) != 3:
            raise ValueError(f"{place!r:.80} is no place of an array")
        name, start, shape = place
        if not isinstance(name, str) or name not in self._flat:
            raise ValueError(f"there are no arrays of dtype {name!r:.40}")
        if not _are_sizes([start]) or not _are_sizes(shape) or len(shape) > MAX_DIMENSIONS:
            raise ValueError(f"{place!r:.80} is no start and shape of an array")
        flat, size = self._flat[name], math.prod(shape)
        if start + size > flat.numel():
            raise ValueError(f"an array of {size} elements from {start} on, but there are {flat.numel()} of {name}")
        try:
            return flat[start : start + size].clone().reshape(shape)
        except RuntimeError as error:  # no elements, and sizes whose product has no number
            raise ValueError(f"{shape!r:.80} is no shape: {error}") from None


def _check_header(data: bytes, file: str) -> None:
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    begin = _LENGTH_BYTES + length
    if len(data) < max(begin, _LENGTH_BYTES):
        raise BundleError(
            f"{file}: {len(data)} bytes, but its header alone takes {begin}: no safetensors, or cut short"
        )
    header = from_json(data[_LENGTH_BYTES:begin].rstrip(b" "), f"{file}: header")
    if not isinstance(header, dict):
        raise BundleError(f"{file}: its header is no object")
    end = 0
    for start, stop in sorted(_extent(name, entry, f"{file}: {name[:40]!r}") for name, entry in header.items()):
        if start != end:
            raise BundleError(f"{file}: byte {end} belongs to no array, or to two")
        end = stop
    if end != len(data) - begin:
        raise BundleError(f"{file}: its arrays take {end} bytes, but {len(data) - begin} are there")


def _extent(name: str, entry: Any, place: str) -> tuple[int, int]:
    """The bytes that a flat tensor takes, after a look at its dtype and shape."""
    if name not in DTYPES or not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise BundleError(f"{place}: not one of {', '.join(DTYPES)} with dtype, shape and data_offsets")
    if entry["dtype"] != name:
        raise BundleError(f"{place}: its elements are said to be {entry['dtype']!r:.40}")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _are_sizes(shape) or len(shape) != 1:
        raise BundleError(f"{place}: its shape {shape!r:.80} is not that of a flat tensor")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise BundleError(f"{place}: {offsets!r:.80} is no place in the file")
    taken = shape[0] * DTYPES[name].itemsize
    if offsets[1] - offsets[0] != taken:
        raise BundleError(f"{place}: {shape[0]} elements take {taken} bytes, but it has {offsets[1] - offsets[0]}")
    return offsets[0], offsets[1]


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and 0 <= size < 2**40 for size in value)
