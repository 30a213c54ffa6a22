"""Who may write goldens: the golden command alone, from a clean tree, of a named commit, and never under CI."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from verification.revisions.checkout import Checkout

COMMAND = "relax-verify golden regen --baseline HEAD"
_SHOWN = 5


class WriteRefused(PermissionError):
    """Goldens may not be written now; the message says why and what to do."""


@dataclass(frozen=True)
class WritePermit:
    """Proof that the guard was asked. Everything that writes goldens takes one, and only `permit` makes them."""

    checkout: Checkout
    baseline: str


def permit(
    checkout: Checkout, baseline: str, *, ignore: str | None = None, environment: Mapping[str, str] | None = None
) -> WritePermit:
    """A permit to write goldens of the commit ``baseline``, or `WriteRefused`.

    The working tree must be that of a commit, since its harness and its cases decide what is recorded. ``ignore`` is a
    folder that may differ (``golden`` itself, while accepting in several steps).
    """
    refuse_under_ci(os.environ if environment is None else environment)
    head, wanted = checkout.commit(), checkout.commit(baseline)
    changes = checkout.changes(outside=ignore)
    if changes:
        shown = ", ".join(line[3:] for line in changes[:_SHOWN])
        more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
        raise WriteRefused(f"the working tree differs from {head[:12]}: {shown}{more}; commit or stash that first")
    return WritePermit(checkout, wanted)


def refuse_under_ci(environment: Mapping[str, str]) -> None:
    """A WriteRefused where the variable CI is set, whatever to."""
    if environment.get("CI"):
        raise WriteRefused("goldens are never written under CI (the variable CI is set): record them in a checkout")
