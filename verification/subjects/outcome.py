"""What running a case gave: named arrays, changed inputs and aliases, or a failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Failure:
    """An exception as two subjects can compare it: the name of its type, and its message."""

    kind: str
    message: str


@dataclass(frozen=True)
class Outcome:
    """The result of one subject on one case.

    ``arrays``: name to CPU tensor, bits as the subject left them. ``mutated``: inputs whose bits the call changed,
    by path (``kl[2]``), with their new value. ``aliases``: pairs of names that share an object or storage.
    ``texts``: results that are no numbers (roles, parsed options). ``elsewhere``: results that were not on the device
    of the inputs. Empty throughout when ``failure`` is set, except ``mutated``: what a call changed before it failed.
    """

    arrays: Mapping[str, torch.Tensor] = field(default_factory=dict)
    mutated: Mapping[str, torch.Tensor] = field(default_factory=dict)
    aliases: frozenset[tuple[str, str]] = frozenset()
    texts: Mapping[str, str] = field(default_factory=dict)
    failure: Failure | None = None
    elsewhere: tuple[str, ...] = ()
