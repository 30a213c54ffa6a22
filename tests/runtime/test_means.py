"""Means for those who watch: whatever a reward function gives, and never an error."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from relax.core.means import means
from relax.rollout.collect import mean_rewards
from relax.types import Sample


def test_those_that_have_it() -> None:
    """Each name counts where it is a real number, whichever row is the first to have it."""
    rows: list[dict[str, Any]] = [{"a": 1.0}, {"b": None, "a": 2, "c": "text"}, {"b": 0.5, "d": True}, {"d": False}]
    assert list(means(rows).items()) == [("a", 1.5), ("b", 0.5), ("d", 0.5)]
    assert means([]) == {}


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([0.25, 0.5, 1.5], 0.75),
        ([np.float32(0.5), Fraction(1, 2)], 0.5),
        ([1.0, math.inf], math.inf),
        ([1.0, math.nan], math.nan),
        ([-math.inf, math.inf], math.nan),
        ([1e308, 1e308, 1e308], math.nan),
        ([10**400], math.nan),
    ],
)
def test_value(values: list[Any], mean: float) -> None:
    """The mean in float64; infinities and NaN as they are, and NaN where there is no mean."""
    (found,) = means([{"a": value} for value in values]).values()
    assert (mean == found) or (math.isnan(mean) and math.isnan(found))


def test_rewards() -> None:
    """Samples may have other rewards than the first has, one number in place of many, or none."""
    rewards = [None, {"correctness": 1.0}, {"correctness": None, "format": 0.5}, 3.0, "none"]
    samples = [Sample(index=index, reward=reward) for index, reward in enumerate(rewards)]
    assert mean_rewards(samples) == {"correctness": 1.0, "format": 0.5, "reward": 3.0}
    assert mean_rewards(samples[:1]) == {}
