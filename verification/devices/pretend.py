"""A device in software: the CPU computes, and torch's rule that devices do not mix is held as on a GPU.

Formulas that run on it pass no host tensor where one of the device is due, and leave no result behind on the host: that
is what of a GPU can be tried without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

ELSEWHERE = torch.device("meta")  # torch knows the name on every machine, and no other tensor here is on it
HOST = torch.device("cpu")

# Calls that take tensors of two devices: copies, and indices, which may lie on the host.
_ACROSS = ("aten::copy_", "aten::_to_copy", "aten::index", "aten::index_put", "aten::index_put_")
_NO_HOST_NUMBER = ("aten::cat", "aten::stack")  # where not even a tensor without dimensions may lie on the host
_FROM_DATA = (torch.tensor, torch.as_tensor)


class Elsewhere(torch.Tensor):
    """A tensor of the pretended device; ``held`` has its elements, on the host."""

    held: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> Elsewhere:
        made = torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), dtype=held.dtype, device=ELSEWHERE
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _run(func, args, kwargs or {})

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.held.untyped_storage()

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def tolist(self) -> Any:
        return self.held.tolist()


def place(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of ``tensor`` on the pretended device."""
    return Elsewhere(tensor.detach().clone())


@contextmanager
def pretending() -> Iterator[None]:
    """Inside, tensors can be made on the pretended device, by the ``device`` of one that is there."""
    with _FromNothing(), _FromData():
        yield


class _FromNothing(TorchDispatchMode):
    """Calls that no tensor of the device takes part in, but that may be told to work there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _FromData(TorchFunctionMode):
    """Tensors made from numbers: torch fills none that is to be on ``ELSEWHERE``."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _FROM_DATA and kwargs.get("device") == ELSEWHERE:
            return place(func(*args, **{**kwargs, "device": HOST}))
        return func(*args, **kwargs)


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call on what is held. Its results are elsewhere where its arguments are, or where it was told to be."""
    tensors: list[torch.Tensor] = []
    devices: list[torch.device] = []

    def held(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            return value.held if isinstance(value, Elsewhere) else value
        if isinstance(value, torch.device):
            devices.append(value)
            return HOST if value == ELSEWHERE else value
        return [held(item) for item in value] if isinstance(value, list | tuple) else value

    arguments, keywords = [held(value) for value in args], {name: held(value) for name, value in kwargs.items()}
    if any(isinstance(tensor, Elsewhere) for tensor in tensors):
        _refuse_mixed(func, tensors)
    result = func(*arguments, **keywords)
    if func._schema.is_mutable:
        return args[0]
    there = devices[0] == ELSEWHERE if devices else any(isinstance(tensor, Elsewhere) for tensor in tensors)
    return _wrapped(result) if there else result


def _wrapped(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return Elsewhere(result)
    return type(result)(map(_wrapped, result)) if isinstance(result, list | tuple) else result


def _refuse_mixed(func: Any, tensors: list[torch.Tensor]) -> None:
    host = [tensor for tensor in tensors if not isinstance(tensor, Elsewhere)]
    name, changed = func._schema.name, func._schema.is_mutable and not isinstance(tensors[0], Elsewhere)
    numbers = not changed and name not in _NO_HOST_NUMBER and all(tensor.dim() == 0 for tensor in host)
    if host and not numbers and name not in _ACROSS:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in host)
        raise RuntimeError(f"{name} mixes devices: it was given tensors of the device and, on the host, {shapes}")
