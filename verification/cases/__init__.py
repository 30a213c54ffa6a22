"""The corpus of named cases. Importing this package is cheap: the cases are built at the first call."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verification.cases.case import Case


def corpus() -> tuple[Case, ...]:
    """Every case, in a fixed order, ids unique."""
    from verification.cases.registry import corpus as gathered

    return gathered()


def find(identity: str) -> Case:
    """The case called ``identity``; a KeyError that names the closest ones where there is none."""
    from verification.cases.registry import find as found

    return found(identity)
