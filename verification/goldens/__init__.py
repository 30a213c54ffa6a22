"""The recorded bits: the store of goldens, the platform they hold on, how they are compared, and how they change.

`compare_with_golden` is all that a check needs. Names load on first use, so that the command line can register the
golden verbs without importing torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "compare_with_golden": "compare",
    "platform_key": "platform",
    "platform_of": "platform",
    "GoldenStore": "store",
    "GoldenFormatError": "parse",
}

__all__ = ["GoldenFormatError", "GoldenStore", "compare_with_golden", "platform_key", "platform_of"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
