"""What somebody who mistyped a name probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def closest(name: str, known: Iterable[str]) -> str | None:
    """The one of ``known`` that is most like ``name``; None where none is."""
    from difflib import get_close_matches  # only a mistake pays for this import

    return next(iter(get_close_matches(name, known, n=1)), None)
