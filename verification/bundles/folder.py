"""A bundle as a folder: the manifest, the checksums and the limits that everything in it is held to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verification.bundles.error import BundleError
from verification.bundles.strict_json import from_json, to_json
from verification.plain_file import read_plain

FORMAT = 1
MANIFEST = "manifest.json"
MAX_BYTES = {MANIFEST: 2**16, "cases.json": 2**26, "outcomes.json": 2**26, "arrays.safetensors": 2**29}


def write_folder(folder: Path, kind: str, count: int, files: Mapping[str, bytes]) -> None:
    """Writes ``files`` and then the manifest, without which a bundle is none."""
    for name, data in files.items():
        if len(data) > MAX_BYTES[name]:
            remedy = "write it in several bundles"
            raise BundleError(f"{folder / name}: {len(data):,} bytes, at most {MAX_BYTES[name]:,} may be: {remedy}")
    folder.mkdir(parents=True, exist_ok=True)
    described = {name: {"size": len(data), "sha256": _checksum(data)} for name, data in files.items()}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    manifest = {"format": FORMAT, "kind": kind, "count": count, "files": described}
    (folder / MANIFEST).write_bytes(to_json(manifest))


def read_folder(folder: Path, kind: str, names: tuple[str, ...]) -> tuple[int, dict[str, bytes]]:
    """The count of the manifest, and the bytes of the files called ``names``, which it must list with their checksums.

    No file is read that the manifest does not describe as one of ``names``, and none beyond its limit.
    """
    path = folder / MANIFEST
    count, described = _manifest(from_json(_bytes(path), str(path)), str(path), kind, names)
    files = {}
    for name in names:
        data = _bytes(folder / name)
        if len(data) != described[name]["size"]:
            told = f"{described[name]['size']!r} bytes by the manifest"
            raise BundleError(f"{folder / name}: {len(data)} bytes, but {told}: it was cut short or changed")
        if _checksum(data) != described[name]["sha256"]:
            raise BundleError(f"{folder / name}: its checksum is not that of the manifest: it was changed")
        files[name] = data
    return count, files


def _manifest(document: Any, path: str, kind: str, names: tuple[str, ...]) -> tuple[int, dict[str, Any]]:
    fields(document, ("format", "kind", "count", "files"), path)
    if type(document["format"]) is not int or document["format"] != FORMAT:
        raise BundleError(f"{path}: format {document['format']!r:.40}, this version reads {FORMAT}")
    if document["kind"] != kind:
        raise BundleError(f"{path}: a bundle of kind {document['kind']!r:.40}, expected {kind!r}")
    if type(document["count"]) is not int:
        raise BundleError(f"{path}: {document['count']!r:.40} is no number of {kind}")
    fields(document["files"], names, f"{path}: files")
    for name in names:
        fields(document["files"][name], ("size", "sha256"), f"{path}: {name}")
    return document["count"], document["files"]


def fields(value: Any, names: tuple[str, ...], place: str) -> None:
    """Refuses what is no JSON object with exactly these keys."""
    if not isinstance(value, dict):
        raise BundleError(f"{place}: expected an object with {', '.join(names)}")
    if set(value) != set(names):
        odd = sorted(set(value) ^ set(names))[0]
        raise BundleError(f"{place}: {odd[:80]!r} is {'missing' if odd in names else 'not expected here'}")


def _bytes(path: Path) -> bytes:
    """The bytes of one file of a bundle: a plain file in the folder itself, no larger than its limit."""
    try:
        data = read_plain(path, MAX_BYTES[path.name])
    except ValueError as error:
        raise BundleError(f"{path}: {error}") from None
    if data is None:
        raise BundleError(f"{path}: cannot be read: there is no such file")
    return data


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
