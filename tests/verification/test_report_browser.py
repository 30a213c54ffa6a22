"""The page in a browser: it loads nothing, fits a telephone, works from a keyboard, and can be read, aloud too."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.verification.report_examples import HOLDING, HOSTILE, differing
from verification.report.document import Document, Sheet
from verification.report.html import html_page

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: it comes with [dev]")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no chromium on the PATH: apt-get install chromium")

WIDE = Sheet("wide", tuple(f"column {n}" for n in range(40)), (tuple("1234567890" for _ in range(40)),), words=(0,))
LONG = "x" * 300
NARROW = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def browser():
    """Debian's chromium, driven by playwright; no browser is downloaded."""
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=BROWSER)
        yield started
        started.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three pages: one of a check that holds, one full of hostile text and wide tables, one without a verdict."""
    folder = tmp_path_factory.mktemp("pages")
    full = differing(HOSTILE)
    documents: dict[str, Document] = {
        "holds": HOLDING,
        "differs": replace(full, sheets=(*full.sheets, WIDE), facts=(*full.facts, (LONG, LONG)), title=LONG),
        "unknown": replace(HOLDING, verdict="NO VERDICT: nothing was compared", exit_code=2),
    }
    for name, document in documents.items():
        (folder / f"{name}.html").write_text(html_page(document), encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in documents}


@pytest.fixture
def open_page(browser, files):
    """``open_page(name, **context)``: a fresh page; whatever it says on the console, or loads, is kept on it."""
    contexts = []

    def opened(name: str, script: str = "", **context):
        contexts.append(browser.new_context(**context))
        page = contexts[-1].new_page()
        page.said, page.loaded = [], []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("dialog", lambda dialog: (page.said.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: page.loaded.append(request.url))
        if script:
            page.add_init_script(script)
        page.goto(files[name])
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.parametrize("name", ["holds", "differs", "unknown"])
def test_nothing_is_said_and_nothing_is_loaded(open_page, files, name):
    """No error, no dialog, no message, and no request but for the file itself."""
    page = open_page(name)
    page.wait_for_load_state("networkidle")
    assert page.said == []
    assert [url for url in page.loaded if not url.startswith("data:")] == [files[name]]


def test_the_policy_stops_a_load(open_page):
    """An image and a script that something put into the page are stopped by its policy."""
    page, failed = open_page("holds"), []
    page.on("requestfailed", lambda request: failed.append(request.failure))
    stopped = page.evaluate(
        """() => new Promise((done) => {
            const stopped = [];
            document.addEventListener("securitypolicyviolation", (event) => {
                stopped.push(event.effectiveDirective);
                if (stopped.length === 2) done(stopped.sort());
            });
            document.body.append(Object.assign(new Image(), {src: "http://127.0.0.1:9/image.png"}));
            document.body.append(Object.assign(document.createElement("script"), {text: "document.title = 'taken'"}));
        })"""
    )
    assert stopped == ["img-src", "script-src-elem"]
    assert failed == ["csp"]
    assert page.title().startswith("VERDICT equivalent")


@pytest.mark.parametrize("name", ["holds", "differs"])
def test_no_sideways_scroll_on_a_telephone(open_page, name):
    """At 360 pixels, everything open, the page is as wide as the window; a wide table scrolls in a box of its own."""
    page = open_page(name, viewport=NARROW)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]
    boxes = page.evaluate("[...document.querySelectorAll('.scroll')].map((one) => [one.scrollWidth, one.clientWidth])")
    assert all(client <= NARROW["width"] for _, client in boxes)
    assert name == "holds" or max(scroll for scroll, _ in boxes) > 2000


GROUND = "getComputedStyle(document.body).backgroundColor"
NO_STORAGE = "Object.defineProperty(window, 'localStorage', { get() { throw new Error('no storage here'); } });"


@pytest.mark.parametrize("script", ["", NO_STORAGE], ids=["storage", "no-storage"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_is_chosen_from_the_keyboard(open_page, scheme, script):
    """It follows the system; the button turns it over and back by Enter and Space, and says where it leads."""
    page = open_page("holds", script, color_scheme=scheme)
    other = "dark" if scheme == "light" else "light"
    first = page.evaluate(GROUND)
    assert brightness(first) > 0.8 if scheme == "light" else brightness(first) < 0.05
    while page.evaluate("document.activeElement.id") != "theme":
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement !== document.body"), "the button cannot be reached"
    assert page.get_by_role("button").inner_text() == f"{other.capitalize()} theme"
    page.keyboard.press("Enter")
    turned = page.evaluate(GROUND)
    assert (brightness(turned) > 0.5) is (other == "light")
    assert page.get_by_role("button").inner_text() == f"{scheme.capitalize()} theme"
    page.keyboard.press("Space")
    assert first == page.evaluate(GROUND)
    assert page.said == []


def test_the_chosen_theme_stays(open_page):
    """Loaded again the page has the theme that was chosen; without a choice it goes with the system as that changes."""
    page = open_page("holds", color_scheme="light")
    page.emulate_media(color_scheme="dark")
    assert brightness(page.evaluate(GROUND)) < 0.05
    assert page.get_by_role("button").inner_text() == "Light theme"
    page.get_by_role("button").click()
    page.reload()
    assert brightness(page.evaluate(GROUND)) > 0.8


def test_the_keyboard_reaches_everything(open_page):
    """The first stop is the skip link, seen while it has the focus, which leads to the findings; summaries open."""
    page = open_page("differs")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the findings")
    assert skip.evaluate("(link) => link === document.activeElement && link.getBoundingClientRect().left >= 0")
    assert skip.evaluate("(link) => getComputedStyle(link).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.localName") == "summary"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert page.evaluate("document.activeElement.parentElement.open") is False
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.parentElement.open") is True
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "scroll"


def test_it_reads_well_aloud(open_page):
    """Landmarks, headings in order, and a name for every link, button, table, group and plot."""
    page = open_page("differs")
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    told = page.locator("body").aria_snapshot()
    for landmark in ("banner", "navigation", "main"):
        assert re.search(rf"^- {landmark}\b", told, re.MULTILINE), landmark
    levels = [int(level) for level in re.findall(r"- heading .*\[level=(\d)\]", told)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for role in ("link", "button", "table", "group", "img", "region", "columnheader", "rowheader"):
        lines = re.findall(rf"^\s*- '?{role}\b.*$", told, re.MULTILINE)
        assert lines, role
        unnamed = [line for line in lines if not re.match(rf"\s*- '?{role} [\"/]", line)]
        allowed = role in ("columnheader", "group")  # an empty corner of a table; a <details>, named by its summary
        assert allowed or unnamed == [], role
    assert "differs: kl.estimate" in told


PAIRS = {  # what is measured, and the least contrast: 4.5 for text, 3 for shapes
    "body": 4.5,
    "h1": 4.5,
    "h3": 4.5,
    "nav a": 4.5,
    "#theme": 4.5,
    ".banner": 4.5,
    "summary .note": 4.5,
    "caption .note": 4.5,
    ".detail": 4.5,
    ".command": 4.5,
    "thead th": 4.5,
    "tbody td": 4.5,
    ".bad th": 4.5,
    ".bad .number": 4.5,
    "pre": 4.5,
    "dt": 4.5,
    "svg text": 4.5,
    "svg path[fill^=var]": 3.0,
}
COLOURS = """(element) => {
    const painted = (one) => !["rgba(0, 0, 0, 0)", "transparent"].includes(getComputedStyle(one).backgroundColor);
    let ground = element;
    while (!painted(ground)) ground = ground.parentElement;
    const style = getComputedStyle(element), inSvg = element.closest("svg");
    return [inSvg ? style.fill : style.color, getComputedStyle(ground).backgroundColor];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_can_be_told_apart(open_page, scheme):
    """Text has a contrast of 4.5 with what it stands on and shapes have 3, in both themes and for every verdict."""
    page = open_page("differs", color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    measured = {selector: contrast(*page.locator(selector).first.evaluate(COLOURS)) for selector in PAIRS}
    for name in ("holds", "unknown"):
        banner = open_page(name, color_scheme=scheme).locator(".banner").evaluate(COLOURS)
        assert contrast(*banner) >= 4.5
    assert {selector: ratio for selector, ratio in measured.items() if ratio < PAIRS[selector]} == {}
    assert max(measured.values()) <= 21


def brightness(colour: str) -> float:
    """The relative luminance of ``rgb(r, g, b)``, as the guidelines for accessible content define it."""
    red, green, blue = (int(number) / 255 for number in re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", colour).groups())
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((brightness(one), brightness(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_printed_it_is_open_and_plain(open_page):
    """On paper everything is open, in the light theme, without what only a screen can use."""
    page = open_page("differs", color_scheme="dark")
    assert page.locator("details[open]").count() == 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("details:not([open])").count() == 0
    for hidden in ("nav", "#theme"):
        assert not page.locator(hidden).is_visible()
    assert brightness(page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('color')")) < 0.05
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0
