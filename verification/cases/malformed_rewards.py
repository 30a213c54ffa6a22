"""Single rewards that must be refused, whatever the algorithm and the route by which a reward enters training.

One exception is documented: a NaN or an infinity among floats. The baseline carries it along, and its bits are kept
where nothing is correctly rounded: ``KEEPS_WHAT_IS_NOT_FINITE``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np

from verification.cases.case import Case
from verification.cases.families import ALL, COMPONENTS, DIVIDE_BY_STD, GROUPED, NO_GROUPS, SINGLE_REWARD
from verification.cases.reward_columns import FLOAT32_MAX
from verification.cases.samples import normalize_case, samples_of, signal_case

Malformed = tuple[Case, tuple[str, ...]]
Maker = Callable[[Random], Malformed]

# Nothing that training can count with, though some of it looks like a number.
NO_NUMBER: dict[str, Callable[[Random], Any]] = {
    "none": lambda rng: None,
    "numpy-bool": lambda rng: np.bool_(rng.choice((True, False))),
    "text": lambda rng: rng.choice(("", "1", "1.0", "nan", "good")),
    "complex": lambda rng: complex(rng.randrange(3), 0),
    "decimal": lambda rng: Decimal(rng.randrange(3)),
    "list": lambda rng: [float(rng.randrange(3))],
    "mapping": lambda rng: {"score": 1.0},
    "beyond-float64": lambda rng: rng.choice((10**400, -(10**400), 10**309)),
}

NOT_FINITE: dict[str, Callable[[Random], Any]] = {
    "nan": lambda rng: rng.choice((float("nan"), np.float32("nan"), np.float64("nan"))),
    "infinity": lambda rng: rng.choice((float("inf"), float("-inf"), np.float32("inf"))),
}

# No real number within float32: what reward components refuse. A bool is no score of a component; as a single reward
# it counts as 0 or 1, as it does in the baseline.
NOT_A_REWARD: dict[str, Callable[[Random], Any]] = {
    "bool": lambda rng: rng.choice((True, False)),
    **{name: make for name, make in NO_NUMBER.items() if name != "beyond-float64"},
    **NOT_FINITE,
    "beyond-float32": lambda rng: rng.choice((1e39, -1e300, 10**40, 10**400, FLOAT32_MAX * (1 + 2.0**-52))),
}

NOT_A_MAPPING: tuple[Any, ...] = (None, 1.0, 0, "good", [1.0, 2.0], (1.0,), True)

KEY = "score"
HOOK = "the.rollout.fills.custom_advantage"


@dataclass(frozen=True)
class Route:
    """One way by which a single number of a sample enters training, and the algorithms that have it."""

    algorithms: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    keyed: bool = False
    signal: bool = False
    custom: bool = False


ROUTES: dict[str, Route] = {
    "plain": Route(SINGLE_REWARD),
    "centred": Route(DIVIDE_BY_STD, {"grpo_std_normalization": False}),
    "raw": Route((*DIVIDE_BY_STD, *NO_GROUPS, "reinforce_plus_plus_baseline"), {"rewards_normalization": False}),
    "exact": Route(GROUPED, {"exact_statistics": True}),
    "keyed": Route(ALL, {"reward_key": KEY}, keyed=True),
    "keyed-raw": Route(NO_GROUPS + DIVIDE_BY_STD, {"reward_key": KEY, "rewards_normalization": False}, keyed=True),
    "signal": Route(SINGLE_REWARD, signal=True),
    "keyed-signal": Route(SINGLE_REWARD, {"reward_key": KEY}, keyed=True, signal=True),
    "custom": Route(SINGLE_REWARD, {"agentic_custom_advantage_path": HOOK}, custom=True),
}

# (algorithm, route): a NaN or an infinity goes through with the baseline's bits. A signal is then answered with False.
KEEPS_WHAT_IS_NOT_FINITE: frozenset[tuple[str, str]] = frozenset(
    (algorithm, name)
    for name, route in ROUTES.items()
    for algorithm in route.algorithms
    if route.custom or route.signal or (algorithm not in ("rloo", *COMPONENTS) and name != "exact")
)


def planted(algorithm: str, route: str, value: Any, rng: Random, *, words: tuple[str, ...] = ()) -> Malformed:
    """A valid case of ``algorithm`` but for one number, ``value``; the message must name the sample and its group."""

    def plant(number: float) -> Any:
        return value

    return _case(algorithm, route, rng, plant, words)


def _case(
    algorithm: str,
    name: str,
    rng: Random,
    plant: Callable[[float], Any],
    words: tuple[str, ...],
    *,
    whole: bool = False,
) -> Malformed:
    """A case of which one number is replaced by ``plant(number)``; with ``whole`` the reward that holds it."""
    route = ROUTES[name]
    size, count = rng.randrange(2, 5), 1 if route.signal else rng.randrange(1, 4)
    labels = [100 + 7 * index for index in range(count)]
    numbers: list[Any] = [rng.randrange(9) / 2 for _ in range(size * count)]
    position = rng.randrange(size * count)
    samples = samples_of([[0.0] * size] * count, labels=labels)
    for index, (sample, number) in enumerate(zip(samples, numbers, strict=True)):
        found = plant(number) if index == position and not whole else number
        reward: Any = number if route.custom else found
        if route.keyed:
            reward = {"correct": number, "format": 1.0, KEY: found}
        sample["reward"] = plant(number) if index == position and whole else reward
        sample["custom_advantage"] = found if route.custom else None
    words = (*words, f"sample {position}", str(labels[position // size]))
    options = dict(route.options)
    if algorithm in COMPONENTS:
        options |= {"gdpo_reward_keys": ["correct", "format"], "gdpo_reward_weights": [1.0, 0.5]}
    if route.signal:
        return signal_case(algorithm, f"drawn-{name}", samples, error=words, **options), words
    return normalize_case(algorithm, f"drawn-{name}", samples, group_size=size, error=words, **options), words


def _no_number(route: str, fault: str) -> Maker:
    def make(rng: Random) -> Malformed:
        algorithm = rng.choice(ROUTES[route].algorithms)
        words = ("custom_advantage",) if ROUTES[route].custom else ()
        return planted(algorithm, route, NO_NUMBER[fault](rng), rng, words=words)

    return make


def _by_any_route(fault: str) -> Maker:
    return lambda rng: _no_number(rng.choice(tuple(ROUTES)), fault)(rng)


def _keyed_route(rng: Random) -> tuple[str, str]:
    route = rng.choice([name for name, route in ROUTES.items() if route.keyed])
    return rng.choice(ROUTES[route].algorithms), route


def missing_key(rng: Random) -> Malformed:
    """A mapping without the entry that --reward-key names."""
    algorithm, route = _keyed_route(rng)
    return _case(algorithm, route, rng, lambda number: {"correct": number, "format": 1.0}, (KEY,), whole=True)


def no_mapping(rng: Random) -> Malformed:
    """A reward that is no mapping where --reward-key names an entry."""
    algorithm, route = _keyed_route(rng)
    value = rng.choice(NOT_A_MAPPING)
    return _case(algorithm, route, rng, lambda number: value, (KEY,), whole=True)


def not_finite(rng: Random) -> Malformed:
    """A NaN or an infinity on a route that is no exception."""
    strict = [
        (algorithm, name)
        for name, route in ROUTES.items()
        for algorithm in route.algorithms
        if (algorithm, name) not in KEEPS_WHAT_IS_NOT_FINITE
    ]
    algorithm, route = rng.choice(strict)
    return planted(algorithm, route, NOT_FINITE[rng.choice(tuple(NOT_FINITE))](rng), rng)


MALFORMED_REWARDS: dict[str, Maker] = {
    **{f"{route}-{fault}": _no_number(route, fault) for route in ("plain", "keyed", "custom") for fault in NO_NUMBER},
    **{f"any-route-{fault}": _by_any_route(fault) for fault in NO_NUMBER},
    "keyed-missing": missing_key,
    "keyed-no-mapping": no_mapping,
    "not-finite": not_finite,
}
