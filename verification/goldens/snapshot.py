"""The goldens as syrupy snapshots: the same files, the same reader, the same judge, and no way to write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syrupy.data import SnapshotCollections
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from verification.cases.case import Case
from verification.goldens.compare import default_store, golden_of, judge_goldens
from verification.goldens.guard import COMMAND, WriteRefused
from verification.goldens.parse import parse
from verification.goldens.platform import platform_of
from verification.goldens.text import render
from verification.subjects.outcome import Outcome


class GoldenSnapshotExtension(SingleFileSnapshotExtension):
    """``assert (case, outcome) == snapshot(name=case.id)`` against the case's golden.

    The name of a snapshot is the id of its case. Equality is that of the bits judge: two failures of one type agree,
    whatever their messages.
    """

    file_extension = "txt"
    _write_mode = WriteMode.TEXT

    def serialize(self, data: tuple[Case, Outcome], **_: Any) -> str:
        return render(golden_of(*data))

    def matches(self, *, serialized_data: str, snapshot_data: str) -> bool:
        if serialized_data == snapshot_data:  # there is one way to write an outcome, so equal texts are equal outcomes
            return True
        findings = judge_goldens(parse(serialized_data, "this run"), parse(snapshot_data, "the golden"))
        return all(finding.agrees for finding in findings)

    @classmethod
    def get_location(cls, *, test_location: Any, index: Any) -> str:
        from verification.cases import find

        return str(default_store().path(index, platform_of(find(index))))

    @classmethod
    def get_snapshot_name(cls, *, test_location: Any, index: Any = 0) -> str:
        return str(index)

    def read_snapshot_data_from_location(
        self, *, snapshot_location: str, snapshot_name: str, session_id: str
    ) -> str | None:
        path = Path(snapshot_location)
        return path.read_text(encoding="utf-8") if path.is_file() else None

    def discover_snapshots(self, **_: Any) -> SnapshotCollections:
        """None: goldens of cases that no test of this run asked for are not unused, and never syrupy's to delete."""
        return SnapshotCollections()

    @classmethod
    def write_snapshot(cls, *, snapshot_location: str, **_: Any) -> None:
        """Refuses before anything is made on disk; syrupy's own method would make the folders first."""
        raise WriteRefused(f"{snapshot_location}: goldens are not updated by pytest; use {COMMAND}")

    def delete_snapshots(self, *, snapshot_location: str, snapshot_names: set[str]) -> None:
        raise WriteRefused(f"{snapshot_location}: goldens are not deleted by pytest; use {COMMAND}")
