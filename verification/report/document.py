"""A report as data that knows no verb: what the HTML page, the JUnit file and the step summary are made from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

DIFFERENCE, PROBLEM = "difference", "problem"
LAID_OPEN = 200  # cases whose evidence is worth gathering: more than anybody reads, little enough to load


@dataclass(frozen=True)
class Sheet:
    """One table. ``words`` are the columns that hold words and are set flush left; the rest are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[int, ...] = (0, 1)
    note: str = ""


@dataclass(frozen=True)
class Lines:
    """Text that is shown as it stands, line by line."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be: of the code (``difference``) or of the harness (``problem``).

    ``what`` names it in a few words, ``detail`` says it in full. ``evidence`` lays its case open (inputs, expected and
    actual values and bits); of several findings on one case the first has it. ``command`` runs the case again.
    """

    case: str
    stage: str
    algorithm: str
    what: str
    detail: str = ""
    ulps: float | None = None
    kind: str = DIFFERENCE
    evidence: tuple[Sheet | Lines, ...] = ()
    command: str = ""


@dataclass(frozen=True)
class Tried:
    """One case that was asked for; ``skipped`` says why it was not judged, empty for one that was."""

    case: str
    stage: str
    skipped: str = ""


@dataclass(frozen=True)
class Histogram:
    """Counts by bin. ``chapter`` is the heading that it stands under, ``axis`` what the bins measure, with its unit."""

    chapter: str
    title: str
    axis: str
    bins: tuple[str, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Document:
    """A whole report. ``verdict`` is the line to grep, or ``NO VERDICT: why``; ``facts`` are names and values."""

    title: str
    verdict: str
    exit_code: int
    facts: tuple[tuple[str, str], ...] = ()
    sheets: tuple[Sheet, ...] = ()
    findings: tuple[Finding, ...] = ()
    histograms: tuple[Histogram, ...] = ()
    tried: tuple[Tried, ...] = ()

    @property
    def differences(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.kind == DIFFERENCE)

    @property
    def problems(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.kind == PROBLEM)


def foremost(findings: Iterable[Finding], count: int = LAID_OPEN) -> list[str]:
    """The ``count`` cases to show where not all can be: of every stage and algorithm the first, then the second, ..."""
    groups: dict[tuple[str, str], dict[str, None]] = {}
    for one in findings:
        groups.setdefault((one.stage, one.algorithm), {})[one.case] = None
    turns = [(turn, case) for cases in groups.values() for turn, case in enumerate(cases)]
    return [case for _, case in sorted(turns, key=lambda one: one[0])][:count]
