"""A checkout of this project, as git sees it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# Set by git around its hooks: with these, git would answer about another repository than the one it is asked about.
_OF_ANOTHER_REPOSITORY = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"}


class CheckoutError(RuntimeError):
    """There is no checkout here, or git cannot answer; the message says what was asked and what git said."""


@dataclass(frozen=True)
class Blob:
    """One file of a revision: its mode as git writes it (``100644``) and the hash of its contents."""

    mode: str
    hash: str


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
        try:
            return self._git("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
        except CheckoutError as error:
            remedy = "see git log and git branch -a, or fetch it"
            if self._is_shallow():
                remedy = f"this clone is shallow: git fetch --unshallow, or git fetch --depth 1 origin {revision}"
            raise CheckoutError(f"no revision {revision!r} here ({error}); {remedy}") from None

    def fork(self, revision: str) -> str:
        """The newest commit that HEAD and a revision have in common; a CheckoutError where they share none."""
        return self._git("merge-base", self.commit(revision), self.commit())

    def tree(self, folder: str, revision: str = "HEAD") -> str:
        """The hash of the contents of ``folder``, which is named from ``root``, at a revision."""
        return self._git("rev-parse", "--verify", "--end-of-options", f"{revision}:./{folder}")

    def blobs(self, folder: str, revision: str = "HEAD") -> dict[str, Blob]:
        """Every file below ``folder`` at a revision, by its path from there; links and submodules are listed too."""
        listed = self._git("ls-tree", "--full-tree", "-r", "-z", self.tree(folder, revision))
        entries = [entry.partition("\t") for entry in listed.split("\0") if entry]
        return {path: Blob(about.split()[0], about.split()[2]) for about, _, path in entries}

    def contents(self, hashes: Sequence[str]) -> list[bytes]:
        """The bytes of each blob, as they are stored: no filter and no change of line ends."""
        answer = self._run(("cat-file", "--batch"), "".join(f"{one}\n" for one in hashes).encode())
        contents, place = [], 0
        for one in hashes:
            start = answer.index(b"\n", place) + 1
            head = answer[place:start].split()  # hash, kind, size
            if head[1:2] != [b"blob"]:
                raise CheckoutError(f"git has no file contents {one} in {self.root}: it says {head[1:]}")
            size = int(head[2])
            contents.append(answer[start : start + size])
            place = start + size + 1
        return contents

    def changes(self, inside: Sequence[str] = (".",), *, outside: str | None = None) -> list[str]:
        """What differs from HEAD below ``inside``, untracked files included, one ``XY path`` a line; ``outside`` leaves
        a folder out."""
        paths = [*inside] if outside is None else [*inside, f":(exclude){outside}"]
        return self._git("status", "--porcelain", "--untracked-files=all", "--", *paths).splitlines()

    def _is_shallow(self) -> bool:
        try:
            return self._git("rev-parse", "--is-shallow-repository") == "true"
        except CheckoutError:
            return False

    def _git(self, *command: str) -> str:
        return self._run(command).decode("utf-8", "surrogateescape").rstrip("\n")

    def _run(self, command: Sequence[str], given: bytes = b"") -> bytes:
        environment = {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_REPOSITORY}
        asked = ["git", "-C", str(self.root), *command]
        try:
            done = subprocess.run(asked, input=given, capture_output=True, check=False, timeout=60, env=environment)
        except FileNotFoundError:
            raise CheckoutError("git is not installed, and revisions are read from a git checkout") from None
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise CheckoutError(f"git {' '.join(command)} in {self.root}: {said or 'failed'}")
        return done.stdout
