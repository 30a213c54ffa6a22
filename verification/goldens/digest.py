"""Digests of what goes into a run: one case's inputs, the whole corpus, the defaults of the command line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from verification.cases.arguments import DEFAULTS
from verification.cases.case import Case


def input_digest(case: Case) -> str:
    """``sha256:`` and the digest of everything that decides the outcome: stage, algorithm, options, inputs.

    Every value goes in with its type and its exact bits, so that 1, 1.0, True and numpy's own 1.0 are four different
    inputs. A value of a kind that has no exact form is a TypeError naming the case and the place.
    """
    hasher = hashlib.sha256()
    try:
        for part in (case.stage, case.algorithm, case.options, case.inputs):
            _feed(hasher.update, part)
    except _NotPlainError as error:
        kind = type(error.value).__name__
        raise TypeError(f"{case.id}{error.place}: {kind} is no plain data, as an input of a case must be") from None
    return f"sha256:{hasher.hexdigest()}"


def corpus_digest(cases: Iterable[Case]) -> str:
    """The digest of the ids and inputs of all cases, independent of their order."""
    lines = sorted(f"{case.id} {input_digest(case)}\n" for case in cases)
    return f"sha256:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"


def defaults_digest() -> str:
    """The digest of the command line's defaults, which every case's options are laid over."""
    return f"sha256:{hashlib.sha256(json.dumps(DEFAULTS, sort_keys=True).encode()).hexdigest()}"


class _NotPlainError(Exception):
    """A value without an exact form; the place is put together on the way out."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value
        self.place = ""


def _feed(update: Callable[[bytes], None], value: Any) -> None:
    if isinstance(value, Mapping):
        _tagged(update, "mapping", str(len(value)).encode())
        _feed_items(update, ((key, key) for key in value))
        _feed_items(update, value.items())
    elif isinstance(value, list | tuple):
        _tagged(update, "list", str(len(value)).encode())
        _feed_items(update, enumerate(value))
    elif isinstance(value, np.ndarray | np.generic):
        array = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"))
        _tagged(update, f"numpy {type(value).__name__} {value.dtype.name} {list(value.shape)}", array.tobytes())
    else:
        _tagged(update, type(value).__name__, _exact(value))


def _feed_items(update: Callable[[bytes], None], items: Iterable[tuple[Any, Any]]) -> None:
    for key, item in items:
        try:
            _feed(update, item)
        except _NotPlainError as error:
            error.place = f"[{key!r}]{error.place}"
            raise


def _exact(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return value
    if isinstance(value, float):
        return value.hex().encode()
    if isinstance(value, complex):
        return f"{value.real.hex()} {value.imag.hex()}".encode()
    if value is None or isinstance(value, bool | int | Fraction | Decimal):
        return str(value).encode()
    if isinstance(value, set | frozenset):
        return " ".join(sorted(map(repr, value))).encode()
    raise _NotPlainError(value)


def _tagged(update: Callable[[bytes], None], tag: str, data: bytes) -> None:
    update(b"%b:%d:%b" % (tag.encode(), len(data), data))
