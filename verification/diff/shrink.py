"""The smallest input that still differs in the same way, from one that does.

A pass offers edits at many spots. Chunks of spots are tried from all of them at once down to each alone, all chunks of
a size and all kinds of edit in one round, since a subject in another process is asked for many cases as fast as for
one. What succeeds is joined as far as the whole still differs. It ends where no single edit of any pass succeeds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from verification.cases.case import Case
from verification.diff.passes import Edits, Pass
from verification.diff.responses import response_passes, response_size
from verification.diff.samples import sample_passes, sample_size
from verification.diff.words import command_line_passes, role_passes, word_count

Keeps = Callable[[Sequence[Case]], list[bool]]
OUT_OF_TIME = "the time for shrinking ran out"
BATCH = 256  # cases asked about between two looks at the clock


@dataclass(frozen=True)
class Smallest:
    """The smallest case that was found; ``stopped`` says why no smaller one was looked for, empty where none is."""

    case: Case
    stopped: str = ""


class Stopped(Exception):
    """Shrinking cannot go on; the message says why. ``keeps`` may raise it."""


def passes(case: Case) -> Iterator[Pass]:
    """All that can be simplified in a case, by its stage."""
    if "samples" in case.inputs:
        return sample_passes(case)
    if "argv" in case.inputs:
        return command_line_passes(case)
    return response_passes(case) if case.inputs else role_passes(case)


def size(case: Case) -> tuple[int, int]:
    """Samples, responses or words of a case, and the numbers in it: what shrinking makes smaller, in this order."""
    if "samples" in case.inputs:
        return sample_size(case)
    if "argv" in case.inputs or not case.inputs:
        return word_count(case), 0
    return response_size(case)


def neighbours(case: Case) -> Iterator[Case]:
    """Every case that is one edit simpler: if none of them differs in the same way, the case is minimal."""
    for one in passes(case):
        for alternatives in one.chunks(1):
            yield from (made for edits in alternatives if (made := one.apply(edits)) is not None)


def shrink(case: Case, keeps: Keeps, *, deadline: float) -> Smallest:
    """The smallest case of which ``keeps`` says that it differs as ``case`` does, the same one at every call.

    ``keeps`` answers for many cases at once; their ids are unique. ``deadline`` is one of ``time.monotonic``, looked at
    every few hundred cases.
    """
    rounds = _Rounds(case, keeps, deadline)
    try:
        while rounds.sweep():
            pass
    except Stopped as stopped:
        return Smallest(rounds.case, str(stopped))
    return Smallest(rounds.case)


class _Rounds:
    """The current case, which every sweep makes simpler."""

    def __init__(self, case: Case, keeps: Keeps, deadline: float) -> None:
        self.case = replace(case, error=None, note="", tags=())  # these speak of the case as it was
        self._id, self._keeps, self._deadline = case.id, keeps, deadline

    def sweep(self) -> bool:
        """Every pass once; whether anything became simpler."""
        made = [self._run(number) for number in range(len(list(passes(self.case))))]
        return any(made)

    def _run(self, number: int) -> bool:
        one = list(passes(self.case))[number]
        made: Edits = {}
        width = len(one.spots)
        while width:
            chunks = [alternatives for alternatives in one.chunks(width) if made.keys().isdisjoint(alternatives[0])]
            made = self._round(one, made, chunks)
            if made and (simpler := one.apply(made)) is not None:
                self.case = simpler
            width //= 2
        return bool(made)

    def _round(self, one: Pass, made: Edits, chunks: list[list[Edits]]) -> Edits:
        """``made`` and the edits of as many chunks as the difference outlives together."""
        offered = [(chunk, {**made, **edits}) for chunk, several in enumerate(chunks) for edits in several]
        first: dict[int, Edits] = {}  # of each chunk the simplest edits that succeed
        for (chunk, edits), kept in zip(offered, self._ask(one, [edits for _, edits in offered]), strict=True):
            if kept:
                first.setdefault(chunk, edits)
        joined = list(first.values())[:1]
        for edits in list(first.values())[1:]:
            joined.append({**joined[-1], **edits})
        if len(joined) < 2:
            return joined[0] if joined else made
        outlived = self._ask(one, joined)
        return [made, *(edits for edits, well in zip(joined, outlived, strict=True) if well)][-1]

    def _ask(self, one: Pass, several: list[Edits]) -> list[bool]:
        """Of each of these sets of edits whether the case differs with it as it did."""
        answers: list[bool] = []
        for start in range(0, len(several), BATCH):
            if time.monotonic() >= self._deadline:
                raise Stopped(OUT_OF_TIME)
            made = [one.apply(edits) for edits in several[start : start + BATCH]]
            cases = [replace(case, id=f"{self._id}-{n}") for n, case in enumerate(made) if case is not None]
            kept = iter(self._keeps(cases) if cases else ())
            answers += [case is not None and next(kept) for case in made]
        return answers
