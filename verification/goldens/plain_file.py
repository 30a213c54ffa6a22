"""Reads one plain file of the goldens: no link, no device, no pipe to wait for, and no more than a limit of bytes."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_plain(path: Path, limit: int) -> bytes | None:
    """The bytes of ``path``, None where there is no such file; a ValueError says why it is not read."""
    try:
        with open(path, "rb", opener=_open) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("not a plain file")
            data = file.read(limit + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        link = " (it is a link)" if path.is_symlink() else ""
        raise ValueError(f"cannot be read{link}: {error.strerror}") from None
    if len(data) > limit:
        raise ValueError(f"more than {limit} bytes")
    return data


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
