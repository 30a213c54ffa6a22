"""The calls of one rollout's reward, advantage and loss stages, written down as they happen, every bit of them.

A role opens a trace around its work on a rollout (`tracing`); the places where a stage is called tell it inputs and
results (`keep`), which does nothing where no trace is open. Each call becomes ``PART.STAGE.NUMBER.json`` beside a file
of its tensors. When the rollout is trained on, the driver seals the folder with an index of all files and their hashes.
"""

from __future__ import annotations

import json
import math
import re
import struct
from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from numbers import Number
from pathlib import Path
from typing import Any

import torch

from relax.core.checkpoint import described
from relax.types import Sample

INDEX = "trace.json"
VERSION = 1
CALL = re.compile(r"[a-z0-9_-]+\.[a-z]+\.[a-z]+\.\d{4}")
_PLAIN = (bool, int, float, str, type(None))


class TraceError(ValueError):
    """A trace cannot be written; names the folder or file, the reason and the remedy."""


@dataclass(frozen=True)
class _Open:
    """Where the calls of this process go."""

    folder: Path
    part: str


_OPEN: ContextVar[_Open | None] = ContextVar("open trace", default=None)


@contextmanager
def tracing(args: Namespace, rollouts: Collection[int], part: str) -> Iterator[None]:
    """Keeps the calls made inside, where ``args.trace_rollout`` is one of ``rollouts``.

    ``part`` is this process's own name among those of the run: lower-case letters, digits, ``-`` and ``_``.
    """
    if args.trace_rollout is None or args.trace_rollout not in rollouts:
        yield
        return
    token = _OPEN.set(_Open(Path(args.trace_folder), part))
    try:
        yield
    finally:
        _OPEN.reset(token)


def keep(
    stage: str,
    args: Namespace,
    inputs: Mapping[str, Any],
    results: Mapping[str, Any],
    *,
    rows: Sequence[str] | None = None,
    rank: int = 0,
    ranks: int = 1,
) -> None:
    """Writes one call of ``stage`` to the open trace.

    Inputs and results are numbers, texts, tensors of any dtype and shape, samples, and lists and mappings of these;
    ``rows`` are the keys of the batch's samples, in order, where it does not hold the samples themselves. ``ranks``
    shared the call's batch, and this is number ``rank`` of them.
    """
    trace = _OPEN.get()
    if trace is None:
        return
    from safetensors.torch import save

    tensors: dict[str, torch.Tensor] = {}
    facts = {
        "stage": stage,
        "rank": rank,
        "ranks": ranks,
        "rows": None if rows is None else list(rows),
        "options": {name: value for name, value in vars(args).items() if _is_plain(value)},
        "inputs": _encoded(inputs, tensors),
        "results": _encoded(results, tensors),
    }
    number = len(list(trace.folder.glob(f"{trace.part}.{stage}.*.json")))
    name = f"{trace.part}.{stage}.{number:04d}"
    _write(trace.folder / f"{name}.safetensors", save(tensors))
    _write(trace.folder / f"{name}.json", _json(facts))


def start_trace(args: Namespace) -> None:
    """Makes the folder, without the calls of an earlier attempt. For the driver, before rollout ``trace_rollout``."""
    if args.trace_rollout is None:
        return
    folder = Path(args.trace_folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / INDEX).unlink(missing_ok=True)
        for path in _files(folder):
            path.unlink()
    except OSError as error:
        raise _cannot_write(folder, error) from error


def seal_trace(args: Namespace) -> None:
    """Writes the index, which makes the trace complete. For the driver, once the rollout is trained on.

    Raises `TraceError` where no call was kept: the run has no such stage in any process.
    """
    if args.trace_rollout is None:
        return
    folder = Path(args.trace_folder)
    files = {path.name: described(path.read_bytes()) for path in _files(folder)}
    if not files:
        raise TraceError(f"{folder} holds no call of rollout {args.trace_rollout}: nothing was traced")
    made_on = {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}
    index = {"version": VERSION, "rollout": args.trace_rollout, "made_on": made_on, "files": files}
    _write(folder / INDEX, _json(index))


def options_of_trace(folder: Path) -> Mapping[str, Any]:
    """The options in force at its first call; none where they are not told."""
    first = [path for path in _files(folder) if path.suffix == ".json"][:1]
    try:
        return json.loads(first[0].read_bytes())["options"] if first else {}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _files(folder: Path) -> list[Path]:
    """The files of calls, in the order of their names."""
    kinds = (".json", ".safetensors")
    return sorted(path for path in folder.iterdir() if path.suffix in kinds and CALL.fullmatch(path.stem))


def _encoded(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """``value`` for JSON: what JSON has no exact form for is an object with one key that starts with ``$``."""
    if isinstance(value, torch.Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"$tensor": name}
    if isinstance(value, Sample):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {"$mapping": [[str(key), _encoded(item, tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_encoded(item, tensors) for item in value]
    if isinstance(value, Number) and hasattr(value, "item"):
        value = value.item()  # a number of numpy's
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": struct.pack(">d", value).hex()}
    return value if isinstance(value, _PLAIN) else {"$unkept": f"{type(value).__module__}.{type(value).__qualname__}"}


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, _PLAIN) for item in value)
    return isinstance(value, _PLAIN)


def _json(document: Any) -> bytes:
    return json.dumps(document, indent=1, allow_nan=False).encode("ascii")


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> TraceError:
    return TraceError(
        f"{path} cannot be written: {error.strerror or error}; give another folder to --trace-folder, or drop it"
    )
