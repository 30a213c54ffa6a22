"""Replaces a whole folder at once, so that a killed process leaves the old one or the new one and never a mixture.

Where the system can exchange two folders, that is one step. Elsewhere it takes two renames: the old folder is set
aside, the new one takes its place. Between the two there is no ``golden/``: whoever comes next finds the set-aside
folder through `standing`, and the next command that writes puts it back.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from verification.goldens.guard import WritePermit, WriteRefused
from verification.revisions.checkout import Checkout

_NEXT, _PREVIOUS = "next", "previous"
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def standing(checkout: Checkout) -> Path:
    """The folder that holds the goldens now."""
    previous = checkout.staging / _PREVIOUS
    return previous if previous.is_dir() and not checkout.golden.is_dir() else checkout.golden


def recover(permit: WritePermit) -> None:
    """Finishes or undoes an exchange that was cut short, and drops what it left behind."""
    checkout = permit.checkout
    old = standing(checkout)
    if old != checkout.golden:
        os.rename(old, checkout.golden)
    for leftover in (_NEXT, _PREVIOUS):
        shutil.rmtree(checkout.staging / leftover, ignore_errors=True)


@contextmanager
def replacement(permit: WritePermit) -> Iterator[Path]:
    """A complete copy of the goldens to change; it takes their place when the body ends without an error."""
    checkout = permit.checkout
    staging_folder(checkout)
    recover(permit)
    new = checkout.staging / _NEXT
    if checkout.golden.is_dir():
        shutil.copytree(checkout.golden, new, symlinks=True)
    else:
        new.mkdir()
    try:
        yield new
        put(new, checkout.golden, aside=checkout.staging / _PREVIOUS)
    finally:
        recover(permit)


def put(new: Path, place: Path, *, aside: Path) -> None:
    """Makes ``new`` the folder at ``place``. What was there is left at ``new`` or ``aside``, for the caller to drop."""
    if place.is_dir():
        if _exchanged(new, place):
            return
        os.rename(place, aside)
    os.rename(new, place)


def _exchanged(one: Path, other: Path) -> bool:
    """Whether the system could exchange the two folders in one step."""
    exchange = getattr(ctypes.CDLL(None), "renameat2", None)
    return exchange is not None and exchange(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0


def staging_folder(checkout: Checkout) -> Path:
    """The folder beside ``golden/`` for what is not accepted yet; git ignores it through a file inside it.

    A link in place of ``golden/``, of this folder or of anything in it is refused: it may lead outside the checkout.
    """
    staging = checkout.staging
    for path in (checkout.golden, staging, *(staging.iterdir() if staging.is_dir() else ())):
        if path.is_symlink():
            raise WriteRefused(f"{path} is a link, and may lead outside {checkout.root}: remove it")
    staging.mkdir(exist_ok=True)
    ignored = staging / ".gitignore"
    if not ignored.is_file() or ignored.read_text(encoding="utf-8") != "*\n":  # a kill while it is empty shows all
        ignored.write_text("*\n", encoding="utf-8")
    return staging
