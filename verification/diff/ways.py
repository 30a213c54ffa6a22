"""In which way two outcomes differ: so that a smaller input can be asked to differ in the same way, and in no other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from verification.judges.bits import pattern
from verification.judges.comparison import Comparison
from verification.subjects.outcome import Failure, Outcome

_INDEX = re.compile(r"\[\d+\]")
_NUMBERS = re.compile(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?")
_LISTED = re.compile(r"#(, #)+")
NUMBERS = "numbers"


@dataclass(frozen=True)
class Way:
    """One way of differing. ``what`` is the result, without the response that it belongs to (``kl``, ``failure``);
    ``how`` tells one kind of difference in it from another."""

    what: str
    how: str


def ways(comparisons: Iterable[Comparison], a: Outcome, b: Outcome) -> tuple[Way, ...]:
    """The ways in which ``a`` and ``b`` differ by these comparisons, numbers that are other numbers first.

    A failure has the message of either side in it, numbers apart: otherwise an input could shrink into one that is
    refused for another reason. Values are told apart by what they are: a number that became NaN is not a number that
    became another one, and neither is a zero that changed its sign.
    """
    found = {way: None for one in comparisons if not one.agrees for way in _ways(one, a, b)}
    return tuple(sorted(found, key=lambda way: way.how != NUMBERS))


def _ways(one: Comparison, a: Outcome, b: Outcome) -> Iterator[Way]:
    name = _INDEX.sub("", one.what)
    if one.what == "failure":
        yield Way(name, f"{_told(a.failure)} | {_told(b.failure)}")
    elif one.what == "mutated inputs":
        paths = [path for path in {**a.mutated, **b.mutated} if _mutation(a, path) != _mutation(b, path)]
        yield from (Way(name, _INDEX.sub("", path)) for path in paths)
    elif one.what == "aliases":
        pairs = sorted(a.aliases ^ b.aliases)
        yield from (Way(name, _INDEX.sub("", f"{pair[0]} and {pair[1]}")) for pair in pairs)
    elif one.what in a.arrays or one.what in b.arrays:
        yield from (Way(name, how) for how in _values(a.arrays.get(one.what), b.arrays.get(one.what)))
    else:
        yield Way(name, "")


def _told(failure: Failure | None) -> str:
    if failure is None:
        return "a result"
    return f"{failure.kind}: {_LISTED.sub('#', _NUMBERS.sub('#', failure.message))}"


def _mutation(outcome: Outcome, path: str) -> tuple[torch.dtype, torch.Size, bytes] | None:
    value = outcome.mutated.get(path)
    return None if value is None else (value.dtype, value.shape, pattern(value).numpy().tobytes())


def _values(a: torch.Tensor | None, b: torch.Tensor | None) -> list[str]:
    if a is None or b is None:
        return ["missing"]
    if a.dtype != b.dtype:
        return [f"{a.dtype} | {b.dtype}"]
    if a.shape != b.shape:
        return ["shape"]
    if not a.is_floating_point():
        return ["values"]
    differs = (pattern(a) != pattern(b)).any(dim=-1)
    pairs = zip(a.reshape(-1)[differs].tolist(), b.reshape(-1)[differs].tolist(), strict=True)
    return sorted({_pair(one, other) for one, other in pairs})


def _pair(one: float, other: float) -> str:
    kinds = (_kind(one), _kind(other))
    if kinds != ("number", "number"):
        return " | ".join(kinds)
    return "sign of zero" if one == other else NUMBERS


def _kind(value: float) -> str:
    return "nan" if value != value else "infinity" if abs(value) == float("inf") else "number"
