"""Cases as a bundle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from verification.bundles.arrays import FILE as ARRAYS
from verification.bundles.arrays import ArrayReader, ArrayWriter
from verification.bundles.error import BundleError
from verification.bundles.folder import fields, read_folder, write_folder
from verification.bundles.strict_json import from_json, to_json
from verification.bundles.values import decode, encode
from verification.cases.case import Case

KIND, FILE = "cases", "cases.json"


def write_cases(folder: Path, cases: Sequence[Case]) -> None:
    """Writes ``cases`` to ``folder``. An input without an exact form is a BundleError that names case and place."""
    writer = ArrayWriter()
    documents = [{name: _encoded(case, name, writer) for name in _FIELDS} for case in cases]
    write_folder(folder, KIND, len(cases), {FILE: to_json(documents), ARRAYS: writer.to_bytes()})


def _encoded(case: Case, name: str, writer: ArrayWriter) -> Any:
    value = getattr(case, name)
    return encode(dict(value) if name in ("inputs", "options") else value, writer, f"{case.id}: {name}")


def read_cases(folder: Path) -> list[Case]:
    """The cases that were written to ``folder``, with equal input digests; a BundleError says why it is refused."""
    count, files = read_folder(folder, KIND, (FILE, ARRAYS))
    reader, path = ArrayReader(files[ARRAYS], str(folder / ARRAYS)), str(folder / FILE)
    documents = from_json(files[FILE], path)
    if not isinstance(documents, list) or len(documents) != count:
        raise BundleError(f"{path}: not the {count} cases that the manifest tells of")
    cases = [_case(document, reader, f"{path}: case {index}") for index, document in enumerate(documents)]
    if len({case.id for case in cases}) != len(cases):
        raise BundleError(f"{path}: two cases have one id")
    return cases


def _case(document: Any, reader: ArrayReader, place: str) -> Case:
    fields(document, tuple(_FIELDS), place)
    values = {name: decode(document[name], reader, f"{place}: {name}") for name in _FIELDS}
    for name, belongs in _FIELDS.items():
        if not belongs(values[name]):
            raise BundleError(f"{place}: its {name} is no {name} of a case, but a {type(values[name]).__name__}")
    try:
        return Case(**values)
    except ValueError as error:
        raise BundleError(f"{place}: {error}") from None


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_mapping(value: Any) -> bool:
    return type(value) is dict and all(type(key) is str for key in value)


def _is_texts(value: Any) -> bool:
    return type(value) is tuple and all(type(text) is str for text in value)


_FIELDS: dict[str, Callable[[Any], bool]] = {
    "id": _is_text,
    "stage": _is_text,
    "algorithm": _is_text,
    "inputs": _is_mapping,
    "options": _is_mapping,
    "error": lambda value: value is None or _is_texts(value),
    "note": _is_text,
    "tags": _is_texts,
}
