"""The checkout that the harness runs from, as git sees it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


class CheckoutError(RuntimeError):
    """There is no checkout here, or git cannot answer; the message says what was asked and what git said."""


@dataclass(frozen=True)
class Checkout:
    """A git working tree. ``root`` holds ``relax/``, ``verification/`` and ``golden/``."""

    root: Path

    @classmethod
    def here(cls) -> Checkout:
        """The folder that the imported ``verification`` lies in."""
        return cls(Path(__file__).resolve().parents[2])

    @property
    def golden(self) -> Path:
        return self.root / "golden"

    @property
    def staging(self) -> Path:
        return self.root / ".golden-staging"

    def commit(self, revision: str = "HEAD") -> str:
        """The full SHA of a revision; a CheckoutError where it names no commit."""
        return self._git("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")

    def tree(self, folder: str, revision: str = "HEAD") -> str:
        """The hash of the contents of ``folder`` at a revision."""
        return self._git("rev-parse", "--verify", f"{revision}:{folder}")

    def changes(self, *, outside: str | None = None) -> list[str]:
        """What differs from HEAD, untracked files included, one ``XY path`` a line; ``outside`` leaves a folder out."""
        paths = ["."] if outside is None else [".", f":(exclude){outside}"]
        return self._git("status", "--porcelain", "--untracked-files=all", "--", *paths).splitlines()

    def _git(self, *command: str) -> str:
        try:
            done = subprocess.run(
                ["git", "-C", str(self.root), *command], capture_output=True, text=True, check=False, timeout=60
            )
        except FileNotFoundError:
            raise CheckoutError("git is not installed: goldens are recorded from a git checkout") from None
        if done.returncode != 0:
            raise CheckoutError(f"git {' '.join(command)} in {self.root}: {done.stderr.strip() or 'failed'}")
        return done.stdout.rstrip("\n")
