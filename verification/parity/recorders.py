"""Recorders around kernels: which kernel a call reached, with which arguments, and what it gave, to the bit."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from verification.parity.kernels import Kernel, masks_as_numbers
from verification.parity.snapshots import Snapshot, identities, snapshot


@dataclass(frozen=True)
class Call:
    """One formula that ran: its table entry, its name, and its arguments and result as they were."""

    entry: str
    formula: str
    arguments: dict[str, Snapshot]
    result: Snapshot
    aliasing: Snapshot

    @property
    def name(self) -> str:
        """Entry and formula, as reports name them: ``POLICY_LOSS_FNS/soft_gate -> soft_gate``."""
        return f"{self.entry} -> {self.formula}" if self.entry else self.formula


@dataclass
class Trace:
    """The calls since the last ``clear``, in the order in which they began, and the table entries that were entered.

    ``open_entries`` are those that have not returned yet: a formula that runs meanwhile is theirs.
    """

    calls: list[Call] = field(default_factory=list)
    entries: list[str] = field(default_factory=list)
    open_entries: list[str] = field(default_factory=list)

    def clear(self) -> None:
        """Forget what was recorded: the recorders stay in place from case to case, since placing them costs most."""
        self.calls.clear()
        self.entries.clear()
        self.open_entries.clear()


@contextlib.contextmanager
def recording(kernels: tuple[Kernel, ...]) -> Iterator[Trace]:
    """Record every call of ``kernels`` made inside the block.

    A kernel that does not exist is an error of this harness, not an unused recorder: AttributeError or KeyError.
    """
    trace = Trace()
    with contextlib.ExitStack() as patches:
        for kernel in kernels:
            patches.enter_context(_patched(kernel, trace))
        yield trace


def _patched(kernel: Kernel, trace: Trace) -> contextlib.AbstractContextManager[Any]:
    module_name, _, attribute = kernel.place.partition(":")
    module = importlib.import_module(module_name)
    if not attribute.endswith("]"):
        return mock.patch.object(module, attribute, _recorder(kernel, getattr(module, attribute), trace))
    table_name, _, key = attribute.removesuffix("]").partition("[")
    table = getattr(module, table_name)
    return mock.patch.dict(table, {key: _recorder(kernel, table[key], trace)})


def _recorder(kernel: Kernel, original: Callable[..., Any], trace: Trace) -> Callable[..., Any]:
    signature = inspect.signature(original)

    def entry_recorder(*positional: Any, **keywords: Any) -> Any:
        """A line of a table: the formulas that it reaches are recorded as its own."""
        trace.entries.append(kernel.entry)
        before = len(trace.calls)
        trace.open_entries.append(kernel.entry)
        try:
            return original(*positional, **keywords)
        finally:
            trace.open_entries.pop()
            if len(trace.calls) == before:
                trace.calls.append(Call(kernel.entry, "no recorded formula", {}, (), ()))

    def formula_recorder(*positional: Any, **keywords: Any) -> Any:
        bound = signature.bind(*positional, **keywords)
        bound.apply_defaults()
        named = {kernel.rename.get(name, name): value for name, value in bound.arguments.items()}
        arguments = {name: snapshot(value) for name, value in kernel.read(masks_as_numbers(named)).items()}
        entry = kernel.entry or (trace.open_entries[-1] if trace.open_entries else "")
        if kernel.entry:
            trace.entries.append(kernel.entry)
        place = len(trace.calls)
        try:
            result = original(*positional, **keywords)
        except Exception as error:
            failed = Call(entry, str(kernel.formula), arguments, ("raised", type(error).__name__), ())
            trace.calls.insert(place, failed)
            raise
        trace.calls.insert(place, Call(entry, str(kernel.formula), arguments, snapshot(result), identities(result)))
        return result

    return entry_recorder if kernel.formula is None else formula_recorder
