"""Reward groups of real tasks (``data/real-groups.json``) as cases: GDPO beside the algorithms with one reward."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from verification.cases.case import Case
from verification.cases.samples import component_rewards, normalize_case, samples_of, signal_case

PATH = Path(__file__).parent / "data" / "real-groups.json"

COMPONENTS = ("correctness", "format", "length")

WEIGHTS = ([1.0, 1.0, 1.0], [1.0, 0.5, -0.1], [1.0, 0.3, 0.0], [2.0, 1.0, -0.25])

# One of these joins each group in turn, so that every algorithm meets every kind of task.
IN_ROTATION = ("gspo", "sapo", "cispo", "ppo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "grpo")


@lru_cache(maxsize=1)
def recorded() -> dict[str, Any]:
    """The recording as it is: ``source``, ``about`` and ``groups``, scores as hex texts."""
    return json.loads(PATH.read_text(encoding="utf-8"))


def real_cases() -> Iterator[Case]:
    """The cases of every recorded group."""
    for number, group in enumerate(recorded()["groups"]):
        yield from cases_of_group(number, group)


def cases_of_group(number: int, group: dict[str, Any]) -> Iterator[Case]:
    """Six cases of one group: four of ``reward.normalize``, two of ``reward.signal``."""
    columns = {name: [float.fromhex(text) for text in group[name]] for name in COMPONENTS}
    size = len(columns["correctness"])
    samples = samples_of(
        [component_rewards(columns)],
        labels=(number,),
        prompt=[group["prompt"]] * size,
        response_length=[int(length) for length in columns["length"]],
    )
    rest = f"real-{number:03d}-{group['task'].replace('_', '-')}"
    components: dict[str, Any] = {
        "gdpo_reward_keys": list(COMPONENTS),
        "gdpo_reward_weights": list(WEIGHTS[number % len(WEIGHTS)]),
    }
    tags = ("real",)
    other = IN_ROTATION[number % len(IN_ROTATION)]
    yield normalize_case("gdpo", rest, samples, group_size=size, tags=tags, **components)
    yield normalize_case("grpo", rest, samples, group_size=size, tags=tags, reward_key="correctness")
    yield normalize_case("rloo", rest, samples, group_size=size, tags=tags, reward_key="correctness")
    if other == "grpo":
        yield normalize_case(
            "grpo",
            f"{rest}-exact",
            samples,
            group_size=size,
            tags=tags,
            reward_key="correctness",
            exact_statistics=True,
        )
    else:
        yield normalize_case(other, rest, samples, group_size=size, tags=tags, reward_key="correctness")
    yield signal_case("gdpo", rest, samples, tags=tags, **components)
    yield signal_case("grpo", rest, samples, tags=tags, reward_key="correctness")
