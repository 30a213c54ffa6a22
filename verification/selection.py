"""Choosing cases: by stage, algorithm and a pattern of their ids; a choice of nothing is an error that helps."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Sequence

from verification.cases.case import Case


class NothingChosen(ValueError):
    """No case matches; the message names the closest ids."""


def choose(
    cases: Sequence[Case],
    *,
    stages: Sequence[str] = (),
    algorithms: Sequence[str] = (),
    patterns: Sequence[str] = (),
) -> list[Case]:
    """The cases that match one of each kind of filter; an empty filter lets all pass. Filters are shell patterns."""
    chosen = [
        case
        for case in cases
        if matches(case.stage, stages) and matches(case.algorithm, algorithms) and matches(case.id, patterns)
    ]
    if chosen:
        return chosen
    asked = [*patterns, *(f"--stage {stage}" for stage in stages), *(f"--algorithm {name}" for name in algorithms)]
    hint = _hint(cases, stages, algorithms, patterns)
    raise NothingChosen(f"no case matches {' '.join(asked) or 'an empty corpus'}{hint}")


def matches(text: str, patterns: Sequence[str]) -> bool:
    """Whether ``text`` is one of the patterns or follows one; no pattern at all lets everything pass."""
    return not patterns or any(text == pattern or fnmatch.fnmatchcase(text, pattern) for pattern in patterns)


def _hint(cases: Sequence[Case], stages: Sequence[str], algorithms: Sequence[str], patterns: Sequence[str]) -> str:
    for what, wanted, known in (
        ("stages", stages, sorted({case.stage for case in cases})),
        ("algorithms", algorithms, sorted({case.algorithm for case in cases})),
    ):
        unknown = [name for name in wanted if not any(matches(one, [name]) for one in known)]
        if unknown:
            return f"; {what} are {', '.join(known)}"
    close = [name for pattern in patterns for name in closest(pattern, [case.id for case in cases])]
    return f"; closest: {', '.join(close)}" if close else "; see what there is with: relax-verify list"


def closest(name: str, ids: Sequence[str], count: int = 3) -> list[str]:
    """The ids that look most like ``name``, which may lack the stage and the algorithm."""
    wanted = name.strip("*")
    whole = difflib.get_close_matches(wanted, ids, n=count, cutoff=0.5)
    if whole:
        return whole
    tails: dict[str, str] = {}
    for one in ids:
        tails.setdefault(one.rpartition("/")[2], one)
    return [tails[tail] for tail in difflib.get_close_matches(wanted.rpartition("/")[2], tails, n=count, cutoff=0.4)]
