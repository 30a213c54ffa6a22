"""A trace as its run left it: the index, then every call, each file checked before it is believed."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from verification.bundles.error import BundleError
from verification.bundles.folder import fields
from verification.bundles.strict_json import from_json
from verification.plain_file import read_plain

INDEX, VERSION = "trace.json", 1
MAX_BYTES = 2**29
STAGES = ("reward.normalize", "advantage.estimate", "advantage.normalize", "policy.loss")
_NAME = re.compile(r"([a-z0-9_-]+)\.([a-z]+\.[a-z]+)\.(\d{4})")


class TraceRefused(ValueError):
    """What cannot be replayed: the message names the file, the place and the reason."""


@dataclass(frozen=True)
class Call:
    """One call of a stage: who made it as which of its calls, the options in force, inputs and results.

    ``ranks`` ranks shared the batch, and this was number ``rank`` of them. ``rows`` are the keys of its samples, in
    order; None where its inputs are the samples themselves.
    """

    part: str
    stage: str
    number: int
    rank: int
    ranks: int
    rows: tuple[str, ...] | None
    options: Mapping[str, Any]
    inputs: Mapping[str, Any]
    results: Mapping[str, Any]
    exact: bool = True
    """Whether one process that makes the same call has the same bits."""


@dataclass(frozen=True)
class Trace:
    """All calls of one rollout. ``made_on``: what the bits of the run may depend on."""

    rollout: int
    made_on: Mapping[str, str]
    calls: tuple[Call, ...]


def read_trace(folder: Path) -> Trace:
    """The trace in ``folder``; a `TraceRefused` says what is missing, damaged, or not of this form."""
    try:
        return _read(folder)
    except BundleError as error:
        raise TraceRefused(str(error)) from None


def _read(folder: Path) -> Trace:
    path = folder / INDEX
    index = from_json(_bytes(path, "the run has not sealed it, or this is no folder of --trace-folder"), str(path))
    fields(index, ("version", "rollout", "made_on", "files"), str(path))
    if index["version"] != VERSION:
        raise TraceRefused(f"{path}: version {index['version']!r:.40}, and this program reads {VERSION}")
    rollout, made_on, files = index["rollout"], index["made_on"], index["files"]
    if type(rollout) is not int or not _are_texts(made_on) or not isinstance(files, dict):
        raise TraceRefused(f"{path}: its rollout, made_on or files are not of their kind")
    names = sorted({name.removesuffix(".json").removesuffix(".safetensors") for name in files})
    whole = sorted(f"{name}.{kind}" for name in names for kind in ("json", "safetensors"))
    if not names or whole != sorted(files) or not all(_NAME.fullmatch(name) for name in names):
        raise TraceRefused(f"{path}: its files are not pairs of calls and their tensors")
    return Trace(rollout, made_on, tuple(_call(folder, name, files) for name in names))


def _call(folder: Path, name: str, files: Mapping[str, Any]) -> Call:
    described, packed = (_checked(folder / f"{name}.{kind}", files) for kind in ("json", "safetensors"))
    place = str(folder / f"{name}.json")
    found = _NAME.fullmatch(name)
    assert found is not None  # looked at above
    document = from_json(described, place)
    fields(document, ("stage", "rank", "ranks", "rows", "options", "inputs", "results"), place)
    if document["stage"] != found[2] or found[2] not in STAGES:
        raise TraceRefused(f"{place}: a call of {document['stage']!r:.40}, which is none of {', '.join(STAGES)}")
    rank, ranks = document["rank"], document["ranks"]
    if not (type(rank) is type(ranks) is int and 0 <= rank < ranks):
        raise TraceRefused(f"{place}: {rank!r:.40} is no rank of {ranks!r:.40}")
    rows = document["rows"]
    if not (rows is None or (isinstance(rows, list) and all(isinstance(row, str) for row in rows))):
        raise TraceRefused(f"{place}: its rows are no list of keys")
    try:
        tensors = load(packed)
    except SafetensorError as error:
        raise TraceRefused(f"{folder / name}.safetensors: no tensors ({error})") from None
    inputs, results = (_mapping(document[part], tensors, f"{place}: {part}") for part in ("inputs", "results"))
    options = document["options"]
    if not isinstance(options, dict):
        raise TraceRefused(f"{place}: its options are no object")
    keys = None if rows is None else tuple(rows)
    return Call(found[1], found[2], int(found[3]), rank, ranks, keys, options, inputs, results)


def _checked(path: Path, files: Mapping[str, Any]) -> bytes:
    """The bytes of a file, which are those that the index tells of."""
    told = files[path.name]
    fields(told, ("bytes", "sha256"), f"{path.parent / INDEX}: {path.name}")
    data = _bytes(path, "the index lists it")
    if len(data) != told["bytes"]:
        raise TraceRefused(f"{path}: {len(data)} bytes, and {told['bytes']!r:.40} were written: it was cut or changed")
    if hashlib.sha256(data).hexdigest() != told["sha256"]:
        raise TraceRefused(f"{path}: it has changed since it was written (sha256)")
    return data


def _bytes(path: Path, why: str) -> bytes:
    try:
        data = read_plain(path, MAX_BYTES)
    except ValueError as error:
        raise TraceRefused(f"{path}: {error}") from None
    if data is None:
        raise TraceRefused(f"{path}: no such file: {why}")
    return data


def _mapping(document: Any, tensors: Mapping[str, torch.Tensor], place: str) -> dict[str, Any]:
    found = _decoded(document, tensors, place)
    if not isinstance(found, dict):
        raise TraceRefused(f"{place}: no mapping")
    return found


def _decoded(document: Any, tensors: Mapping[str, torch.Tensor], place: str) -> Any:
    """The value that `relax.core.trace` wrote ``document`` for; one that could not be kept is its type's name."""
    if isinstance(document, list):
        return [_decoded(item, tensors, place) for item in document]
    if not isinstance(document, dict):
        return document
    if len(document) == 1:
        ((kind, content),) = document.items()
        if kind == "$tensor" and isinstance(content, str) and content in tensors:
            return tensors[content]
        if kind == "$float" and isinstance(content, str) and re.fullmatch("[0-9a-f]{16}", content):
            return struct.unpack(">d", bytes.fromhex(content))[0]
        if kind == "$unkept" and isinstance(content, str):
            return f"a {content}, which the trace does not hold"
        if kind == "$mapping" and isinstance(content, list) and all(_is_pair(pair) for pair in content):
            return {key: _decoded(item, tensors, f"{place}[{key!r:.60}]") for key, item in content}
    raise TraceRefused(f"{place}: {str(document)[:80]!r} is no value of a trace")


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
