"""What can be taken away from a command line, and from the options that the roles of a run follow from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verification.cases.case import Case
from verification.diff.passes import Edits, Pass, removal

ALGORITHM = "--advantage-estimator"  # what the case is about stays


def command_line_passes(case: Case) -> Iterator[Pass]:
    """Options with all their values; then single values, beyond the first of an option."""
    argv = list(case.inputs["argv"])
    starts = [place for place, word in enumerate(argv) if word.startswith("--")]
    option_of = [max((start for start in starts if start <= place), default=-1) for place in range(len(argv))]
    fixed = [start >= 0 and argv[start].partition("=")[0] == ALGORITHM for start in option_of]

    def without(places: set[int]) -> Case:
        return replace(case, inputs={**case.inputs, "argv": [w for p, w in enumerate(argv) if p not in places]})

    def without_options(gone: Edits) -> Case:
        return without({place for place, start in enumerate(option_of) if start in gone})

    free = [place for place in range(len(argv)) if not fixed[place]]
    yield removal(dict.fromkeys(option_of[place] for place in free), without_options)
    yield removal(
        [place for place in free if place > option_of[place] + 1], lambda gone: without({p for p in free if p in gone})
    )


def role_passes(case: Case) -> Iterator[Pass]:
    """Options, each of which has its default where it is left out."""
    yield removal(
        case.options,
        lambda gone: replace(case, options={name: value for name, value in case.options.items() if name not in gone}),
    )


def word_count(case: Case) -> int:
    """Words of a command line, or options that roles follow from."""
    return len(case.inputs["argv"]) if "argv" in case.inputs else len(case.options)
