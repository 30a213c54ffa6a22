"""Histograms as SVG for a page: in the colours of the page, text as text, the same bytes every time."""

from __future__ import annotations

import io
import math
from xml.etree import ElementTree

from verification.report.document import Histogram
from verification.report.visible import visible

INK, BAR = "#010203", "#040506"  # stand-ins for the colours of the page
PAGE = {INK: "currentColor", BAR: "var(--bar)"}
KEPT = ("d", "x", "y"), ("fill", "stroke", "text-anchor")
WIDTH, ROW, FOOT, LETTER, FONT = 4.0, 0.22, 0.34, 0.095, 11  # inches, and points


def plot(histogram: Histogram, name: str) -> str:
    """An SVG element with title and description. ``name`` tells its ids apart from those of the page's other plots.

    The bars run to the right, as long as the logarithm of their count, so that one of a thousand is still seen; the
    count stands beside each. Empty bins behind the last count are left out.
    """
    total = sum(histogram.counts)
    pairs = zip(histogram.bins, histogram.counts, strict=True)
    counted = ", ".join(f"{place}: {count}" for place, count in pairs if count)
    drawn = ElementTree.fromstring(_drawn(histogram))
    labels = {"role": "img", "aria-labelledby": f"{name}-title", "aria-describedby": f"{name}-desc"}
    svg = ElementTree.Element("svg", {"viewBox": drawn.get("viewBox", ""), **labels})
    ElementTree.SubElement(svg, "title", id=f"{name}-title").text = visible(f"{histogram.title}: {histogram.axis}")
    ElementTree.SubElement(svg, "desc", id=f"{name}-desc").text = visible(f"{total} in all; {counted or 'none'}")
    for element in drawn.iter():
        kind = element.tag.rpartition("}")[2]
        if kind in ("path", "text"):
            ElementTree.SubElement(svg, kind, _kept(element)).text = element.text
    return ElementTree.tostring(svg, encoding="unicode")


def _kept(element: ElementTree.Element) -> dict[str, str]:
    """Place, shape and colours; the font is the page's."""
    attributes, styles = KEPT
    style = dict(part.split(": ", 1) for part in element.get("style", "").split("; ") if part)
    kept = {name: element.attrib[name] for name in attributes if name in element.attrib}
    return kept | {name: PAGE.get(style[name], style[name]) for name in styles if name in style}


def _drawn(histogram: Histogram) -> str:
    """What matplotlib draws, as a document of its own."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    bins = max((place for place, count in enumerate(histogram.counts, start=1) if count), default=1)
    counts, names = histogram.counts[:bins], histogram.bins[:bins]
    height = FOOT + ROW * bins
    lengths = [math.log10(1 + count) for count in counts]
    made = io.StringIO()
    with rc_context({"svg.fonttype": "none", "font.size": FONT, "text.parse_math": False}):
        figure = Figure(figsize=(WIDTH, height))
        FigureCanvasSVG(figure)
        left = LETTER * (1 + max(map(len, names))) / WIDTH
        axes = figure.add_axes((left, FOOT / height, 1 - left, 1 - FOOT / height))
        for place, (count, length) in enumerate(zip(counts, lengths, strict=True)):
            if count:
                axes.barh(place, length, height=0.72, color=BAR, clip_on=False)
                axes.annotate(f"{count:,}", (length, place), (3, 0), textcoords="offset points", va="center", color=INK)
        axes.set(xticks=[], xlim=(0, 1.25 * max(1.0, *lengths)), ylim=(bins - 0.5, -0.5))
        axes.set_yticks(range(bins), names)
        axes.set_xlabel(histogram.axis, color=INK)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        for side, spine in axes.spines.items():
            spine.set(visible=side == "left", edgecolor=INK)
        figure.patch.set_visible(False)
        axes.patch.set_visible(False)
        figure.savefig(made, format="svg")
    return made.getvalue()
