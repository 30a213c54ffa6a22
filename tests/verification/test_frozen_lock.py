"""The hash lock of the frozen copies: an edit, an addition and a damaged lock are told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from verification.frozen import lock


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with two frozen files and their lock."""
    (tmp_path / "kl.py").write_bytes(b"k = 1\n")
    (tmp_path / "gae.py").write_bytes(b"g = 1\n")
    (tmp_path / lock.LOCK_NAME).write_text(lock.as_text(lock.locked_files(tmp_path)))
    return tmp_path


class TestLock:
    def test_the_copies_stand(self) -> None:
        """Every frozen file, the lock's own code included, has its recorded hash."""
        assert lock.check_lock() == []
        assert {"lock.py", "dispatch.py", "__init__.py"} <= set(lock.read_lock())

    def test_untouched(self, copy: Path) -> None:
        """An untouched folder has no problem."""
        assert lock.check_lock(copy) == []

    def test_one_changed_byte(self, copy: Path) -> None:
        """One changed byte names the file and the remedy, and no other file."""
        (copy / "kl.py").write_bytes(b"k = 2\n")
        (problem,) = lock.check_lock(copy)
        assert str(copy / "kl.py") in problem
        assert "restore it from version control" in problem

    def test_added_and_removed_files(self, copy: Path) -> None:
        """A file that is not locked and a locked one that is gone are both named."""
        (copy / "kl.py").rename(copy / "reward.py")
        gone, added = lock.check_lock(copy)
        assert "kl.py is locked but missing" in gone
        assert "reward.py is not locked" in added

    def test_line_endings(self, copy: Path) -> None:
        """CRLF line endings are told apart from an edit."""
        (copy / "kl.py").write_bytes(b"k = 1\r\n")
        (problem,) = lock.check_lock(copy)
        assert "kl.py has CRLF line endings" in problem

    @pytest.mark.parametrize("line", ["nonsense", "0" * 64 + " kl.py", "0" * 63 + "g  kl.py"])
    def test_damaged_lock(self, copy: Path, line: str) -> None:
        """A damaged lock is named with its line, and so is a missing one."""
        (copy / lock.LOCK_NAME).write_text(f"{line}\n")
        (problem,) = lock.check_lock(copy)
        assert f"{lock.LOCK_NAME}:1" in problem
        (copy / lock.LOCK_NAME).unlink()
        assert "is missing" in lock.check_lock(copy)[0]

    def test_writing_is_refused_under_ci(self, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The lock is written anew by hand, never under CI."""
        (copy / "kl.py").write_bytes(b"k = 2\n")
        monkeypatch.setenv("CI", "true")
        with pytest.raises(PermissionError, match="CI"):
            lock.write_lock(copy)
        assert len(lock.check_lock(copy)) == 1
        monkeypatch.delenv("CI")
        lock.write_lock(copy)
        assert lock.check_lock(copy) == []

    def test_command(self) -> None:
        """The command checks by default and refuses to write under CI with exit 2."""
        command = [sys.executable, "-m", "verification.frozen.lock"]
        root = lock.FOLDER.parents[1]
        assert subprocess.run(command, cwd=root, check=False).returncode == 0
        refused = subprocess.run(
            [*command, "--write"], cwd=root, env={"CI": "1"}, capture_output=True, text=True, check=False
        )
        assert refused.returncode == 2
        assert "CI" in refused.stderr
