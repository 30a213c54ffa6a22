"""Named cases of ``reward.normalize`` that are refused, for the algorithms with a single reward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from verification.cases.case import Case
from verification.cases.families import ALL, COMPONENTS, GROUPED, LEAVE_ONE_OUT, SINGLE_REWARD
from verification.cases.integers import Integers
from verification.cases.reward_columns import FLOAT32_MAX, tenths
from verification.cases.samples import normalize_case, samples_of

HOOK = "the.rollout.fills.custom_advantage"
KEY = "score"

NO_NUMBERS = {"none": None, "text": "1.0", "numpy-bool": np.bool_(True), "complex": 1j, "mapping": {"score": 1.0}}

# The baseline fails otherwise over these, so that only new algorithms are asked here; of every algorithm they are drawn
# in ``malformed_rewards.py``.
OUR_OWN = {"beyond-float64": 10**400}
NEW = (*LEAVE_ONE_OUT, *COMPONENTS)
PAIR = {"gdpo_reward_keys": ["a", "b"], "gdpo_reward_weights": [1.0, 2.0]}


def reward_refusal_cases() -> Iterator[Case]:
    """All of them."""
    yield from groups()
    yield from no_numbers()
    yield from no_entries()
    yield from beyond_rounding()


def groups() -> Iterator[Case]:
    """A missing label, and a group of another size than the run's."""
    for algorithm in GROUPED:
        groups = [tenths(Integers("reward/refusals"), 4) for _ in range(3)]
        unlabelled = samples_of(groups)
        unlabelled[6] = {**unlabelled[6], "group_index": None}
        yield normalize_case(algorithm, "no-group-g4", unlabelled, group_size=4, error=("group_index",))
        yield normalize_case(
            algorithm,
            "size-g4-of-8",
            samples_of(groups),
            group_size=8,
            error=("4", "8"),
        )
        yield normalize_case(
            algorithm,
            "split-label-g4",
            samples_of(groups, labels=(0, 5, 0)),
            group_size=4,
            error=("8", "4"),
            note="two prompts under one label are one group of eight",
        )


def no_numbers() -> Iterator[Case]:
    """What is no number, by each of the ways in which a reward enters training."""
    for name, value in {**NO_NUMBERS, **OUR_OWN}.items():
        plain = samples_of([[0.0, 1.0, 0.5, 0.25], [0.0, value, 1.0, 0.5]], labels=(50, 51))
        for algorithm in SINGLE_REWARD if name in NO_NUMBERS else LEAVE_ONE_OUT:
            yield normalize_case(algorithm, f"{name}-g4", plain, group_size=4, error=("sample 5", "51"))
        keyed = samples_of([[{KEY: x, "a": 1.0, "b": 0.0} for x in (0.0, 1.0, value, 0.5)]], labels=(50,))
        custom = samples_of([[0.0, 1.0, 0.5, 0.25]], labels=(50,), custom_advantage=[0.5, 1.0, 0.0, value])
        for algorithm in ("grpo", "ppo", *NEW) if name in NO_NUMBERS else NEW:
            yield keyed_case(algorithm, f"key-{name}-g4", keyed, error=("sample 2", "50"))
            if algorithm not in COMPONENTS:
                yield normalize_case(
                    algorithm, f"custom-{name}-g4", custom, group_size=4, error=("custom_advantage", "sample 3", "50"),
                    agentic_custom_advantage_path=HOOK,
                )  # fmt: skip
    for name, value in (("nan", float("nan")), ("inf", float("-inf")), ("1e300", 1e300)):
        keyed = samples_of([[{KEY: x, "a": 1.0, "b": 0.0} for x in (0.0, 1.0, value, 0.5)]], labels=(50,))
        for algorithm in NEW:
            yield keyed_case(algorithm, f"key-{name}-g4", keyed, error=("sample 2", "50"))


def no_entries() -> Iterator[Case]:
    """A reward without the entry that ``--reward-key`` names."""
    whole = {"a": 0.0, "b": 1.0, KEY: 1.0}
    for name, reward in (("missing", {"a": 1.0, "b": 0.0}), ("no-mapping", 1.0), ("no-reward", None)):
        samples = samples_of([[whole, {**whole, KEY: 0.0}, reward, whole]], labels=(50,))
        for algorithm in ALL:
            yield keyed_case(algorithm, f"key-{name}-g4", samples, error=(KEY, "sample 2", "50"))


def keyed_case(algorithm: str, rest: str, samples: list[dict[str, Any]], *, error: tuple[str, ...]) -> Case:
    """A refused case of one group of four under ``--reward-key``, which reward components may have beside their own."""
    options: dict[str, Any] = PAIR if algorithm in COMPONENTS else {}
    return normalize_case(algorithm, rest, samples, group_size=4, error=error, reward_key=KEY, **options)


def beyond_rounding() -> Iterator[Case]:
    """What correctly rounded statistics refuse: numbers that are not finite, and scores that leave float32."""
    for name, value in (("nan", float("nan")), ("inf", float("inf")), ("1e300", 1e300)):
        samples = samples_of([[0.0, 1.0, 0.5, 0.25], [0.0, value, 1.0, 0.5]], labels=(50, 51))
        yield normalize_case("rloo", f"{name}-g4", samples, group_size=4, error=("sample 5", "51"))
        for algorithm in GROUPED:
            yield normalize_case(
                algorithm, f"{name}-g4-exact", samples, group_size=4, error=("sample 5", "51"), exact_statistics=True
            )
    ends = samples_of([[FLOAT32_MAX, -FLOAT32_MAX, -FLOAT32_MAX, 0.0]], labels=(50,))
    yield normalize_case(
        "rloo", "f32max-g4", ends, group_size=4, error=("sample 0", "50"), note="the score leaves float32"
    )
