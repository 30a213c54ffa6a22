"""The mode of the thread in which subnormal numbers become zero, as training set-ups switch it on for speed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def flushes_denormal() -> bool:
    """Whether this thread replaces subnormal results by zero."""
    return sys.float_info.min / 2 == 0.0


@contextmanager
def flush_denormal() -> Iterator[bool]:
    """Runs the body with subnormal numbers flushed; False where the processor has no such mode. Restored afterwards."""
    before = flushes_denormal()
    possible = torch.set_flush_denormal(True)
    try:
        yield possible and flushes_denormal()
    finally:
        torch.set_flush_denormal(before)
