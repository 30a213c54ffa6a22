"""The baseline's known weaknesses are measured on every run, and each still shows."""

from __future__ import annotations

import math

from verification.cases import find
from verification.subjects.live import live_subject
from verification.weaknesses import WEAKNESSES, known_weaknesses


def test_each_weakness_is_shown_beside_the_exact_value():
    """A flat group keeps a residue or 0 by platform, an offset spoils the variance, a group of one is NaN."""
    cases = [find(weakness.case) for weakness in WEAKNESSES]
    flat, offset, single = known_weaknesses(cases, live_subject().run)
    assert flat.exact == "0"
    assert abs(float(flat.given)) < 0.02
    # Four values equally far apart: -1.5 / sqrt(5 / 3), moved in the fourth digit by their rounding to float32.
    assert abs(float(offset.exact) + 1.1619) < 1e-2
    assert not abs(float(offset.given) / float(offset.exact) - 1) < 1
    assert math.isnan(float(single.given))


def test_a_filtered_run_shows_what_it_ran():
    """Weaknesses of cases outside the run are left out."""
    assert known_weaknesses([], live_subject().run) == ()
