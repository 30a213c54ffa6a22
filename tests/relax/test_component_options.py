"""Reward keys and their weights: the one rule that the command line and the reward stage share."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from relax.component_options import check_components


class TestComponents:
    """The one rule that the command line and the reward stage share."""

    @pytest.mark.parametrize(
        ("weights", "expected"),
        [
            (None, [1.0, 1.0]),
            ([2, -0.5], [2.0, -0.5]),
            ((Fraction(1, 4), np.float32(0.1)), [0.25, float(np.float32(0.1))]),
            (np.array([3, 0]), [3.0, 0.0]),
            ([0.0, 5e-324], [0.0, 5e-324]),
            ([10**308, -1], [1e308, -1.0]),
        ],
    )
    def test_weights_are_doubles(self, weights: Any, expected: list[float]) -> None:
        """Given weights come back as the doubles nearest them, in the order of the keys; without any, ones."""
        found = check_components(["a", "b"], weights)
        assert found == expected
        assert {type(weight) for weight in found} == {float}

    @pytest.mark.parametrize(
        ("keys", "weights", "words"),
        [
            (None, None, "(not given)"),
            (["a"], [1.0], "two or more"),
            (["a", "b", "a"], None, "a is named more than once"),
            (["a", ""], None, "blank"),
            (["a", "b"], [1.0], "the number of weights is 1, that of keys 2"),
            (["a", "b"], [], "the number of weights is 0, that of keys 2"),
            (["a", "b"], [1.0, float("nan")], "weight 1 is nan"),
            (["a", "b"], [float("-inf"), 1.0], "weight 0 is -inf"),
            (["a", "b"], [None, "x"], "weight 0 is None"),
            (["a", "b"], [0, -0.0], "nothing is learnt"),
            (["a", "b"], [Fraction(1, 10**400), 0], "nothing is learnt"),
        ],
    )
    def test_refusal_names_both_options(self, keys: Any, weights: Any, words: str) -> None:
        """Each refusal is a ValueError of one line with both options and what is wrong."""
        with pytest.raises(ValueError, match=re.escape(words)) as error:
            check_components(keys, weights)
        message = str(error.value)
        assert "--gdpo-reward-keys" in message
        assert "--gdpo-reward-weights" in message
        assert "\n" not in message
