"""The step summary: contents, the limit, and text that markdown must not take for its own."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

from tests.verification.report_examples import HOLDING, HOSTILE, differing
from verification.report.document import Document
from verification.report.github import ENDING, LIMIT, SHOWN, step_summary
from verification.report.visible import visible


def test_the_summary_leads_with_the_verdict():
    """First the verdict as a heading, then the tables with one line a row, then the facts."""
    text = html.unescape(step_summary(HOLDING))
    assert text.startswith("## ✅ relax-verify check: VERDICT equivalent\n")
    assert (
        "| stage | algorithm | cases | comparisons | differences | largest ulps in bits |\n| --- | --- | ---: |" in text
    )
    assert "| loss.reduce | grpo | 2 | 14 | 0 | 0 |\n" in text
    assert text.index("loss.reduce") < text.index("| torch | 2.13.0 |")


def test_differences_come_first_and_are_counted():
    """One entry a case, with its detail and its command; where there are more, how many and where."""
    text = html.unescape(step_summary(differing(cases=SHOWN + 5)))
    assert text.startswith("## ❌ ")
    assert text.count("\n- <code>kl.estimate/grpo/") == SHOWN - 1
    assert text.count("\n- <code>loss.reduce/gspo/broken") == 1
    assert f"{2 * (SHOWN + 5) + 1} findings on {SHOWN + 6} cases in all" in text
    assert "<br><code>relax-verify check --case '0-plain'</code>" in text
    assert "| cases that were not judged | 1 |" in text


def test_hostile_text_means_nothing():
    """Pipes, backticks, emphasis, links and HTML are references: as many cells, lines and tags as with plain text."""
    plain, hostile = step_summary(differing("plain")), step_summary(differing(HOSTILE))
    for mark in ("|", "`", "*", "[", "<code>", "<br>", "\n", "<"):
        assert plain.count(mark) == hostile.count(mark), mark
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", hostile)
    assert html.unescape(hostile).count(visible(HOSTILE)) == html.unescape(plain).count("plain")


def large() -> Document:
    sheet = HOLDING.sheets[0]
    return replace(HOLDING, sheets=(replace(sheet, rows=sheet.rows * 20_000),))


@pytest.mark.parametrize("limit", [ENDING, 300, 1000, 4096, LIMIT])
def test_the_limit_holds_and_the_cut_is_told(limit):
    """Never more bytes than the limit; cut behind a whole row, with a line that counts what is left out and where."""
    whole = step_summary(large(), 10**9)
    text = step_summary(large(), limit)
    assert len(text.encode()) <= limit
    body, _, left = text.rpartition("\n\n") if text.count("\n") > 3 else ("", "", text.strip())
    told = int(
        re.fullmatch(r"(\d+) lines are left out here: `--html FILE` and `--json FILE` have them all\.", left.strip())[1]
    )
    assert whole.startswith(body)
    assert told == whole.count("\n") - (body.count("\n") + 1 if body else 0)
    assert LIMIT < 2**20


def test_no_room_is_no_summary():
    """With less room than the closing line needs there is no text at all; a small document is never cut."""
    assert step_summary(large(), ENDING - 1) == ""
    assert step_summary(large(), -5) == ""
    assert "left out" not in step_summary(HOLDING)
