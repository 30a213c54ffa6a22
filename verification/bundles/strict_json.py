"""JSON without its loose ends: no duplicate keys, no NaN or infinity, bounded in size, depth and number of keys."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np

from verification.bundles.error import BundleError

MAX_KEYS = 1_000_000
MAX_DEPTH = 100
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_STEPS = np.zeros(256, dtype=np.int8)  # by how much a byte changes the depth
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1


def to_json(document: Any) -> bytes:
    """The document in ASCII. NaN and infinity are a ValueError: they are no JSON."""
    return json.dumps(document, allow_nan=False, separators=(",", ":"), check_circular=False).encode("ascii")


def from_json(data: bytes, file: str) -> Any:
    """The document in ``data``; a BundleError names ``file`` and what is wrong with it.

    Keys and depth are bounded before anything is parsed: every key has its colon, every level its bracket.
    """
    outside_strings = np.frombuffer(_STRING.sub(b"", data), dtype=np.uint8)
    if np.count_nonzero(outside_strings == ord(":")) >= MAX_KEYS:
        raise BundleError(f"{file}: {MAX_KEYS:,} keys or more, which no bundle has")
    if _STEPS[outside_strings].cumsum(dtype=np.int64).max(initial=0) > MAX_DEPTH:
        raise BundleError(f"{file}: more than {MAX_DEPTH} levels deep, which no bundle is")
    try:
        return json.loads(
            data.decode("ascii"), object_pairs_hook=_object, parse_float=_finite, parse_constant=_no_constant
        )
    except ValueError as error:
        raise BundleError(f"{file}: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"the key {twice[:40]!r} stands twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text:.40} is beyond the range of floats")
    return number


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
