"""Implementations that run in this process: a module or object with the public calls, or any class of one's own."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from typing import Any

import torch

from verification.cases.case import Case
from verification.subjects.capture import capture
from verification.subjects.outcome import Outcome
from verification.subjects.protocol import Subject
from verification.subjects.stages import STAGE_CALLS

ENTRY_POINT_GROUP = "relax_verification.subjects"


class Implementation:
    """A subject made from an object that offers public calls, any of them.

    A stage without its call is "not there", and so is what the call answers with NotImplementedError. ``dialects``, if
    the object has it, says where it follows another definition on purpose: a pattern of case ids to a sentence each.
    """

    def __init__(self, name: str, calls: Any) -> None:
        self.name = name
        self.calls = calls
        self.dialects: dict[str, str] = dict(getattr(calls, "dialects", {}))

    def run(
        self,
        case: Case,
        *,
        threads: int = 1,
        watch: bool = True,
        place: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> Outcome | None:
        outcome = capture(self.calls, case, threads=threads, watch=watch, place=place)
        absent = outcome is not None and outcome.failure is not None and outcome.failure.kind == "NotImplementedError"
        return None if absent else outcome


def load_subject(reference: str) -> Subject:
    """The subject named ``module:Class`` (or ``module:object``), or registered under the entry point group.

    The target may follow the protocol itself (``name`` and ``run``), or offer public calls such as
    ``post_process_rewards``; a class is instantiated without arguments. A ValueError says what could not be found.
    """
    target = _import(reference) if ":" in reference else _entry_point(reference)
    if isinstance(target, type):
        target = target()
    if isinstance(target, Subject):
        return target
    if any(hasattr(target, stage.call) for stage in STAGE_CALLS.values()):
        return Implementation(reference, target)
    calls = ", ".join(sorted({stage.call for stage in STAGE_CALLS.values()}))
    raise ValueError(f"subject {reference!r} has neither `name` and `run(case)` nor any of the public calls {calls}")


def _import(reference: str) -> Any:
    module_name, _, attribute = reference.partition(":")
    try:
        target = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(f"subject {reference!r}: cannot import {module_name!r} ({error})") from error
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise ValueError(f"subject {reference!r}: {module_name!r} has no attribute {attribute!r}")
        target = getattr(target, part)
    return target


def _entry_point(name: str) -> Any:
    points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    for point in points:
        if point.name == name:
            return point.load()
    known = ", ".join(sorted(point.name for point in points)) or "none is registered"
    raise ValueError(f"no subject {name!r}: use module:Class, or an entry point of {ENTRY_POINT_GROUP} ({known})")
