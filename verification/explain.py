"""One case laid open: its input, what every subject made of it, in decimal and in bits, and where they part."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from flint import arb, fmpq

from verification.cases.case import Case, bfloat16_values
from verification.judges.bits import first_difference, pattern, place, shown
from verification.judges.ulps import FORMATS, ulp_distance
from verification.oracle import evaluate
from verification.subjects.outcome import Outcome

ROWS = 12
ENTRIES = 64


def explain(case: Case, subjects: Mapping[str, Outcome | None]) -> Iterator[str]:
    """Lines of text on ``case``; ``subjects`` are outcomes by name, the one under examination first."""
    yield from describe(case)
    exact = evaluate(case) or {}
    yield ""
    yield "outcomes"
    for name, outcome in subjects.items():
        yield f"  {name}: {_summary(outcome)}"
    yield f"  oracle: {f'exact values of {len(exact)} arrays' if exact else 'nothing to say on this case'}"
    present = {name: outcome for name, outcome in subjects.items() if outcome is not None and outcome.failure is None}
    for array in dict.fromkeys(array for outcome in present.values() for array in outcome.arrays):
        tensors = {name: outcome.arrays.get(array) for name, outcome in present.items()}
        yield from _array(array, tensors, exact.get(array))
    for name, outcome in present.items():
        for text, value in outcome.texts.items():
            yield f"{name} text {text}: {value}"
    yield ""
    yield f"run it again: relax-verify check --case '{case.id}'"


def describe(case: Case) -> Iterator[str]:
    """The input of a case: what a subject is given, in decimal, and what the case says about itself."""
    yield case.id
    yield f"  stage {case.stage}, algorithm {case.algorithm}" + (f", tags {', '.join(case.tags)}" if case.tags else "")
    if case.note:
        yield f"  note: {case.note}"
    if case.error is not None:
        yield f"  malformed: an error is due whose message names {', '.join(map(repr, case.error))}"
    yield "options"
    for name, value in case.options.items():
        yield f"  {name} = {value!r}"
    if not case.options:
        yield "  the defaults"
    yield "inputs"
    for name, value in case.inputs.items():
        yield from _input(name, value, "  ")


def describe_as_json(case: Case) -> str:
    """The case as JSON; arrays as their dtype, shape and values (floats that are no numbers as strings)."""
    return json.dumps(
        {
            "id": case.id,
            "stage": case.stage,
            "algorithm": case.algorithm,
            "options": _plain(case.options),
            "inputs": _plain(case.inputs),
            "error": case.error,
            "note": case.note,
            "tags": case.tags,
        },
        indent=2,
        allow_nan=False,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "shape": list(value.shape), "values": _plain(value.tolist())}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


def _input(name: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, list | tuple) and value and not isinstance(value[0], str | int | float | bool | None):
        for index, item in enumerate(value[:ENTRIES]):
            yield from _input(f"{name}[{index}]", item, indent)
        if len(value) > ENTRIES:
            yield f"{indent}... {len(value) - ENTRIES} more of {name}"
    elif isinstance(value, np.ndarray):
        kind, flat = str(value.dtype), value.reshape(-1)
        if kind == "uint16":
            kind, flat = "bfloat16", bfloat16_values(flat)
        numbers = ", ".join(str(number) for number in flat[:ENTRIES])
        more = f", ... {flat.size - ENTRIES} more" if flat.size > ENTRIES else ""
        yield f"{indent}{name} {kind} {list(value.shape)}: {numbers}{more}"
    elif isinstance(value, Mapping):
        yield f"{indent}{name}: " + ", ".join(f"{key}={item!r}" for key, item in value.items())
    else:
        yield f"{indent}{name} = {value!r}"


def _summary(outcome: Outcome | None) -> str:
    if outcome is None:
        return "not there"
    if outcome.failure is not None:
        return f"failed with {outcome.failure.kind}: {outcome.failure.message}"
    parts = [f"{len(outcome.arrays)} arrays"] if outcome.arrays else []
    if outcome.texts:
        parts.append(f"{len(outcome.texts)} texts")
    parts.append(f"changed {', '.join(sorted(outcome.mutated))}" if outcome.mutated else "inputs untouched")
    if outcome.aliases:
        parts.append("shared: " + ", ".join(f"{one} = {other}" for one, other in sorted(outcome.aliases)[:6]))
    return "; ".join(parts)


def _array(name: str, tensors: Mapping[str, torch.Tensor | None], exact: Any) -> Iterator[str]:
    """One array of all subjects: where they part first, then element by element around that place."""
    yield ""
    kinds = {who: None if one is None else (str(one.dtype), tuple(one.shape)) for who, one in tensors.items()}
    alike = {who: one for who, one in tensors.items() if one is not None}
    if len(alike) < len(tensors) or len(set(kinds.values())) > 1:
        yield f"{name}: " + ", ".join(f"{who} {_kind(one)}" for who, one in tensors.items())
        return
    (first_name, first), *others = alike.items()
    yield f"{name} {_kind(first)}"
    start = 0
    for who, other in others:
        index = first_difference(first, other)
        if index is None:
            yield f"  {first_name} and {who}: the same bits"
            continue
        apart = float(ulp_distance(first, other).max()) if first.dtype in FORMATS else None
        distance = "" if apart is None else f", at most {apart:g} ulps apart"
        count = int((pattern(first) != pattern(other)).any(dim=-1).sum())
        parted = f"{count} of {first.numel()} differ, first at {place(index, first.shape)}{distance}"
        yield f"  {first_name} and {who}: {parted}"
        start = max(0, index - ROWS // 4)
    if exact is not None:
        yield f"  oracle: formula {exact.formula}, bound {exact.bound_ulps:g} ulps ({exact.reason})"
    end = min(first.numel(), start + ROWS)
    for index in range(start, end):
        parts = [f"{who} {shown(tensor, index)}" for who, tensor in alike.items()]
        if exact is not None:
            parts.append(f"exact {_decimal(exact.values[index])}")
        yield f"  {place(index, first.shape)} " + "  ".join(parts)
    if end < first.numel():
        yield f"  ... {first.numel() - end} more"


def _kind(tensor: torch.Tensor | None) -> str:
    return "missing" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _decimal(value: arb | fmpq | None) -> str:
    if value is None:
        return "-"
    return (value if isinstance(value, arb) else arb(value)).str(17, radius=False)
