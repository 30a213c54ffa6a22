"""The page: what it holds, that it loads nothing, that hostile text is text, and the plots in it."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from tests.verification.report_examples import HOLDING, HOSTILE, differing
from verification.report.document import LAID_OPEN, Document, Histogram
from verification.report.html import html_page
from verification.report.plots import plot
from verification.report.visible import visible

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """The elements and the text of a page; an AssertionError where tags do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.open = "", list[str]()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] not in (["script"], ["style"]):
            self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_page_holds_what_the_document_does():
    """Verdict, tables, every finding with its evidence and command, what is not there, facts: all stand in the text."""
    document = differing()
    text = words(Page(html_page(document)).text)
    expected = [document.title, document.verdict, "not there in plain", "loss.reduce/gspo/absent"]
    expected += [cell for sheet in document.sheets for row in (*sheet.rows, sheet.columns) for cell in row]
    expected += [part for fact in document.facts for part in fact]
    for one in document.findings:
        expected += [one.case, one.what, one.detail, one.command, "values: plain"]
    for part in expected:
        assert words(part) in text, part
    assert "6 differences of the code, 1 problem of the harness, on 4 cases" in text


def test_a_page_that_holds_says_so_and_lists_no_findings():
    """The banner carries the verdict in words, and there is no section of findings."""
    page = Page(html_page(HOLDING))
    banners = [one for one in page.of("p") if (one.get("class") or "").startswith("banner")]
    assert [one["class"] for one in banners] == ["banner holds"]
    assert "VERDICT equivalent" in page.text
    assert "Findings" not in page.text


@pytest.mark.parametrize(("status", "banner"), [(0, "holds"), (1, "differs"), (2, "unknown")])
def test_the_banner_is_the_exit_code(status, banner):
    """Equivalent, different and no verdict have three banners."""
    page = html_page(Document("check", "the verdict", status))
    assert f'class="banner {banner}"' in page


