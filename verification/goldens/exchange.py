"""Replaces the whole folder of goldens in two renames, so that a killed process leaves the old set or the new one.

The old folder is set aside, the new one takes its place. Between the two there is no ``golden/``: whoever comes next
finds the set-aside folder through `standing`, and the next command that writes puts it back.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from verification.goldens.guard import WritePermit
from verification.revisions.checkout import Checkout

_NEXT, _PREVIOUS = "next", "previous"


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
    recover(permit)
    checkout = permit.checkout
    staging_folder(checkout)
    new, previous = checkout.staging / _NEXT, checkout.staging / _PREVIOUS
    if checkout.golden.is_dir():
        shutil.copytree(checkout.golden, new, symlinks=True)
    else:
        new.mkdir()
    try:
        yield new
        if checkout.golden.is_dir():
            os.rename(checkout.golden, previous)
        os.rename(new, checkout.golden)
    finally:
        recover(permit)


def staging_folder(checkout: Checkout) -> Path:
    """The folder beside ``golden/`` for what is not accepted yet; git ignores it through a file inside it."""
    checkout.staging.mkdir(exist_ok=True)
    (checkout.staging / ".gitignore").write_text("*\n", encoding="utf-8")
    return checkout.staging
