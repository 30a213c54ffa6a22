"""Where the goldens of a folder come from: ``provenance.json`` beside them.

A folder may hold goldens of several recordings, since ``golden accept PATTERN`` takes some and leaves others. So the
file lists recordings, and each names the goldens that it gave.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

FILE = "provenance.json"
FORMAT = 1


@dataclass(frozen=True, order=True)
class Recording:
    """One run of the recording command.

    ``baseline`` is the commit, ``relax_tree`` the git hash of ``relax/`` in it, ``corpus`` and ``config`` the digests
    of all cases and of the command line's defaults; the rest is the environment that did the arithmetic.
    """

    baseline: str
    relax_tree: str
    corpus: str
    config: str
    platform: str
    torch: str
    capability: str
    threads: int
    command: str


Provenance = dict[Recording, set[str]]  # the names of the goldens, without .txt, that each recording gave


class ProvenanceError(ValueError):
    """A provenance file that cannot be read; the message names the file and the reason."""


def read(folder: Path) -> Provenance:
    """The recordings of a folder; none where it has no provenance file."""
    path = folder / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ProvenanceError(f"{path}: not JSON text: {error}") from None
    recordings = content.get("recordings") if isinstance(content, dict) and content.get("format") == FORMAT else None
    if not isinstance(recordings, list):
        raise ProvenanceError(f"{path}: expected format {FORMAT} and a list of recordings")
    known = {field.name for field in fields(Recording)}
    provenance: Provenance = {}
    for entry in recordings:
        goldens = entry.pop("goldens", None) if isinstance(entry, dict) else None
        if not isinstance(goldens, list) or set(entry) != known:
            raise ProvenanceError(f"{path}: a recording has goldens and exactly the fields {', '.join(sorted(known))}")
        provenance.setdefault(Recording(**entry), set()).update(goldens)
    return provenance


def render(provenance: Provenance) -> str:
    """The text of a provenance file: sorted, one golden a line, so that a change reads well in a diff."""
    recordings = [
        {**asdict(recording), "goldens": sorted(goldens)}
        for recording, goldens in sorted(provenance.items(), key=lambda item: item[0])
        if goldens
    ]
    return json.dumps({"format": FORMAT, "recordings": recordings}, indent=2) + "\n"


def moved(provenance: Provenance, recording: Recording, goldens: Iterable[str]) -> Provenance:
    """The provenance after ``recording`` gave these goldens anew."""
    goldens = set(goldens)
    rest = {other: names - goldens for other, names in provenance.items()}
    rest[recording] = rest.get(recording, set()) | goldens
    return {other: names for other, names in rest.items() if names}


def without(provenance: Provenance, goldens: Iterable[str]) -> Provenance:
    """The provenance after these goldens were removed."""
    gone = set(goldens)
    return {recording: names - gone for recording, names in provenance.items() if names - gone}
