"""Subnormal numbers kept: the proofs of this package need all of IEEE arithmetic, whatever the thread is set to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_SMALLEST_NORMAL = 2.0**-1022


@contextmanager
def subnormals_kept() -> Iterator[None]:
    """Switches ``torch.set_flush_denormal`` off for this thread, and on again at the end where it was on."""
    flushed = _SMALLEST_NORMAL * 0.5 == 0.0
    if flushed:
        torch.set_flush_denormal(False)
    try:
        yield
    finally:
        if flushed:
            torch.set_flush_denormal(True)
