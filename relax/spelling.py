"""What somebody who mistyped a name probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def closest(name: str, known: Iterable[str]) -> str | None:
    """The one of ``known`` that is most like ``name``; None where none is."""
    return next(iter(get_close_matches(name, known, n=1)), None)
