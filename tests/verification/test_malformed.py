"""Thousands of generated bad inputs: a documented error or a valid result, never anything else, nothing changed."""

from __future__ import annotations

import contextlib
import io
import math
import struct
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
from relax.algorithms.spec import get_algorithm, list_algorithm_names
from relax.arguments import parse_args
from relax.rollout.post_process import post_process_rewards
from verification.cases.case import Case
from verification.cases.doubtful import DOUBTFUL
from verification.cases.malformed import MALFORMED, malformed_input
from verification.cases.malformed_rewards import KEEPS_WHAT_IS_NOT_FINITE, NO_NUMBER, ROUTES, planted
from verification.frozen.dispatch import post_process_rewards as frozen_post_process_rewards

# A hundred examples of a hundred inputs, under every profile: ten seconds of one core.
EXAMPLES = INPUTS_AN_EXAMPLE = 100


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
    except (ValueError, TypeError, KeyError) as error:
        if type(error) not in documented(case):
            raise  # a UnicodeError is a ValueError too, and no documented one
        raise Refused(str(error)) from error
    finally:
        assert snapshot(inputs) == before, f"{case} changed its input"


def documented(case: Case) -> tuple[type[Exception], ...]:
    """ValueError; where one reward a sample is read, TypeError for what is no number, KeyError for a missing entry."""
    kinds: tuple[type[Exception], ...] = (ValueError,)
    if case.stage.startswith("reward."):
        keyed = case.options.get("reward_key") is not None
        kinds += (TypeError,) if keyed or case.algorithm != "gdpo" else ()
        kinds += (KeyError,) if keyed else ()
    return kinds


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
    """The case is refused or gives finite numbers, on the baseline's routes its very numbers; says which."""
    try:
        result = run(case)
    except Refused:
        return "refused"
    if case.id.endswith("/drawn-baseline"):
        assert bits(result) == bits(baseline(case)), f"{origin} is not what the baseline gives: {case}"
    else:
        assert result is None or all(map(math.isfinite, result)), f"{origin} gave {result}: {case}"
    return "accepted"


def baseline(case: Case) -> list[float]:
    """What the frozen copies give for a case of ``reward.normalize``."""
    raw, rewards = frozen_post_process_rewards(case.arguments(), case.fresh_inputs()["samples"])
    return [*map(float, raw), *rewards]


def bits(numbers: list[float] | None) -> bytes:
    """The doubles' own bytes: NaN equals NaN, and 0 is not -0."""
    assert numbers is not None
    return struct.pack(f"<{len(numbers)}d", *numbers)


def test_ten_thousand_malformed_inputs() -> None:
    """Every malformed input is refused with its words, every doubtful one is refused or gives finite numbers."""
    tried: Counter[str] = Counter()

    @given(st.integers(0, 2**64 - 1))
    @settings(max_examples=EXAMPLES)
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


WAYS = [(algorithm, name) for name, route in ROUTES.items() for algorithm in route.algorithms]


def test_the_ways_cover_every_algorithm() -> None:
    """Each algorithm has a way with --reward-key, and each with a single reward every kind of way."""
    assert {algorithm for algorithm, route in WAYS if ROUTES[route].keyed} == set(list_algorithm_names())
    for kind in ("plain", "signal", "custom"):
        single = {name for name in list_algorithm_names() if not get_algorithm(name).uses_reward_components}
        assert {algorithm for algorithm, route in WAYS if route == kind} == single


@pytest.mark.parametrize(("algorithm", "route"), WAYS)
@pytest.mark.parametrize("fault", NO_NUMBER)
def test_no_way_lets_a_value_through_that_is_no_number(algorithm: str, route: str, fault: str) -> None:
    """Whatever the algorithm and the route: what is no number is refused with its sample and its group."""
    for number in range(3):
        rng = Random(f"{algorithm}/{route}/{fault}/{number}")
        assert_refused(*planted(algorithm, route, NO_NUMBER[fault](rng), rng), f"{fault} {number}")


@pytest.mark.parametrize(("algorithm", "route"), WAYS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_passes_on_the_documented_routes_alone(algorithm: str, route: str, value: float) -> None:
    """There it gives the baseline's bits (a group's signal: False); everywhere else it is refused with its place."""
    case, words = planted(algorithm, route, value, Random(f"{algorithm}/{route}"))
    if (algorithm, route) not in KEEPS_WHAT_IS_NOT_FINITE:
        assert_refused(case, words, f"{value} by {route}")
        return
    result = run(case)
    if ROUTES[route].signal:
        assert group_carries_reward_signal(case.arguments(), case.fresh_inputs()["samples"]) is False
    elif algorithm != "rloo":  # the baseline had none
        assert bits(result) == bits(baseline(case))
    else:
        assert result is not None
        assert bits([value]) in {bits([number]) for number in result}


def test_the_exception_is_the_baseline_s_alone() -> None:
    """No components, nothing correctly rounded: only single rewards that the baseline's formulas or nothing touches."""
    assert {route for _, route in KEEPS_WHAT_IS_NOT_FINITE} == set(ROUTES) - {"exact"}
    assert "gdpo" not in {algorithm for algorithm, _ in KEEPS_WHAT_IS_NOT_FINITE}
    leave_one_out = {route for algorithm, route in KEEPS_WHAT_IS_NOT_FINITE if algorithm == "rloo"}
    assert leave_one_out == {"custom", "signal", "keyed-signal"}


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