def test_the_page_loads_nothing():
    """A policy forbids every load, the only script is named by its hash, and no element names another file."""
    text = html_page(differing())
    page = Page(text)
    (policy,) = [one["content"] for one in page.of("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert len(page.of("script")) == 1
    for name, attributes in page.elements:
        for attribute in ("src", "srcset", "data", "action", "poster"):
            assert attribute not in attributes, name
        assert (attributes.get("href") or "#").startswith(("#", "data:,"))
        assert not any(attribute.startswith("on") for attribute in attributes)
    assert "url(" not in text
    assert "@import" not in text
    assert "http:" not in text
    assert "https:" not in text


def test_hostile_text_is_shown_as_text():
    """Markup, templates, marks of direction, control characters and surrogates in any place change no element."""
    plain, hostile = html_page(differing("plain")), html_page(differing(HOSTILE))
    calm, struck = Page(plain), Page(hostile)
    structure = [name for name, _ in calm.elements]
    assert structure == [name for name, _ in struck.elements]
    assert struck.text.count(visible(HOSTILE)) == calm.text.count("plain")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", hostile)
    hostile.encode()  # no lone surrogate is left


def test_visible_leaves_text_alone_and_spells_what_acts():
    """Letters of every script and line breaks stay; the rest that cannot be printed is spelt."""
    assert visible("größer ≥ 中文 🙂\n") == "größer ≥ 中文 🙂\n"
    assert visible("a\x1b\u202e\ud800\x00\xa0b\t") == r"a\x1b\u202e\ud800\x00\xa0b\t"


def test_of_many_findings_the_rest_is_counted():
    """Beyond the foremost cases the page says how many findings and cases are left, and where they are."""
    page = Page(html_page(differing(cases=LAID_OPEN + 10)))
    assert f"Not shown: {2 * 10 + 2} findings on 11 more cases. --json FILE lists them all" in words(page.text)


def test_groups_are_listed_with_all_their_cases():
    """Above the findings of several stages and algorithms: each with its number of cases, shown or not, and a link."""
    document = differing(cases=LAID_OPEN + 10)
    page = html_page(document)
    cases = {(one.stage, one.algorithm, one.case) for one in document.findings}
    for group, (stage, algorithm) in enumerate(dict.fromkeys((one.stage, one.algorithm) for one in document.findings)):
        count = sum((stage, algorithm) == case[:2] for case in cases)
        shown = f'<a href="#group-{group + 1}">{stage} / {algorithm}</a> <span class="note">{count} case'
        assert shown in page
        assert f'<h3 id="group-{group + 1}">{stage} / {algorithm}</h3>' in page


def test_headings_and_landmarks_are_in_order():
    """One h1, no level skipped, one main, a header, a labelled nav, a skip link to the main part."""
    page = Page(html_page(differing()))
    levels = [int(name[1]) for name, _ in page.elements if re.fullmatch(r"h[1-6]", name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert [one["id"] for one in page.of("main")] == ["main"]
    assert len(page.of("header")) == 1
    assert [one["aria-label"] for one in page.of("nav")] == ["Contents"]
    assert page.of("a")[0]["href"] == "#main"
    ids = [attributes["id"] for _, attributes in page.elements if attributes.get("id")]
    assert len(ids) == len(set(ids))
    targets = {(one["href"] or "").removeprefix("#") for one in page.of("a")}
    assert targets <= set(ids)


def test_tables_have_captions_and_scopes():
    """Every table has a caption, every heading cell a scope, and a row that differs says so in words."""
    page = Page(html_page(differing()))
    assert len(page.of("caption")) == len(page.of("table")) > 4
    assert all(one.get("scope") in ("row", "col") for one in page.of("th"))
    assert len([one for one in page.of("tr") if one.get("class") == "bad"]) == 1
    assert "differs: " in page.text


def test_plots_come_with_words_and_numbers():
    """Each plot names itself and its counts for a reader who cannot see it, and the table beside it has all bins."""
    document = differing()
    text = html_page(document)
    page = Page(text)
    assert len(page.of("svg")) == len(document.histograms)
    for one in page.of("svg"):
        assert one["role"] == "img"
    for id_ in [one["aria-labelledby"] for one in page.of("svg")]:
        assert f'id="{id_}"' in text
    assert "1007 in all; 0: 1000, 2 to 3: 7" in page.text
    assert "By judge: the numbers" in page.text


def test_a_plot_is_always_the_same_and_has_the_colours_of_the_page():
    """Two drawings are the same bytes; text is text; no colour but the page's; bars grow with their counts."""
    histogram = Histogram("c", "bits", "ulps", ("0", "1", "2 to 3", "4 to 7"), (1000, 0, 10, 0))
    drawn = plot(histogram, "p")
    assert drawn == plot(histogram, "p")
    svg = ElementTree.fromstring(drawn)
    assert [one.text for one in svg.iter("text")] == ["ulps", "0", "1", "2 to 3", "1,000", "10"]  # 4 to 7 is empty
    colours = {one.get(name) for one in svg.iter() for name in ("fill", "stroke")} - {None, "none"}
    assert colours == {"currentColor", "var(--bar)"}
    assert [one.get("stroke") for one in svg.iter("path")].count("currentColor") == 1  # the axis
    assert not re.search(r"#[0-9a-f]{3,6}\b|\d{4}-\d\d-\d\d", drawn)
    bars = [one.get("d") for one in svg.iter("path") if one.get("fill") == "var(--bar)"]
    widths = [
        max(numbers) - min(numbers) for numbers in ([float(x) for x in re.findall(r"[ML] (\S+)", d)] for d in bars)
    ]
    assert len(widths) == 2
    assert widths[0] > 2 * widths[1] > 0


def test_a_hostile_name_does_not_break_a_plot():
    """Title, axis and bins are text in the SVG, mathematics and markup included."""
    drawn = plot(Histogram("c", HOSTILE, "<b> $\\frac{1}$", ("<i>", "$x$"), (1, 2)), "p")
    svg = ElementTree.fromstring(drawn)
    assert [one.text for one in svg.iter("text")][:3] == ["<b> $\\frac{1}$", "<i>", "$x$"]
    assert svg.find("title").text.startswith(visible(HOSTILE))


def test_nothing_to_show_is_a_page_too():
    """A document without tables, findings and plots is a page with its verdict, and a plot without counts is drawn."""
    empty = replace(HOLDING, sheets=(), histograms=(), facts=(), tried=())
    assert "VERDICT equivalent" in Page(html_page(empty)).text
    assert "0 in all; none" in plot(Histogram("c", "t", "a", ("0",), (0,)), "p")
