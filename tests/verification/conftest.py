"""What several test files of the harness use: a cache of revisions of their own, and a relax that misbehaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.verification.player import playing
from verification.subjects.process import ProcessSubject


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for the revisions that a test places, and none of the person who runs it."""
    monkeypatch.setenv("RELAX_VERIFY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessSubject]:
    """The relax of `tests.verification.player` in its process."""
    with playing(tmp_path_factory.mktemp("process")) as subject:
        yield subject
