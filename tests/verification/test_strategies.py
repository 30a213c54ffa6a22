"""The strategies: what they draw has the structure that they name, and a failure shrinks to something readable."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from relax.rollout.post_process import post_process_rewards
from verification.cases.case import Case
from verification.cases.malformed import MALFORMED
from verification.cases.reward_columns import FLOAT32_MAX, FLOAT32_TINY
from verification.cases.strategies import (
    STRUCTURES,
    Tokens,
    component_columns,
    component_weights,
    malformed,
    ragged_tokens,
    reward_groups,
    segment_plans,
    shard_plans,
)

SHRINKING = settings(max_examples=300, database=None, derandomize=True, phases=(Phase.generate, Phase.shrink))


def scores(case: Case) -> list[float]:
    """The training rewards of the live code."""
    return post_process_rewards(case.arguments(), case.fresh_inputs()["samples"])[1]


# What is drawn


def spread(column: Sequence[float]) -> float:
    """Largest minus smallest."""
    return max(column) - min(column)


HOLDS = {
    "free": lambda columns: len({len(column) for column in columns}) == 1,
    "flat": lambda columns: spread(columns[-1]) == 0,
    "all-flat": lambda columns: all(spread(column) == 0 for column in columns),
    "constant-sum": lambda columns: {a + b for a, b in zip(*columns, strict=True)} == {2.0},
    "correlated": lambda columns: len({b / a for a, b in zip(*columns, strict=True) if a}) <= 1,
    "anti-correlated": lambda columns: all(b / a < 0 for a, b in zip(*columns, strict=True) if a),
    "near-ties": lambda columns: spread(columns[0]) <= 4 * 2.0**-50 and spread(columns[1]) <= 4 * 2.0**-26,
    "outlier": lambda columns: columns[0].count(1e6) == 1,
    "offset": lambda columns: min(map(abs, columns[0])) > 9e8 and spread(columns[0]) <= 8,
    "subnormals": lambda columns: all(abs(x) <= 9 * FLOAT32_TINY for x in columns[0]),
    "float32-max": lambda columns: {abs(x) for column in columns for x in column} <= {0.0, 1.0, FLOAT32_MAX},
}


@pytest.mark.parametrize("structure", STRUCTURES)
def test_columns_have_the_structure_that_they_name(structure: str) -> None:
    """Every drawn group has two to four columns of one length and the structure's property."""

    @given(component_columns(structure))
    def holds(columns: list[list[float]]) -> None:
        assert 2 <= len(columns) <= 4
        assert len(set(map(len, columns))) == 1
        assert all(math.isfinite(x) and abs(x) <= FLOAT32_MAX for column in columns for x in column)
        assert HOLDS[structure](columns)

    holds()


@given(st.data(), st.integers(2, 5))
def test_weights_are_allowed_ones(data: st.DataObject, count: int) -> None:
    """As many as components, finite, and not all zero."""
    weights = data.draw(component_weights(count))
    assert len(weights) == count
    assert all(map(math.isfinite, weights))
    assert any(weights)


@given(ragged_tokens())
def test_tokens_and_masks_agree_in_length(tokens: Tokens) -> None:
    """Float32 values with masks of zeros and ones, response by response."""
    for values, mask in zip(tokens.values, tokens.masks, strict=True):
        assert values.dtype == mask.dtype == np.float32
        assert values.shape == mask.shape
        assert set(mask.tolist()) <= {0.0, 1.0}


@given(st.data(), st.integers(0, 9))
def test_segment_plans_add_up(data: st.DataObject, samples: int) -> None:
    """Counts of 0 or more, the samples together."""
    plan = data.draw(segment_plans(samples))
    assert sum(plan) == samples
    assert min(plan) >= 0
    assert 1 <= len(plan) <= 4


@given(st.data(), st.lists(st.integers(0, 6), max_size=4))
def test_shard_plans_add_up(data: st.DataObject, batches: list[int]) -> None:
    """The ranks' parts of each optimizer batch sum to it, and every rank states as many parts as there are batches."""
    plan = data.draw(shard_plans(batches))
    assert 1 <= len(plan) <= 4
    assert all(len(shard) == len(batches) for shard in plan)
    assert [sum(shard[k] for shard in plan) for k in range(len(batches))] == batches
    assert all(part >= 0 for shard in plan for part in shard)


# What a failure shrinks to


def test_a_reward_group_shrinks_to_two_zeros_a_component() -> None:
    """The simplest group: one group of two samples with two components, all zero, weights of one."""
    case = find(reward_groups("free"), lambda case: True, settings=SHRINKING)
    assert [sample["reward"] for sample in case.inputs["samples"]] == [{"correct": 0.0, "format": 0.0}] * 2
    assert case.options["gdpo_reward_weights"] == [1.0, 1.0]


def test_a_varying_group_shrinks_to_one_small_difference() -> None:
    """The simplest group with a signal: two samples, one of which is a small step from zero in one component."""
    case = find(reward_groups("free"), lambda case: len(set(scores(case))) > 1, settings=SHRINKING)
    rewards = [value for sample in case.inputs["samples"] for value in sample["reward"].values()]
    assert len(case.inputs["samples"]) == 2
    assert sorted(map(abs, rewards)) == [0.0, 0.0, 0.0, 2.0**-8]


def test_plans_shrink_to_few_parts() -> None:
    """The simplest plan with an empty segment has two; the simplest with an empty shard two ranks."""
    assert find(segment_plans(3), lambda plan: 0 in plan, settings=SHRINKING) in ([0, 3], [3, 0])
    assert len(find(shard_plans([2]), lambda plan: [0] in plan, settings=SHRINKING)) == 2


@pytest.mark.parametrize("kind", ["component-nan", "missing-key", "group-size", "plan"])
def test_malformed_input_shrinks_to_a_small_case(kind: str) -> None:
    """The simplest malformed input has one small group, or one score."""
    case, words = find(malformed(kind), lambda drawn: True, settings=SHRINKING)
    assert case.error == words
    assert len(case.inputs.get("samples") or case.inputs["rewards"]) <= 3


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_input_is_drawn_with_its_words(kind: str) -> None:
    """Each drawn case carries the words that its refusal must hold: ``test_malformed.py`` asks the live code."""

    @given(malformed(kind))
    @settings(max_examples=5)
    def holds(drawn: tuple[Case, tuple[str, ...]]) -> None:
        case, words = drawn
        assert case.error == words
        assert words
        assert all(words)

    holds()
