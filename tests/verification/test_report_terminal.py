"""What the terminal says of differences."""

from __future__ import annotations

from verification.judges.comparison import Comparison
from verification.report.terminal import difference_lines


def test_what_holds_for_every_case_is_said_once():
    """A remedy that differs by nothing but the id stands under the first case alone; other details stay."""
    ids = [f"s/a/{number}" for number in range(3)]
    missing = [
        Comparison(name, "s", "a", "bits", "golden", "no golden", False, None, f"record it, then accept {name!r}")
        for name in ids
    ]
    other = Comparison("s/a/9", "s", "a", "bits", "frozen", "x", False, 1.0, "first at [2]")
    assert difference_lines((*missing, other)) == [
        "DIFFERENT s/a/0: bits against golden: no golden",
        "    record it, then accept 's/a/0'",
        "DIFFERENT s/a/1: bits against golden: no golden",
        "DIFFERENT s/a/2: bits against golden: no golden",
        "DIFFERENT s/a/9: bits against frozen: x (1 ulps)",
        "    first at [2]",
        "    see one whole: relax-verify explain 's/a/0'",
    ]
