"""The devices that formulas can be run on: how to get there, how many times to look, and what they are called."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import torch

from verification.devices import pretend

PRETEND = "pretend"
SIDE_STREAMS = 2


class NoSuchDevice(ValueError):
    """The device cannot be used here; the message says why."""


@dataclass(frozen=True)
class Device:
    """``place`` moves a tensor there. A call is made ``rounds`` times on each of the ``lanes``, by name: the default
    stream and others. ``as_cpu``: it computes with the CPU's kernels, hence the CPU's bits."""

    name: str
    place: Callable[[torch.Tensor], torch.Tensor]
    lanes: Mapping[str, Callable[[], AbstractContextManager[object]]]
    rounds: int
    as_cpu: bool
    facts: Mapping[str, str] = field(default_factory=dict)


def device_named(name: str) -> Device:
    """``cuda`` or ``cuda:N``, or ``pretend``: the CPU, with devices told apart. Raises NoSuchDevice."""
    if name == PRETEND:
        return Device(PRETEND, pretend.place, {"the device": pretend.pretending}, rounds=1, as_cpu=True)
    form = re.fullmatch(r"cuda(?::(\d+))?", name)
    if form is None:
        raise NoSuchDevice(f"{name!r} is no device that this knows: use cuda, cuda:N or {PRETEND}")
    if reason := why_no_gpu():
        raise NoSuchDevice(f"no device {name} here: {reason}; {PRETEND} runs the same path on the CPU")
    index, count = int(form[1] or 0), torch.cuda.device_count()
    if index >= count:
        raise NoSuchDevice(f"no device {name} here: torch sees {count} of them, counted from 0")
    return _cuda(index)


def recordable(name: str) -> Device:
    """The device of that name, which must have bits of its own: a golden of any other is the CPU's."""
    device = device_named(name)
    if device.as_cpu:
        raise NoSuchDevice(f"{name} computes with the CPU's kernels: goldens recorded there are those of the CPU")
    return device


def why_no_gpu() -> str:
    """Why no GPU can be used; empty where one can."""
    if torch.cuda.is_available():
        return ""
    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} is built for the CPU alone, and a CUDA build of it is needed"
    return f"torch {torch.__version__} sees no GPU: compare nvidia-smi and CUDA_VISIBLE_DEVICES"


def _cuda(index: int) -> Device:
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    side = [torch.cuda.Stream(device) for _ in range(SIDE_STREAMS)]
    streams = {f"side stream {number}": partial(torch.cuda.stream, stream) for number, stream in enumerate(side, 1)}
    properties = torch.cuda.get_device_properties(device)
    return Device(
        name=f"cuda:{index}",
        place=lambda tensor: tensor.to(device),
        lanes={"the default stream": nullcontext, **streams},
        rounds=5,
        as_cpu=False,
        facts={"gpu": f"{properties.name}, {properties.multi_processor_count} multiprocessors"},
    )
