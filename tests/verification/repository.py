"""git in the repositories that tests make, whatever the person who runs them has set for his own."""

from __future__ import annotations

import subprocess
from pathlib import Path

_IDENTITY = ("-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")


def git(folder: Path, *command: str) -> str:
    """What the command says on standard output; fails where it fails."""
    done = subprocess.run(["git", "-C", str(folder), *_IDENTITY, *command], check=True, capture_output=True, text=True)
    return done.stdout.strip()
