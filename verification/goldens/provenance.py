"""Where the goldens of a folder come from: ``provenance.json`` beside them.

A folder may hold goldens of several recordings, since ``golden accept PATTERN`` takes some and leaves others. So the
file lists recordings, and each names the goldens that it gave.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from itertools import zip_longest
from pathlib import Path
from typing import Any

from verification.plain_file import read_plain

FILE = "provenance.json"
FORMAT = 1
MAX_BYTES = 2**20
MAX_CHARACTERS = 1000  # of one field
MAX_THREADS = 2**16
_GOLDEN = re.compile(r"[a-z0-9][a-z0-9._+-]{0,150}")


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


_FIELDS = {field.name for field in fields(Recording)}
Provenance = dict[Recording, set[str]]  # the names of the goldens, without .txt, that each recording gave


class ProvenanceError(ValueError):
    """A provenance file that cannot be read; the message names the file and the reason."""


def read(folder: Path) -> Provenance:
    """The recordings of a folder; none where it has no provenance file."""
    path = folder / FILE
    for part in path.parents[:3]:  # the platform, the algorithm and the stage, as `GoldenStore.path` has it
        if part.is_symlink():
            raise ProvenanceError(f"{part} is a link, and may lead outside the goldens: remove it")
    try:
        data = read_plain(path, MAX_BYTES)
    except ValueError as error:
        raise ProvenanceError(f"{path}: {error}") from None
    return {} if data is None else parse(data, str(path))


def parse(data: bytes, place: str) -> Provenance:
    """The recordings in ``data``, which has to be what `render` writes; ``place`` names the file in errors."""
    content = _json(data, place)
    listed = content.get("recordings") if isinstance(content, dict) and content.get("format") == FORMAT else None
    if not isinstance(listed, list):
        raise ProvenanceError(f"{place}: expected format {FORMAT} and a list of recordings")
    provenance: Provenance = {}
    taken: set[str] = set()
    for number, entry in enumerate(listed, start=1):
        where = f"{place}: recording {number}"
        goldens = entry.pop("goldens", None) if isinstance(entry, dict) else None
        if not isinstance(goldens, list):
            raise ProvenanceError(f"{where}: has no list of goldens")
        recording = _recording(entry, where)
        if recording in provenance:
            raise ProvenanceError(f"{where}: is listed before; list its goldens once")
        for golden in goldens:
            if not isinstance(golden, str) or not _GOLDEN.fullmatch(golden):
                raise ProvenanceError(f"{where}: {_short(golden)} is no name of a golden in this folder")
            if golden in taken:
                raise ProvenanceError(f"{where}: the golden {golden!r} is listed twice")
            taken.add(golden)
        provenance[recording] = set(goldens)
    _require_canonical(data, provenance, place)
    return provenance


def recording_from(text: str, place: str) -> Recording:
    """The one recording that ``text`` describes: a JSON object with exactly its fields."""
    return _recording(_json(text.encode("utf-8", "surrogatepass"), place), place)


def _recording(entry: Any, where: str) -> Recording:
    if not isinstance(entry, dict) or set(entry) != _FIELDS:
        raise ProvenanceError(f"{where}: a recording has exactly the fields {', '.join(sorted(_FIELDS))}")
    for name, value in entry.items():
        if name == "threads":
            fits = type(value) is int and 1 <= value <= MAX_THREADS
        else:
            fits = isinstance(value, str) and value.isprintable() and 1 <= len(value) <= MAX_CHARACTERS
        if not fits:
            kind = f"a number from 1 to {MAX_THREADS}" if name == "threads" else "a line of text"
            raise ProvenanceError(f"{where}: {name} is {_short(value)}, not {kind}")
    return Recording(**entry)


def _json(data: bytes, place: str) -> Any:
    if len(data) > MAX_BYTES:
        raise ProvenanceError(f"{place}: more than {MAX_BYTES} bytes")
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ProvenanceError(f"{place}: line {line}: not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ProvenanceError(f"{place}: line {error.lineno}: not JSON text: {error.msg}") from None
    except RecursionError:
        raise ProvenanceError(f"{place}: nested too deeply") from None
    except ValueError as error:  # a key twice, or a number of thousands of digits
        raise ProvenanceError(f"{place}: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {_short(key)} stands twice")
        found[key] = value
    return found


def _require_canonical(data: bytes, provenance: Provenance, place: str) -> None:
    """There is one way to write a provenance file, so whatever was added, moved or respaced shows."""
    lines = (data.decode("utf-8").split("\n"), render(provenance).split("\n"))
    for number, (found, wanted) in enumerate(zip_longest(*lines), start=1):
        if found != wanted:
            raise ProvenanceError(f"{place}: line {number}: found {_short(found)} where {_short(wanted)} belongs")


def _short(value: Any) -> str:
    """A value of a file as an error shows it, whatever its type and size."""
    if isinstance(value, str):
        return repr(value[:80])
    return "nothing" if value is None else f"a value of type {type(value).__name__}"


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
