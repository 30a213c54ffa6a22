"""Elements of a golden: the dtypes that can be written, their bits as hex words, and the values beside them."""

from __future__ import annotations

import functools
import math
import struct

import numpy as np
import torch

DTYPES: dict[str, torch.dtype] = {
    "bool": torch.bool,
    "uint8": torch.uint8,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
_CODES = {"float16": ("e", "H"), "float32": ("f", "I"), "float64": ("d", "Q")}
_LONGEST_DECIMAL = {"float16": 5, "bfloat16": 4, "float32": 9}


def hex_digits(dtype: str) -> int:
    """Hex digits of one element of the dtype called ``dtype``."""
    return 2 * DTYPES[dtype].itemsize


def words(array: torch.Tensor) -> list[int]:
    """The bit pattern of every element, in row-major order, as unsigned integers."""
    flat = array.detach().cpu().contiguous().reshape(-1)
    if flat.numel() == 0:
        return []
    return np.frombuffer(flat.view(torch.uint8).numpy().tobytes(), dtype=f"=u{array.dtype.itemsize}").tolist()


def from_words(bits: list[int], dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """The tensor of ``shape`` whose elements have these bit patterns; the inverse of `words`."""
    if not bits:
        return torch.empty(shape, dtype=DTYPES[dtype])
    raw = np.array(bits, dtype=f"=u{DTYPES[dtype].itemsize}").view(np.uint8)
    return torch.from_numpy(raw).view(DTYPES[dtype]).reshape(shape)


@functools.lru_cache(maxsize=2**16)
def decimal(word: int, dtype: str) -> str:
    """One element as text: a float as the shortest decimal that reads back as the same number of that dtype.

    The cache is keyed by the bits, since +0 and -0 are equal as numbers.
    """
    if not DTYPES[dtype].is_floating_point:
        return _whole(word, dtype)
    value = _as_double(word, dtype)
    if dtype == "float64" or not math.isfinite(value):
        return repr(value)
    enough, too_few = _LONGEST_DECIMAL[dtype], 0
    while enough - too_few > 1:  # one digit more is never further from the value
        digits = (enough + too_few) // 2
        if _rounds_to(float(f"{value:.{digits}g}"), word, dtype):
            enough = digits
        else:
            too_few = digits
    return f"{value:.{enough}g}"


def _whole(word: int, dtype: str) -> str:
    if dtype == "bool":
        return "true" if word else "false"
    bits = 4 * hex_digits(dtype)
    negative = DTYPES[dtype].is_signed and word >> (bits - 1)
    return str(word - (1 << bits) if negative else word)


def _as_double(word: int, dtype: str) -> float:
    if dtype == "bfloat16":
        return struct.unpack("<f", struct.pack("<I", word << 16))[0]
    code, unsigned = _CODES[dtype]
    return struct.unpack(f"<{code}", struct.pack(f"<{unsigned}", word))[0]


def _rounds_to(candidate: float, word: int, dtype: str) -> bool:
    code, unsigned = _CODES["float32" if dtype == "bfloat16" else dtype]
    try:
        nearest = struct.unpack(f"<{unsigned}", struct.pack(f"<{code}", candidate))[0]
    except OverflowError:  # the decimal lies above the largest number of this dtype
        return False
    if dtype == "bfloat16":  # the upper half of a float32, its lower half rounded to nearest, ties to even
        nearest = (nearest + 0x7FFF + (nearest >> 16 & 1)) >> 16
    return nearest == word
