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
        return str(from_words([word], dtype, ()).item()).lower()
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


def _as_double(word: int, dtype: str) -> float:
    if dtype == "bfloat16":
        return struct.unpack("<f", struct.pack("<I", word << 16))[0]
    code, unsigned = _CODES[dtype]
    return struct.unpack(f"<{code}", struct.pack(f"<{unsigned}", word))[0]


def _rounds_to(candidate: float, word: int, dtype: str) -> bool:
    if dtype == "bfloat16":
        return words(torch.tensor(candidate, dtype=torch.bfloat16)) == [word]
    code, unsigned = _CODES[dtype]
    try:
        return struct.unpack(f"<{unsigned}", struct.pack(f"<{code}", candidate))[0] == word
    except OverflowError:  # the decimal lies above the largest number of this dtype
        return False
