"""One kind of simplification: the spots of a case where it can be made, and the case with some of them made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from verification.cases.case import Case
from verification.diff.simpler import KINDS

Edits = dict[Any, Any]  # what is to stand at each spot, which may be anything that can be a key
GONE = "gone"
_ORDER = {kind: place for place, kind in enumerate((GONE, *KINDS))}


@dataclass(frozen=True)
class Pass:
    """``spots``: for each spot, what could stand there instead, by the name of its kind.

    ``apply`` makes some of the edits at once, on the case that the spots are of; None where that would leave no case.
    Every edit makes the case smaller or simpler, so that a sequence of them ends.
    """

    spots: Mapping[Any, Mapping[str, Any]]
    apply: Callable[[Edits], Case | None]

    def chunks(self, size: int) -> Iterator[list[Edits]]:
        """For each chunk of ``size`` neighbouring spots, the edits that can be made there together, simplest first."""
        names = list(self.spots)
        for start in range(0, len(names), size):
            chunk = names[start : start + size]
            kinds = {kind for spot in chunk for kind in self.spots[spot]}
            yield [
                {spot: self.spots[spot][kind] for spot in chunk if kind in self.spots[spot]}
                for kind in sorted(kinds, key=_ORDER.__getitem__)
            ]


def removal(spots: Iterable[Any], apply: Callable[[Edits], Case | None]) -> Pass:
    """A pass whose only edit of a spot is to take it away."""
    return Pass({spot: {GONE: None} for spot in spots}, apply)
