"""Thousands of generated bad inputs: a documented error or a valid result, never anything else, nothing changed."""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relax.algorithms.advantages import compute_advantages_and_returns
from relax.algorithms.rewards import group_carries_reward_signal
from relax.arguments import parse_args
from relax.rollout.post_process import post_process_rewards
from verification.cases.case import Case
from verification.cases.doubtful import DOUBTFUL
from verification.cases.malformed import MALFORMED, malformed_input

# A hundred inputs an example under ``ci`` (a hundred examples): ten thousand in all.
THOROUGH = settings.default.max_examples >= 100
INPUTS_AN_EXAMPLE = 100 if THOROUGH else 20


class Refused(Exception):
    """A documented error, with the message that it gave."""


def run(case: Case) -> list[float] | None:
    """The numbers that the live code gives for ``case`` (None for a command line), or ``Refused``.

    Any exception that is not documented passes through. An input that the call changed is an assertion error.
    """
    inputs, args = case.fresh_inputs(), case.arguments()
    before = snapshot(inputs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a doubtful combination may warn
            return call(case.stage, args, inputs)
    except (ValueError, TypeError) as error:
        if type(error) not in documented(case):
            raise  # a UnicodeError is a ValueError too, and no documented one
        raise Refused(str(error)) from error
    finally:
        assert snapshot(inputs) == before, f"{case} changed its input"


def documented(case: Case) -> tuple[type[Exception], ...]:
    """ValueError; where one reward a sample is read, TypeError too, for what is no number at all."""
    one_reward = case.stage == "reward.normalize" and case.algorithm != "gdpo"
    return (ValueError, TypeError) if one_reward else (ValueError,)


def call(stage: str, args: Any, inputs: dict[str, Any]) -> list[float] | None:
    """One public call, its results as one list of floats."""
    if stage == "reward.normalize":
        raw, rewards = post_process_rewards(args, inputs["samples"])
        return [*raw, *rewards]
    if stage == "reward.signal":
        assert group_carries_reward_signal(args, inputs["samples"]) in (True, False)
        return []
    if stage == "advantage.estimate":
        advantages, returns = compute_advantages_and_returns(args, process_group=None, **inputs)
        return [x for tensor in (*advantages, *returns) for x in tensor.tolist()]
    assert stage == "arguments.validate"
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            parse_args(inputs["argv"])
    except SystemExit as exit_:
        if exit_.code != 2:
            raise
        raise Refused(stderr.getvalue()) from exit_
    return None


def snapshot(value: Any) -> Any:
    """The value as text and bytes: equal snapshots mean equal types and bits."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.numpy().tobytes()
    if isinstance(value, SimpleNamespace):
        return snapshot(vars(value))
    if isinstance(value, dict):
        return [(key, snapshot(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value).__name__, [snapshot(item) for item in value]
    return repr(value)


def assert_refused(case: Case, words: tuple[str, ...], origin: str) -> None:
    """The case fails with every word in the message."""
    try:
        result = run(case)
    except Refused as refusal:
        message = str(refusal)
        assert all(word in message for word in words), f"{origin}: {message!r} lacks one of {words}"
    else:
        pytest.fail(f"{origin} was accepted and gave {result}: {case}")


def assert_sound(case: Case, origin: str) -> str:
    """The case is refused or gives finite numbers; says which."""
    try:
        result = run(case)
    except Refused:
        return "refused"
    assert result is None or all(map(math.isfinite, result)), f"{origin} gave {result}: {case}"
    return "accepted"


def test_ten_thousand_malformed_inputs() -> None:
    """Every malformed input is refused with its words, every doubtful one is refused or gives finite numbers."""
    tried: Counter[str] = Counter()

    @given(st.integers(0, 2**32 - 1))
    def example(seed: int) -> None:
        for number in range(INPUTS_AN_EXAMPLE):
            origin = f"Random('{seed}/{number}')"
            rng = Random(f"{seed}/{number}")
            if rng.randrange(2):
                kind = rng.choice(tuple(MALFORMED))
                assert_refused(*malformed_input(kind, rng), f"{kind} of {origin}")
                tried[kind] += 1
            else:
                kind = rng.choice(tuple(DOUBTFUL))
                tried[f"{kind} {assert_sound(DOUBTFUL[kind](rng), f'{kind} of {origin}')}"] += 1

    example()
    assert sum(tried.values()) >= settings.default.max_examples * INPUTS_AN_EXAMPLE
    if THOROUGH:
        assert sum(tried.values()) >= 10_000
        expected = {*MALFORMED, *(f"{kind} {end}" for kind in DOUBTFUL for end in ("refused", "accepted"))}
        assert set(tried) == expected
        assert min(tried.values()) >= 20


@pytest.mark.parametrize("kind", MALFORMED)
def test_each_kind_is_refused(kind: str) -> None:
    """Every kind of malformed input is refused by name, whatever the rest of the input is."""
    for number in range(10):
        assert_refused(*malformed_input(kind, Random(f"{kind}/{number}")), f"{kind} {number}")


@pytest.mark.parametrize("kind", MALFORMED)
def test_the_makers_are_deterministic(kind: str) -> None:
    """A maker gives the same case for the same seed, so that a failure can be tried again."""
    first, second = (malformed_input(kind, Random("seed"))[0] for _ in range(2))
    assert snapshot(first.fresh_inputs()) == snapshot(second.fresh_inputs())
    assert first.options.keys() == second.options.keys()


def test_the_check_notices_a_changed_input() -> None:
    """A snapshot differs after one bit of a tensor or one entry of a reward has changed."""
    inputs = {"samples": [SimpleNamespace(reward={"a": 0.0})], "kl": [torch.zeros(2)]}
    before = snapshot(inputs)
    inputs["kl"][0][1] = -0.0
    assert snapshot(inputs) != before
    inputs["kl"][0][1] = 0.0
    assert snapshot(inputs) == before
    inputs["samples"][0].reward["a"] = -0.0
    assert snapshot(inputs) != before
