"""The bits of a call's inputs before and after: equal snapshots mean that nothing was changed."""

from __future__ import annotations

import argparse
import struct
from types import SimpleNamespace
from typing import Any

import torch

TREE, BITS, TEXT = "tree", "bits", "text"


def snapshot(value: Any) -> Any:
    """``value`` as nested tuples that are equal exactly if every type, length and bit is.

    ``(TREE, names, parts)`` for a mapping, an object with attributes or (names None) a sequence; ``(BITS, dtype,
    shape, bytes)`` for a tensor or float, since -0.0 == 0.0 and nan != nan; ``(TEXT, type, text)`` for what is
    neither. Plain tuples, since every call of every case takes two.
    """
    kind = type(value)
    if value is None or kind is str:
        return value
    if kind is int or kind is bool:
        return TEXT, kind.__name__, value
    if kind is float:
        return BITS, "float", (), struct.pack("<d", value)
    if kind is SimpleNamespace or kind is argparse.Namespace:
        return _named(vars(value))
    if isinstance(value, torch.Tensor):
        plain = value.detach().cpu().clone(memory_format=torch.contiguous_format).reshape(-1)
        return BITS, str(value.dtype), tuple(value.shape), plain.view(torch.uint8).numpy().tobytes()
    if isinstance(value, dict):
        return _named(value)
    if isinstance(value, (list, tuple)):  # a pair: a union would be made anew for every value
        return TREE, None, tuple([snapshot(item) for item in value])
    return TEXT, kind.__name__, repr(value)


def _named(parts: dict[str, Any]) -> Any:
    """The tree of named parts; nothing and text, most of them, stand for themselves without a call of their own."""
    taken = [item if item is None or type(item) is str else snapshot(item) for item in parts.values()]
    return TREE, tuple(parts), tuple(taken)


def changes(before: Any, after: Any, path: str = "") -> dict[str, torch.Tensor]:
    """What differs between two snapshots, by path (``kl[2]``, ``samples[0].reward.format``), with the new value.

    A tensor stands as it is, a float as float64, anything else as the UTF-8 of its text; what is gone is empty.
    """
    if before == after:
        return {}
    if not (_is(TREE, before) and _is(TREE, after)):
        return {path.removeprefix("."): _new_value(after)}
    old, new = _parts(before), _parts(after)
    found: dict[str, torch.Tensor] = {}
    for name in dict.fromkeys((*new, *old)):
        if name in old and name in new:
            found.update(changes(old[name], new[name], path + name))
        else:
            found[(path + name).removeprefix(".")] = _new_value(new.get(name, ""))
    return found or {f"{path.removeprefix('.')} (order)": _new_value(after)}


def _is(tag: str, part: Any) -> bool:
    return isinstance(part, tuple) and part[0] == tag


def _parts(tree: Any) -> dict[str, Any]:
    """The parts of a tree by what leads to them: ``.name`` or ``[index]``."""
    _, names, parts = tree
    steps = [f"[{index}]" for index in range(len(parts))] if names is None else [f".{name}" for name in names]
    return dict(zip(steps, parts, strict=True))


def _new_value(part: Any) -> torch.Tensor:
    if _is(BITS, part):
        _, kind, shape, content = part
        dtype = torch.float64 if kind == "float" else getattr(torch, kind.removeprefix("torch."))
        if not content:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(bytearray(content), dtype=dtype).reshape(shape)
    if _is(TREE, part):
        return _utf8(" ".join(_parts(part)))
    return _utf8(str(part[2]) if _is(TEXT, part) else str(part))


def _utf8(text: str) -> torch.Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)
