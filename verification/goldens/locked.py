"""One command at a time changes the goldens: a lock that ends with the process that holds it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from verification.goldens.exchange import staging_folder
from verification.revisions.checkout import Checkout

LOCK = ".lock"


class Busy(RuntimeError):
    """Another command works on the goldens of this checkout; the message says which process."""


@contextmanager
def locked(checkout: Checkout) -> Iterator[None]:
    """Holds the lock of the staging folder while the body runs; `Busy` at once where another process holds it."""
    path = staging_folder(checkout) / LOCK
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise Busy(
                f"process {holder} is changing the goldens of {checkout.root}: wait until it ends, then try again"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
