"""Outcomes as a bundle, by case: what a call gave, or None where the subject has no such call ("not there")."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from verification.bundles.arrays import FILE as ARRAYS
from verification.bundles.arrays import ArrayReader, ArrayWriter
from verification.bundles.error import BundleError
from verification.bundles.folder import fields, read_folder, write_folder
from verification.bundles.strict_json import from_json, to_json
from verification.bundles.values import decode, encode
from verification.subjects.outcome import Failure, Outcome

KIND, FILE = "outcomes", "outcomes.json"
_PLAIN = ("aliases", "texts", "failure", "elsewhere")
_TENSORS = ("arrays", "mutated")


def write_outcomes(folder: Path, outcomes: Mapping[str, Outcome | None]) -> None:
    """Writes ``outcomes`` to ``folder``. A tensor of a dtype that a bundle cannot hold is a BundleError naming it."""
    writer = ArrayWriter()
    documents = [[case, _document(case, outcome, writer)] for case, outcome in outcomes.items()]
    write_folder(folder, KIND, len(outcomes), {FILE: to_json(documents), ARRAYS: writer.to_bytes()})


def _document(case: str, outcome: Outcome | None, writer: ArrayWriter) -> Any:
    if outcome is None:
        return None
    failure = outcome.failure and (outcome.failure.kind, outcome.failure.message)
    plain = {
        "aliases": outcome.aliases,
        "texts": dict(outcome.texts),
        "failure": failure,
        "elsewhere": outcome.elsewhere,
    }
    return {
        **{name: _places(getattr(outcome, name), writer, f"{case}: {name}") for name in _TENSORS},
        **{name: encode(plain[name], writer, f"{case}: {name}") for name in _PLAIN},
    }


def _places(tensors: Mapping[str, torch.Tensor], writer: ArrayWriter, place: str) -> list[Any]:
    found = []
    for name, tensor in tensors.items():
        try:
            found.append([encode(name, writer, place), writer.add(tensor)])
        except ValueError as error:
            raise BundleError(f"{place} {name!r}: {error}") from None
    return found


def read_outcomes(folder: Path) -> dict[str, Outcome | None]:
    """The outcomes that were written to ``folder``, to the bit; a BundleError says why it is refused."""
    count, files = read_folder(folder, KIND, (FILE, ARRAYS))
    reader, path = ArrayReader(files[ARRAYS], str(folder / ARRAYS)), str(folder / FILE)
    documents = from_json(files[FILE], path)
    if not isinstance(documents, list) or len(documents) != count:
        raise BundleError(f"{path}: not the {count} outcomes that the manifest tells of")
    found: dict[str, Outcome | None] = {}
    for index, entry in enumerate(documents):
        if not isinstance(entry, list) or len(entry) != 2 or type(entry[0]) is not str or entry[0] in found:
            raise BundleError(f"{path}: entry {index} is no outcome under an id of its own")
        case, document = entry
        found[case] = None if document is None else _outcome(document, reader, f"{path}: {case[:200]}")
    return found


def _outcome(document: Any, reader: ArrayReader, place: str) -> Outcome:
    fields(document, (*_TENSORS, *_PLAIN), place)
    arrays, mutated = (_tensors(document[name], reader, f"{place}: {name}") for name in _TENSORS)
    plain = {name: decode(document[name], reader, f"{place}: {name}") for name in _PLAIN}
    aliases, texts, failure, elsewhere = (plain[name] for name in _PLAIN)
    for name, good in (
        ("aliases", type(aliases) is frozenset and all(_are_texts(pair, 2) for pair in aliases)),
        ("texts", type(texts) is dict and _are_texts((*texts, *texts.values()))),
        ("failure", failure is None or _are_texts(failure, 2)),
        ("elsewhere", _are_texts(elsewhere)),
    ):
        if not good:
            raise BundleError(f"{place}: its {name} is none of an outcome, but a {type(plain[name]).__name__}")
    return Outcome(arrays, mutated, aliases, texts, failure and Failure(*failure), elsewhere)


def _tensors(entries: Any, reader: ArrayReader, place: str) -> dict[str, torch.Tensor]:
    if not isinstance(entries, list) or not all(isinstance(entry, list) and len(entry) == 2 for entry in entries):
        raise BundleError(f"{place}: expected names with places")
    found: dict[str, torch.Tensor] = {}
    for document, where in entries:
        name = decode(document, reader, place)
        if type(name) is not str or name in found:
            raise BundleError(f"{place}: a name is no text, or stands twice")
        try:
            found[name] = reader.at(where)
        except ValueError as error:
            raise BundleError(f"{place} {name!r:.60}: {error}") from None
    return found


def _are_texts(value: Any, count: int | None = None) -> bool:
    return type(value) is tuple and all(type(text) is str for text in value) and count in (None, len(value))
