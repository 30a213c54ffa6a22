"""Plain data as JSON and back, every value with its type and its bits.

None, bool, str, finite floats, integers of 64 bits, lists and mappings with text as keys stand for themselves. All
else is an object with one key that starts with ``$`` and names the kind. Arrays lie in a file of their own.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from verification.bundles.arrays import ArrayReader, ArrayWriter
from verification.bundles.error import BundleError

_PLAIN = frozenset((type(None), bool, int, float, str))  # what stands for itself in JSON
_PLAIN_INTEGERS = range(-(2**63), 2**63)
_SCALARS = {np.dtype(name).type: name for name in ("bool", "float16", "float32", "float64", "complex64", "complex128")}
_SCALARS |= {np.dtype(f"{sign}int{bits}").type: f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


class _Refused(Exception):
    """A value without a form, or a form without a value; the place is put together on the way out."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason
        self.place = ""


def encode(value: Any, arrays: ArrayWriter, place: str) -> Any:
    """``value`` as JSON; its arrays are added to ``arrays``. A value without an exact form is a BundleError."""
    return _placed(place, _encode, value, arrays)


def decode(document: Any, arrays: ArrayReader, place: str) -> Any:
    """The value that `encode` made ``document`` of; a BundleError names the place of what it would not have made."""
    return _placed(place, _decode, document, arrays)


def _placed(place: str, function: Callable[[Any, Any], Any], value: Any, arrays: ArrayReader | ArrayWriter) -> Any:
    try:
        return function(value, arrays)
    except _Refused as refused:
        raise BundleError(f"{place}{refused.place}: {refused.reason}") from None


def _each(function: Callable[[Any, Any], Any], items: Iterable[tuple[Any, Any]], arrays: Any) -> list[Any]:
    """``function`` of each item; the keys say where one was refused."""
    done, key = [], None
    try:
        for key, item in items:  # noqa: B007 - used below
            done.append(function(item, arrays))
    except _Refused as refused:
        refused.place = f"[{key!r:.60}]{refused.place}"
        raise
    return done


def _encode(value: Any, arrays: ArrayWriter) -> Any:
    kind = type(value)
    if value is None or kind is bool or (kind is int and value in _PLAIN_INTEGERS):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": struct.pack(">d", value).hex()}
    if kind is str:
        return value if _is_unicode(value) else {"$str": value.encode("utf-8", "surrogatepass").hex()}
    if kind is list:
        return _each(_encode, enumerate(value), arrays)
    if kind is dict:
        items = _each(_encode, value.items(), arrays)
        if all(type(key) is str and key[:1] != "$" and _is_unicode(key) for key in value):
            return dict(zip(value, items, strict=True))
        keys = _each(_encode, ((key, key) for key in value), arrays)
        return {"$dict": [[key, item] for key, item in zip(keys, items, strict=True)]}
    if kind in _ENCODERS:
        tag, parts = _ENCODERS[kind]
        return {tag: _encode(parts(value), arrays)}
    if kind is np.ndarray:
        return {"$array": _add_array(value, arrays)}
    if kind in _SCALARS:
        return {"$numpy": [_SCALARS[kind], value.tobytes().hex()]}
    raise _Refused(f"a {kind.__module__}.{kind.__qualname__} has no exact form in a bundle")


def _add_array(value: np.ndarray, arrays: ArrayWriter) -> list[Any]:
    try:
        return arrays.add(torch.from_numpy(np.array(value, order="C")))
    except (TypeError, ValueError) as error:  # no dtype of torch, another byte order, or none of a bundle
        raise _Refused(f"an array of {value.dtype!r} has no exact form in a bundle ({error})") from None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _sorted_members(value: set[Any] | frozenset[Any]) -> list[Any]:
    return sorted(value, key=lambda item: (type(item).__name__, repr(item)))


# Kinds made of other values: the tag, and what stands for the value.
_ENCODERS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    int: ("$int", lambda value: f"{value:x}"),  # decimals of this length are slow to read, and limited
    tuple: ("$tuple", list),
    bytes: ("$bytes", bytes.hex),
    complex: ("$complex", lambda value: [value.real, value.imag]),
    Fraction: ("$fraction", lambda value: [value.numerator, value.denominator]),
    Decimal: ("$decimal", str),
    set: ("$set", _sorted_members),
    frozenset: ("$frozenset", _sorted_members),
}


def _decode(document: Any, arrays: ArrayReader) -> Any:
    kind = type(document)
    if kind in _PLAIN:
        return document
    if kind is list:
        return document if _PLAIN.issuperset(map(type, document)) else _each(_decode, enumerate(document), arrays)
    if not document or not next(iter(document)).startswith("$"):
        return dict(zip(document, _each(_decode, document.items(), arrays), strict=True))
    (tag, content), *others = document.items()
    if others or tag not in _DECODERS:
        raise _Refused(f"{tag[:40]!r} is no kind of value")
    try:
        return _DECODERS[tag](_decode(content, arrays), arrays)
    except (ArithmeticError, TypeError, ValueError, struct.error) as error:
        raise _Refused(f"no {tag[1:]}: {error}") from None


def _scalar(content: Any) -> Any:
    name, data = content
    if name not in _SCALARS.values():
        raise ValueError(f"{name!r:.40} is no type of numpy's")
    (value,) = np.frombuffer(bytes.fromhex(data), dtype=name)
    return value


def _mapping(pairs: Any) -> dict[Any, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


_DECODERS: dict[str, Callable[[Any, ArrayReader], Any]] = {
    "$float": lambda content, _: struct.unpack(">d", bytes.fromhex(content))[0],
    "$str": lambda content, _: bytes.fromhex(content).decode("utf-8", "surrogatepass"),
    "$int": lambda content, _: int(content, 16),
    "$tuple": lambda content, _: tuple(content),
    "$bytes": lambda content, _: bytes.fromhex(content),
    "$complex": lambda content, _: complex(*content),
    "$fraction": lambda content, _: Fraction(*content),
    "$decimal": lambda content, _: Decimal(content),
    "$set": lambda content, _: set(content),
    "$frozenset": lambda content, _: frozenset(content),
    "$dict": lambda content, _: _mapping(content),
    "$numpy": lambda content, _: _scalar(content),
    "$array": lambda content, arrays: arrays.at(content).numpy(),
}
