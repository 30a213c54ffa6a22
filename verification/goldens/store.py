"""The folder of goldens: ``STAGE/ALGORITHM/PLATFORM/REST.txt`` for the case ``STAGE/ALGORITHM/REST``."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verification.goldens.guard import WritePermit
from verification.goldens.parse import MAX_BYTES, Golden, GoldenFormatError, parse
from verification.goldens.text import render
from verification.plain_file import read_plain

_EVIDENCE = ("*.txt", "provenance.json")
_SEGMENT = re.compile(r"[a-z0-9][a-z0-9._+-]{0,150}")


@dataclass(frozen=True)
class GoldenStore:
    """Goldens under ``root``. Reading needs nothing; writing needs a permit of the guard."""

    root: Path

    def path(self, case: str, platform: str) -> Path:
        """Where the golden of a case lies; a ValueError for an id or platform that is not made of plain segments.

        No id reaches outside ``root``: segments hold no separator and do not start with a dot, and a link inside
        the store is refused.
        """
        segments = case.split("/")
        if len(segments) != 3 or not all(_SEGMENT.fullmatch(segment) for segment in segments):
            raise ValueError(f"case id {case!r} is not stage/algorithm/rest in lower-case letters, digits and ._+-")
        if not _SEGMENT.fullmatch(platform):
            raise ValueError(f"platform {platform!r} is not made of lower-case letters, digits and ._+-")
        stage, algorithm, rest = segments
        path = self.root / stage / algorithm / platform / f"{rest}.txt"
        for part in (path, *path.parents[:3]):
            if part.is_symlink():
                raise ValueError(f"{part} is a link, and may lead outside {self.root}: remove it")
        return path

    def text(self, case: str, platform: str) -> bytes | None:
        """The bytes of a golden, None where there is none; one that is no plain file is a GoldenFormatError."""
        path = self.path(case, platform)
        try:
            return read_plain(path, MAX_BYTES)
        except ValueError as error:
            raise GoldenFormatError(f"{path}:1: {error}") from None

    def read(self, case: str, platform: str) -> Golden | None:
        """The golden of a case, None where there is none; a GoldenFormatError names the file, line and reason."""
        data = self.text(case, platform)
        if data is None:
            return None
        path = self.path(case, platform)
        golden = parse(data, str(path))
        if (golden.case, golden.platform) != (case, platform):
            held = f"case {golden.case} on {golden.platform}"
            raise GoldenFormatError(f"{path}:3: holds {held}, but its place is that of {case} on {platform}")
        return golden

    def write(self, golden: Golden, permit: WritePermit) -> Path:
        """Writes one golden, whole or not at all."""
        path = self.path(golden.case, golden.platform)
        text = render(golden)
        if parse(text, str(path)).case != golden.case:
            raise ValueError(f"golden of {golden.case!r} does not read back")
        write_atomically(path, text, permit)
        return path

    def copy(self, other: GoldenStore, case: str, platform: str, permit: WritePermit) -> None:
        """Takes over one golden of another store, which must be sound: then there is one way to write it."""
        golden = other.read(case, platform)
        if golden is None:
            raise FileNotFoundError(f"{other.path(case, platform)}: there is no golden to take over")
        write_atomically(self.path(case, platform), render(golden), permit)

    def remove(self, case: str, platform: str, permit: WritePermit) -> None:
        """Removes one golden, and its folder when that is left without goldens."""
        path = self.path(case, platform)
        path.unlink(missing_ok=True)
        folder = path.parent
        if folder.is_dir() and not any(folder.glob("*.txt")):
            (folder / "provenance.json").unlink(missing_ok=True)
            folder.rmdir()

    def entries(self) -> Iterator[tuple[str, str]]:
        """``(case, platform)`` of every golden, sorted. A file that belongs to no case is a GoldenFormatError."""
        for path in sorted(self.root.glob("*/*/*/*.txt")):
            stage, algorithm, platform, name = path.relative_to(self.root).parts
            case = f"{stage}/{algorithm}/{name.removesuffix('.txt')}"
            try:
                self.path(case, platform)
            except ValueError as error:
                raise GoldenFormatError(f"{path}:1: {error}") from None
            yield case, platform

    def platforms(self) -> set[str]:
        """Every platform that was recorded here: one with goldens, or with the provenance of some that are gone."""
        return {path.parent.name for name in _EVIDENCE for path in self.root.glob(f"*/*/*/{name}")}

    def has_platform(self, platform: str) -> bool:
        """Whether this platform was recorded here."""
        return any(any(self.root.glob(f"*/*/{platform}/{name}")) for name in _EVIDENCE)


def write_atomically(path: Path, text: str, permit: WritePermit) -> None:
    """Replaces ``path`` by ``text`` in one step: readers and a killed process see the old file or the new one."""
    if not isinstance(permit, WritePermit):
        raise TypeError(f"{path}: goldens are written with a permit of verification.goldens.guard")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
