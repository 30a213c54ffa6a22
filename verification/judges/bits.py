"""The bits judge: two outcomes are equal only if dtype, shape and every bit are.

+0 and -0 differ, NaN payloads count, and so do changed inputs, aliases and the type of a failure.
"""

from __future__ import annotations

import struct
from functools import partial

import torch

from verification.cases.case import Case
from verification.judges.comparison import Comparison
from verification.judges.ulps import FORMATS, ulp_distance
from verification.subjects.outcome import Failure, Outcome

JUDGE = "bits"
_PACKING = {torch.float16: "e", torch.float32: "f", torch.float64: "d"}


def judge_bits(
    case: Case, outcome: Outcome, reference: Outcome, against: str, *, judge: str = JUDGE
) -> list[Comparison]:
    """Compare ``outcome`` with ``reference``, named ``against``.

    One comparison a named array and a text (of either side: a missing and a surplus one are differences), one for the
    changed inputs, one for the aliases. Where either failed there is one for the failures (equal types agree) and one
    for the inputs that each had changed before.
    """
    compare = partial(Comparison, case.id, case.stage, case.algorithm, judge, against)
    if outcome.failure is not None or reference.failure is not None:
        return [_failures(compare, outcome.failure, reference.failure), _changed_inputs(compare, outcome, reference)]
    names = [*outcome.arrays, *(name for name in reference.arrays if name not in outcome.arrays)]
    found = [_arrays(compare, name, outcome.arrays.get(name), reference.arrays.get(name)) for name in names]
    for name in [*outcome.texts, *(name for name in reference.texts if name not in outcome.texts)]:
        got, expected = outcome.texts.get(name), reference.texts.get(name)
        detail = "" if got == expected else f"got {got!r}, expected {expected!r}"
        found.append(compare(f"text {name}", got == expected, None, detail))
    found.append(_changed_inputs(compare, outcome, reference))
    missing, surplus = sorted(reference.aliases - outcome.aliases), sorted(outcome.aliases - reference.aliases)
    detail = f"no longer shared: {_pairs(missing)}; newly shared: {_pairs(surplus)}" if missing or surplus else ""
    found.append(compare("aliases", not detail, None, detail))
    return found


def _failures(compare: partial[Comparison], got: Failure | None, expected: Failure | None) -> Comparison:
    if got is None or expected is None:
        detail = f"got {_told(got)}, expected {_told(expected)}"
        return compare("failure", False, None, detail)
    agrees = got.kind == expected.kind
    return compare("failure", agrees, None, "" if agrees else f"got {_told(got)}, expected {_told(expected)}")


def _told(failure: Failure | None) -> str:
    return "a result" if failure is None else f"{failure.kind}: {failure.message}"


def _changed_inputs(compare: partial[Comparison], outcome: Outcome, reference: Outcome) -> Comparison:
    paths = sorted(set(outcome.mutated) | set(reference.mutated))
    differing = [
        path
        for path in paths
        if path not in outcome.mutated
        or path not in reference.mutated
        or first_difference(outcome.mutated[path], reference.mutated[path]) is not None
    ]
    if not differing:
        return compare("mutated inputs", True)
    sides = [
        f"{path} ({'changed' if path in outcome.mutated else 'untouched'}, expected "
        f"{'changed' if path in reference.mutated else 'untouched'})"
        for path in differing
    ]
    return compare("mutated inputs", False, None, ", ".join(sides))


def _pairs(pairs: list[tuple[str, str]]) -> str:
    return ", ".join(f"{one} and {other}" for one, other in pairs) or "none"


def _arrays(
    compare: partial[Comparison], name: str, got: torch.Tensor | None, expected: torch.Tensor | None
) -> Comparison:
    if got is None or expected is None:
        return compare(name, False, None, "missing" if got is None else "not expected: the reference has no such array")
    if got.dtype != expected.dtype:
        return compare(name, False, None, f"dtype {_short(got.dtype)}, expected {_short(expected.dtype)}")
    if got.shape != expected.shape:
        return compare(name, False, None, f"shape {list(got.shape)}, expected {list(expected.shape)}")
    index = first_difference(got, expected)
    if index is None:
        return compare(name, True, 0.0 if got.dtype in FORMATS and got.numel() else None)
    ulps = float(ulp_distance(got, expected).max()) if got.dtype in FORMATS else None
    count = int((pattern(got) != pattern(expected)).any(dim=-1).sum())
    detail = f"{count} of {got.numel()} differ, first at {place(index, got.shape)}: got {shown(got, index)}"
    return compare(name, False, ulps, f"{detail}, expected {shown(expected, index)}")


def pattern(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of each element: ``[n, itemsize]`` uint8, row-major."""
    flat = tensor.detach().cpu().reshape(-1)
    if flat.stride(0) != 1:  # reinterpreting bytes needs them side by side
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8).reshape(flat.numel(), flat.element_size())


def first_difference(got: torch.Tensor, expected: torch.Tensor) -> int | None:
    """Flat index of the first element whose bits differ; 0 for unequal dtypes or shapes; None for equal tensors."""
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return 0
    if got.dtype in FORMATS and got.device == expected.device:  # several times faster than byte by byte
        integer = FORMATS[got.dtype].bits
        if torch.equal(got.detach().view(integer), expected.detach().view(integer)):
            return None
    left, right = pattern(got), pattern(expected)
    if torch.equal(left, right):
        return None
    return int((left != right).any(dim=-1).nonzero()[0])


def place(index: int, shape: torch.Size) -> str:
    """A flat index as the indices of ``shape``."""
    indices = []
    for size in reversed(shape):
        indices.append(index % size)
        index //= size
    return str(list(reversed(indices)))


def shown(tensor: torch.Tensor, index: int) -> str:
    """One element as the shortest decimal that gives its bits back, with those bits in hexadecimal."""
    bits = "0x" + bytes(reversed(pattern(tensor)[index].tolist())).hex()
    value = tensor.detach().cpu().reshape(-1)[index].item()
    return f"{_decimal(value, tensor.dtype)} ({bits})"


def _decimal(value: float | int | bool, dtype: torch.dtype) -> str:
    if not isinstance(value, float):
        return str(value)
    code = _PACKING.get(dtype)
    if code is None or value != value:
        return repr(value)
    digits = {"e": 5, "f": 9, "d": 17}[code]
    for precision in range(1, digits + 1):
        text = f"{value:.{precision}g}"
        with_text = float(text)
        if abs(with_text) != float("inf") and _packed(code, with_text) == _packed(code, value):
            return text
    return repr(value)


def _packed(code: str, value: float) -> bytes:
    try:
        return struct.pack(f"<{code}", value)
    except OverflowError:  # a decimal rounded up beyond the largest finite value of the format
        return b""


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
