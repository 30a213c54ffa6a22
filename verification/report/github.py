"""The step summary of GitHub Actions: verdict, first differences, tables, as markdown below the size that is taken."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from verification.report.document import Document, Finding, Sheet, foremost
from verification.report.sheets import ulps
from verification.report.visible import visible

LIMIT = 1_000_000  # bytes; GitHub refuses a step's summary beyond 1 MiB
ENDING = 120  # of which the line that says what is left out
SHOWN = 20
DETAIL = 500  # characters of one finding
MARKS = {0: "✅", 1: "❌"}
UNSAFE = re.compile(r"[^\w .,/()+-]|_")


def step_summary(document: Document, limit: int = LIMIT) -> str:
    """Markdown of at most ``limit`` bytes, cut between two lines where there is more, which the last line then says."""
    lines = [f"{line}\n" for line in _lines(document)]
    ends = list(accumulate(len(line.encode()) for line in lines))
    if ends[-1] <= limit:
        return "".join(lines)
    if limit < ENDING:
        return ""
    taken = bisect_right(ends, limit - ENDING)
    left = f"\n{len(lines) - taken} lines are left out here: `--html FILE` and `--json FILE` have them all.\n"
    return "".join(lines[:taken]) + left


def _lines(document: Document) -> Iterator[str]:
    yield f"## {MARKS.get(document.exit_code, '❔')} {_text(document.title)}: {_text(document.verdict)}"
    yield ""
    if document.findings:
        yield from _findings(document.findings)
    for sheet in document.sheets:
        yield from _table(sheet)
    skipped = sum(bool(one.skipped) for one in document.tried)
    facts = [*document.facts, *([("cases that were not judged", str(skipped))] if skipped else [])]
    if facts:
        yield from _table(Sheet("run and environment", ("", ""), tuple(facts)))


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    yield "### First findings"
    yield ""
    first = {one.case: one for one in reversed(findings)}
    for one in [first[case] for case in foremost(findings, SHOWN)]:
        distance = "" if one.ulps is None else f" ({_text(ulps(one.ulps))} ulps)"
        detail = one.detail if len(one.detail) <= DETAIL else f"{one.detail[:DETAIL]} ..."
        yield f"- {_code(one.case)}: {one.kind}: {_text(one.what)}{distance}"
        if detail:
            yield f"  <br>{_text(detail)}"
        if one.command:
            yield f"  <br>{_code(one.command)}"
    yield ""
    if len(findings) > min(len(first), SHOWN):
        yield f"{len(findings)} findings on {len(first)} cases in all: `--html FILE` and `--json FILE` have them."
        yield ""


def _table(sheet: Sheet) -> Iterator[str]:
    yield f"### {_text(sheet.title)}"
    yield ""
    if sheet.note:
        yield _text(sheet.note)
        yield ""
    yield _row(sheet.columns)
    yield _row(["---" if column in sheet.words else "---:" for column in range(len(sheet.columns))], raw=True)
    for row in sheet.rows:
        yield _row(row)
    yield ""


def _row(cells: Sequence[str], *, raw: bool = False) -> str:
    return "| " + " | ".join(cells if raw else map(_text, cells)) + " |"


def _text(text: str) -> str:
    """Text that stands for itself: whatever could mean something to markdown or HTML is a numeric reference."""
    shown = visible(text).replace("\n", " ")
    return UNSAFE.sub(lambda found: f"&#{ord(found[0])};", shown)


def _code(text: str) -> str:
    return f"<code>{_text(text)}</code>"
