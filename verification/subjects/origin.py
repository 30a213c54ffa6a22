"""Whether the code that a process has loaded comes from where it should."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from verification.revisions.trees import PACKAGE

Places = Mapping[str, Sequence[str]]  # by module: its file, or the folders of one that has none


def loaded_places() -> dict[str, list[str]]:
    """Where every loaded module of relax came from; nothing for a module that came from no file."""
    names = [name for name in sorted(sys.modules) if name.partition(".")[0] == PACKAGE]
    return {name: _places(sys.modules[name]) for name in names}


def _places(module: object) -> list[str]:
    file = getattr(module, "__file__", None)
    return [str(file)] if file else [str(folder) for folder in getattr(module, "__path__", ())]


def strangers(places: Places, root: Path) -> list[str]:
    """The modules that did not come from below ``root``, each with where it came from."""
    return [
        f"{name} from {', '.join(found) or 'no file'}"
        for name, found in places.items()
        if not found or not all(_is_below(one, root) for one in found)
    ]


@functools.lru_cache(maxsize=4096)  # asked after every bundle, always about the same files
def _is_below(place: str, root: Path) -> bool:
    return Path(place).resolve().is_relative_to(root.resolve())
