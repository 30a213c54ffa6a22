"""Reads one plain file: no link, no device, no pipe to wait for, and no more than a limit of bytes."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_plain(path: Path, limit: int) -> bytes | None:
    """The bytes of ``path``, None where there is no such file; a ValueError says why it is not read."""
    try:
        with open(path, "rb", opener=_open) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise ValueError("not a plain file")
            data = file.read(limit + 1) if about.st_size <= limit else b""
            size = max(about.st_size, len(data))  # it may grow meanwhile
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        link = " (a link)" if path.is_symlink() else ""
        raise ValueError(f"cannot be read{link}: {error.strerror}") from None
    if size > limit:
        raise ValueError(f"{size:,} bytes, at most {limit:,} may be")
    return data


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
