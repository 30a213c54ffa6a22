"""The public calls of whatever relax this process imports, which may be older than this harness.

What the revision lacks is "not there" and gives None: a call or its module, an algorithm, a keyword for which a case
has a value. What is there and cannot be imported or run is an error or a failure, as it would be in the working tree.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection
from functools import partial
from types import SimpleNamespace
from typing import Any

from verification.cases.case import Case
from verification.cases.families import ALL
from verification.subjects.capture import capture
from verification.subjects.live import PUBLIC_CALLS
from verification.subjects.outcome import Outcome
from verification.subjects.stages import STAGE_CALLS

REGISTRY = ("relax.algorithms.spec", "list_algorithm_names")


class OtherRevision:
    """The calls that are there, and the algorithms that are registered (all, where there is no registry to ask)."""

    def __init__(self) -> None:
        found = {name: imported(module, name) for name, module in PUBLIC_CALLS.items()}
        self.calls: dict[str, Callable[..., Any]] = {name: call for name, call in found.items() if call is not None}
        listed = imported(*REGISTRY)
        self.algorithms: Collection[str] = ALL if listed is None else tuple(listed())

    def run(self, case: Case, *, threads: int = 1, watch: bool = True) -> Outcome | None:
        stage = STAGE_CALLS[case.stage]
        call = self.calls.get(stage.call)
        if call is None or (case.algorithm in ALL and case.algorithm not in self.algorithms):
            return None
        unknown = not_accepted(call, stage.keywords)
        if any(case.inputs.get(name) is not None for name in unknown):
            return None
        calls = SimpleNamespace(**{stage.call: partial(_without, call, unknown) if unknown else call})
        return capture(calls, case, threads=threads, watch=watch)


def imported(module: str, name: str) -> Any:
    """An attribute of a module of relax; None where that very module, or the attribute, is not there.

    Any other failure to import is an error: code that is there but broken must not pass for code that is not there.
    """
    try:
        return getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.startswith("relax.") and (module == missing or module.startswith(f"{missing}.")):
            return None
        raise


def not_accepted(call: Callable[..., Any], keywords: Collection[str]) -> frozenset[str]:
    """Those of ``keywords`` that ``call`` does not take."""
    parameters = inspect.signature(call).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return frozenset()
    return frozenset(keywords) - frozenset(parameters)


def _without(call: Callable[..., Any], unknown: Collection[str], *positional: Any, **keywords: Any) -> Any:
    return call(*positional, **{name: value for name, value in keywords.items() if name not in unknown})
