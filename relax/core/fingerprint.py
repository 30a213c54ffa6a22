"""One number that says whether two runs computed the same bits, however the rows were dealt to their processes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import torch

MODULUS = 2**64


def fingerprint(keys: Sequence[str], column: Sequence[torch.Tensor] | None = None) -> int:
    """Of a column's bits by row, or of the rows' keys alone, from 0 on, below 2**64.

    `joined` makes one of those of several parts of the rows.
    """
    if column is None:
        return joined(_number(key.encode()) for key in keys)
    return joined(
        _number(f"{key} {value.dtype} {tuple(value.shape)} ".encode() + _bytes(value))
        for key, value in zip(keys, column, strict=True)
    )


def joined(fingerprints: Iterable[int]) -> int:
    """That of all rows together, in any order."""
    return sum(fingerprints) % MODULUS


def _number(data: bytes) -> int:
    return int.from_bytes(hashlib.sha256(data).digest()[:8])


def _bytes(value: torch.Tensor) -> bytes:
    return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
