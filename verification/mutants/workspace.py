"""A copy of the checkout in which code may be made wrong, and what a child needs to run it and nothing else."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from verification.mutants.mutant import Mutant

NEEDED = ("relax", "verification")
WANTED = ("golden", "tests", "pyproject.toml")

# Says where the two packages come from, in the very surroundings in which the check will run.
WHERE = "import relax, verification; print(relax.__file__); print(verification.__file__)"


class WorkspaceError(RuntimeError):
    """There is no checkout to copy, or a child would import something else than the copy."""


@dataclass(frozen=True)
class Workspace:
    """One copy, in ``root``. Children run in it one after the other."""

    root: Path

    @classmethod
    def copied_from(cls, source: Path, root: Path) -> Workspace:
        """Copies what the checks need from ``source`` to ``root``, which must not exist yet."""
        missing = [name for name in NEEDED if not (source / name).is_dir()]
        if missing:
            raise WorkspaceError(f"{source} has no folder {' nor '.join(missing)}: the campaign needs a whole checkout")
        root.mkdir(parents=True)
        for name in (*NEEDED, *WANTED):
            if (source / name).is_dir():
                shutil.copytree(source / name, root / name)
            elif (source / name).exists():
                shutil.copy2(source / name, root / name)
        return cls(root)

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """The copy with ``mutant`` applied, afterwards as it was. Raises StaleMutant before anything is changed."""
        path = self.root / mutant.file
        kept = path.read_bytes()
        source = mutant.applied_to(kept.decode())
        # Compiled code is told from stale code by size and time in whole seconds: an edit may change neither.
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
        path.write_text(source, encoding="utf-8")
        try:
            yield
        finally:
            path.write_bytes(kept)

    def python(self, *arguments: str) -> list[str]:
        """The command of a child; ``-P`` keeps the folder that it is started in out of its path."""
        return [sys.executable, "-P", *arguments]

    def environment(self) -> dict[str, str]:
        """The environment of a child: imports from the copy, writes no compiled code."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return {
            **kept,
            "PYTHONPATH": str(self.root),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_PROFILE": "ci",  # always the same examples
        }

    def require_own(self, answer: str) -> None:
        """Raises WorkspaceError unless ``answer``, what `WHERE` printed, names files inside this copy."""
        found = [Path(line).resolve() for line in answer.splitlines()]
        if len(found) != len(NEEDED) or not all(path.is_relative_to(self.root.resolve()) for path in found):
            raise WorkspaceError(
                f"a check in {self.root} would import {', '.join(map(str, found)) or 'nothing'}: its result would say "
                "nothing about the mutants; look for a sitecustomize or .pth file that changes the import path"
            )
