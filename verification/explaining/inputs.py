"""What a case gives to a subject, in decimal and in bits: as tables, and complete as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from verification.cases.case import Case
from verification.explaining.values import array_as_data, elements, kind, scalar, scalar_as_data, tensor_of
from verification.report.document import Sheet

ENTRIES = 64  # of one list or array; the data has all of them


def case_sheets(case: Case) -> list[Sheet]:
    """What the case says about itself, its options, and its input."""
    facts = [("stage", case.stage), ("algorithm", case.algorithm)]
    if case.tags:
        facts.append(("tags", ", ".join(case.tags)))
    if case.note:
        facts.append(("note", case.note))
    if case.error is not None:
        facts.append(("malformed", f"an error is due whose message names {', '.join(map(repr, case.error))}"))
    options = [(name, _inline(value)) for name, value in case.options.items()] or [("the defaults", "")]
    inputs = [row for name, value in case.inputs.items() for row in _rows(name, value)]
    return [
        Sheet(case.id, ("", ""), tuple(facts)),
        Sheet("options", ("", ""), tuple(options)),
        Sheet("inputs", ("", "", ""), tuple(inputs), words=(0, 1, 2)),
    ]


def _rows(name: str, value: Any) -> Iterator[tuple[str, str, str]]:
    """``(name, kind, values)`` of each array, sample or plain value in one input."""
    if isinstance(value, list | tuple) and any(isinstance(item, np.ndarray | list | tuple | Mapping) for item in value):
        for index, item in enumerate(value[:ENTRIES]):
            yield from _rows(f"{name}[{index}]", item)
        if len(value) > ENTRIES:
            yield name, "", f"... {len(value) - ENTRIES} more"
    elif isinstance(value, np.ndarray):
        yield name, *_array(value)
    elif isinstance(value, Mapping):
        yield name, "", ", ".join(f"{key}={_inline(item)}" for key, item in value.items())
    else:
        yield name, "", _inline(value)


def _array(value: np.ndarray) -> tuple[str, str]:
    tensor = tensor_of(value)
    return kind(tensor), _some(elements(tensor, 0, ENTRIES), tensor.numel())


def _inline(value: Any) -> str:
    """A value within a line."""
    if isinstance(value, np.ndarray):
        return "{}: {}".format(*_array(value))
    if isinstance(value, list | tuple):
        return f"[{_some([_inline(item) for item in value[:ENTRIES]], len(value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_inline(item)}" for key, item in value.items()) + "}"
    return scalar(value)


def _some(shown: list[str], count: int) -> str:
    return ", ".join(shown) + (f", ... {count - len(shown)} more" if count > len(shown) else "")


def case_as_data(case: Case) -> dict[str, Any]:
    """The case for JSON, complete: every element of every array with its bits."""
    return {
        "id": case.id,
        "stage": case.stage,
        "algorithm": case.algorithm,
        "options": _data(case.options),
        "inputs": _data(case.inputs),
        "error": None if case.error is None else list(case.error),
        "note": case.note,
        "tags": list(case.tags),
    }


def _data(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return array_as_data(tensor_of(value))
    if isinstance(value, Mapping):
        return {str(key): _data(item) for key, item in value.items()}
    return [_data(item) for item in value] if isinstance(value, list | tuple) else scalar_as_data(value)
