"""The page: one file that loads nothing, made from a document."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from verification.report.document import DIFFERENCE, PROBLEM, Document, Finding, Histogram, Sheet, foremost
from verification.report.plots import plot
from verification.report.sheets import is_bad, ulps
from verification.report.visible import visible

TEMPLATES = Path(__file__).parent / "templates"
BANNERS = {0: ("holds", "✓"), 1: ("differs", "✗")}
UNKNOWN = ("unknown", "?")


@dataclass(frozen=True)
class Entry:
    """All findings on one case."""

    case: str
    findings: tuple[Finding, ...]

    @property
    def told(self) -> str:
        """``2 differences, up to 3 ulps, 1 problem``."""
        counts = {kind: sum(one.kind == kind for one in self.findings) for kind in (DIFFERENCE, PROBLEM)}
        parts = [counted(count, kind) for kind, count in counts.items() if count]
        apart = [one.ulps for one in self.findings if one.ulps is not None]
        return ", ".join(parts + ([f"up to {ulps(max(apart))} ulps"] if apart else []))


@dataclass(frozen=True)
class Chapter:
    """Histograms under one heading, and the table that holds their numbers."""

    title: str
    histograms: tuple[Histogram, ...]

    @property
    def sheet(self) -> Sheet:
        rows = tuple((one.title, *map(str, one.counts)) for one in self.histograms)
        return Sheet(f"{self.title}: the numbers", ("", *self.histograms[0].bins), rows, words=(0,))


def html_page(document: Document) -> str:
    """The page as text. Whatever the document says is shown as text, never taken for markup."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    groups, left = _groups(document.findings)
    banner, mark = BANNERS.get(document.exit_code, UNKNOWN)
    return environment.get_template("page.html.j2").render(
        document=document,
        banner=banner,
        mark=mark,
        groups=groups,
        left=left,
        sizes=Counter({one.case: _group_of(one) for one in reversed(document.findings)}.values()),
        cases=len({one.case for one in document.findings}),
        chapters=_chapters(document.histograms),
        not_there=_not_there(document),
        style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        plot=lambda histogram, name: Markup(plot(histogram, name)),
        ulps=ulps,
        counted=counted,
        is_bad=is_bad,
    )


def counted(count: int, what: str) -> str:
    """``1 case``, ``2 cases``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _finalize(value: Any) -> Any:
    """Text of the document as it can be looked at; markup of our own as it is."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _groups(findings: Sequence[Finding]) -> tuple[dict[str, list[Entry]], list[Entry]]:
    """The foremost cases under the name of their stage and algorithm, and the entries for which there is no room."""
    by_case: dict[str, list[Finding]] = {}
    for one in findings:
        by_case.setdefault(one.case, []).append(one)
    shown = set(foremost(findings))
    groups: dict[str, list[Entry]] = {}
    for case, found in by_case.items():
        if case in shown:
            groups.setdefault(_group_of(found[0]), []).append(Entry(case, tuple(found)))
    return groups, [Entry(case, tuple(found)) for case, found in by_case.items() if case not in shown]


def _group_of(finding: Finding) -> str:
    return " / ".join(filter(None, (finding.stage, finding.algorithm))) or "-"


def _chapters(histograms: Sequence[Histogram]) -> list[Chapter]:
    chapters: dict[tuple[str, tuple[str, ...]], list[Histogram]] = {}
    for one in histograms:
        chapters.setdefault((one.chapter, one.bins), []).append(one)
    return [Chapter(title, tuple(found)) for (title, _), found in chapters.items()]


def _not_there(document: Document) -> dict[str, list[str]]:
    """The cases that were not judged, by the reason."""
    reasons: dict[str, list[str]] = {}
    for one in document.tried:
        if one.skipped:
            reasons.setdefault(one.skipped, []).append(one.case)
    return reasons
