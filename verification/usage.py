"""What the verbs are asked for by name: cases and subjects, and the error of what is not there."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from verification.cases.case import Case
    from verification.subjects.protocol import Subject

Named = TypeVar("Named")


class UsageError(Exception):
    """What was asked cannot be done; the message says why and what can."""


def chosen(options: argparse.Namespace) -> tuple[list[Case], bool]:
    """The cases that the filters leave, and whether that is the whole corpus."""
    from verification.cases import corpus

    return narrowed(options, corpus()), not (options.stage or options.algorithm or options.case)


def narrowed(options: argparse.Namespace, cases: Sequence[Case]) -> list[Case]:
    """Those of ``cases`` that the filters leave."""
    from verification.selection import NothingChosen, choose

    try:
        return choose(cases, stages=options.stage, algorithms=options.algorithm, patterns=options.case)
    except NothingChosen as error:
        raise UsageError(str(error)) from error


def one_of(name: str, known: Mapping[str, Named], what: str) -> Named:
    """What ``known`` holds by that very name; ``what`` it is, for the error."""
    from verification.selection import closest

    if name not in known:
        close = closest(name, list(known))
        raise UsageError(f"no {what} {name!r}" + (f"; closest: {', '.join(close)}" if close else ""))
    return known[name]


def subject_called(name: str) -> Subject:
    """The subject of that name."""
    from verification.examine import subject_named

    try:
        return subject_named(name)
    except ValueError as error:
        raise UsageError(str(error)) from error
