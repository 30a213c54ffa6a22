"""Single values as a reader needs them: in decimal, and in bits where the decimal could hide something."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import torch
from flint import arb, ctx, fmpq

from verification.goldens.values import NAMES, decimal, hex_digits, words

DIGITS = 20  # of an exact value: more than a float64 has


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """The tensor that a case's array stands for: numpy has no bfloat16, and uint16 holds the bits of one."""
    tensor = torch.from_numpy(np.ascontiguousarray(array)).reshape(array.shape)
    return tensor.view(torch.bfloat16) if array.dtype == np.uint16 else tensor


def kind(tensor: torch.Tensor | None) -> str:
    """``float32 [3]``, or ``missing``."""
    return "missing" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def elements(tensor: torch.Tensor, start: int = 0, end: int | None = None) -> list[str]:
    """Elements ``start`` to ``end`` of the flat tensor: floats as ``0.5 (0x3f000000)``, others as the number alone."""
    dtype = NAMES[tensor.dtype]
    part = words(tensor.detach().reshape(-1)[start:end])
    if not tensor.dtype.is_floating_point:
        return [decimal(word, dtype) for word in part]
    return [f"{decimal(word, dtype)} (0x{word:0{hex_digits(dtype)}x})" for word in part]


def array_as_data(tensor: torch.Tensor) -> dict[str, Any]:
    """An array for JSON: dtype, shape, every value, and for floats every bit pattern."""
    dtype = NAMES[tensor.dtype]
    data = {"dtype": dtype, "shape": list(tensor.shape), "values": tensor.detach().reshape(-1).tolist()}
    if tensor.dtype.is_floating_point:
        data["bits"] = [f"{word:0{hex_digits(dtype)}x}" for word in words(tensor)]
    return data


def scalar(value: Any) -> str:
    """A value that is no array; a Python float with its bits."""
    if isinstance(value, np.generic):
        return f"{value.dtype} {elements(tensor_of(np.asarray(value)))[0]}"
    return f"{value!r} (0x{struct.pack('>d', value).hex()})" if isinstance(value, float) else repr(value)


def scalar_as_data(value: Any) -> Any:
    """A value for JSON: itself where JSON has it, a Python float that it has no word for with its bits, else text."""
    if isinstance(value, np.generic):
        return array_as_data(tensor_of(np.asarray(value)))
    if isinstance(value, float) and not math.isfinite(value):
        return {"dtype": "float64", "shape": [], "values": [value], "bits": [struct.pack(">d", value).hex()]}
    if value is None or isinstance(value, bool | int | float):
        return value
    return value if isinstance(value, str) else repr(value)


def exact(value: arb | fmpq | None) -> str:
    """A real number to more digits than any float has; ``-`` where the formula has no value to hold a float to."""
    if value is None:
        return "-"
    with ctx.workprec(4 * DIGITS):  # an fmpq becomes a ball of this precision
        return (value if isinstance(value, arb) else arb(value)).str(DIGITS, radius=False)
