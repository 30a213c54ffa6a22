"""What a transformation of a case is, and how the results of the transformed runs are put back in the old order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from verification.cases.case import Case

Arrays = Mapping[str, torch.Tensor]
Relation = Callable[[str, torch.Tensor], torch.Tensor | None]

IGNORED = -1
FLUSHED = "subnormal numbers flushed"


def unchanged(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The relation of most transformations: the result stays what it was."""
    return tensor


@dataclass(frozen=True)
class Run:
    """One call on transformed input. ``items[k]`` is the old position of its k-th sample or response, or IGNORED."""

    case: Case
    items: tuple[int, ...]


@dataclass(frozen=True)
class Transformation:
    """Transformed runs whose results, put back in the old order, must equal ``expected`` of the old result in bits.

    ``expected`` and ``viewed`` map a named array; the first is applied to the old result, the second to the new one
    (both may, for instance, cut out what a mask excludes). An array that they map to None is left out.
    ``flush_denormal``: the runs are made on a thread that replaces subnormal numbers by zero.
    """

    name: str
    runs: tuple[Run, ...]
    expected: Relation = unchanged
    viewed: Relation = unchanged
    flush_denormal: bool = False


_ITEM = re.compile(r"^(.*)\[(\d+)\]$")


def put_back(results: Sequence[Arrays], runs: Sequence[Run], lengths: Sequence[int]) -> dict[str, torch.Tensor]:
    """The arrays of all runs in the order of the old items.

    ``name[k]`` is renamed to its old position; a vector over all items (one element each) or over all their tokens
    (``lengths[i]`` elements for item i) is cut up and joined in the old order; a scalar is taken from the last run.
    """
    joined: dict[str, torch.Tensor] = {}
    pieces: dict[str, dict[int, torch.Tensor]] = {}
    for arrays, run in zip(results, runs, strict=True):
        sizes = [lengths[item] if item != IGNORED else 0 for item in run.items]
        for name, tensor in arrays.items():
            indexed = _ITEM.match(name)
            if indexed is not None:
                item = run.items[int(indexed[2])]
                if item != IGNORED:
                    joined[f"{indexed[1]}[{item}]"] = tensor
            elif tensor.dim() == 0:
                joined[name] = tensor
            else:
                per_item = [1] * len(run.items) if tensor.numel() == len(run.items) != sum(sizes) else sizes
                parts = tensor.split(per_item)
                pieces.setdefault(name, {}).update(
                    {item: part for item, part in zip(run.items, parts, strict=True) if item != IGNORED}
                )
    for name, parts_by_item in pieces.items():
        joined[name] = torch.cat([parts_by_item[item] for item in sorted(parts_by_item)])
    return joined


def with_inputs(case: Case, **inputs: Any) -> Case:
    """The case with some inputs replaced."""
    return replace(case, inputs={**case.inputs, **inputs})


def with_options(case: Case, **options: Any) -> Case:
    """The case with some options replaced."""
    return replace(case, options={**case.options, **options})


def doubled(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Twice the old result: exact in binary as long as nothing leaves the range of normal numbers."""
    return tensor * 2 if tensor.is_floating_point() else tensor


def negated(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The old result with its sign turned, zeros positive: x - x is +0 whatever the sign of x."""
    return 0.0 - tensor if tensor.is_floating_point() else tensor


def positive_zeros(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The new result with positive zeros, to be compared with ``negated``."""
    return tensor + 0.0 if tensor.is_floating_point() else tensor


def safely_normal(tensors: Sequence[torch.Tensor], low: float = 1e-20, high: float = 1e30) -> bool:
    """Whether every value is zero or far from both ends of float32's range, so that powers of two act exactly."""
    for tensor in tensors:
        size = tensor.abs().to(torch.float64)
        if not bool(((size == 0) | ((size >= low) & (size <= high))).all()):
            return False
    return True


def denormals_flushed(case: Case, items: Sequence[int]) -> Transformation:
    """The same input on a thread that flushes subnormal numbers: no mode of the thread may enter an exact result."""
    return Transformation(FLUSHED, (Run(case, tuple(items)),), flush_denormal=True)
