"""Input that is thrown together: it may be valid, or hold any number of faults at once.

What must hold for it is weaker than for ``malformed.py``: a documented error or a valid result, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from verification.cases.advantage import advantage_case
from verification.cases.case import Case
from verification.cases.families import ALL, CENTRE_ONLY, DIVIDE_BY_STD, NO_GROUPS
from verification.cases.malformed import HARMLESS, NOT_A_SIZE, REFUSED_OPTIONS
from verification.cases.malformed_rewards import NO_NUMBER, NOT_A_MAPPING, NOT_A_REWARD
from verification.cases.reward_columns import FLOAT32_MAX, FLOAT32_TINY
from verification.cases.samples import normalize_case

NUMBERS: tuple[Any, ...] = (
    0.0, -0.0, 1.0, 0.1, 0.3, 1, -7, 1e9 + 0.1, FLOAT32_MAX, -FLOAT32_MAX, FLOAT32_TINY, 5e-324, np.float32(0.3),
    np.int64(3),
)  # fmt: skip

KEY_LISTS: tuple[Any, ...] = (["a", "b"], ["a", "b"], ["a", "b", "c"], ["a"], ["a", "a"], None, [])

WEIGHTS: tuple[Any, ...] = (1.0, 1.0, 0.5, -2.0, 0.0, 1e38, 1e300, 5e-324, float("nan"), float("inf"))

LABELS: tuple[Any, ...] = (0, 0, 1, 1, 2, -5, None)

OPTION_VALUES = ("0", "1", "2", "8", "-1", "0.5", "1.5", "nan", "inf", "1e400", "x", "", "a b", "k2", "--seed", "a.b")

OPTIONS = (
    "--reward-key", "--n-samples-per-prompt", "--rollout-batch-size", "--global-batch-size", "--num-rollout",
    "--normalize-advantages", "--disable-rewards-normalization", "--disable-grpo-std-normalization", "--gamma",
    "--exact-statistics", "--kl-coef", "--kl-loss-type", "--lambd", "--eps-clip", "--eps-clip-high", "--eps-clip-c",
    "--sapo-tau-pos", "--sapo-tau-neg", "--use-opsm", "--opsm-delta", "--use-tis", "--tis-clip", "--tis-clip-low",
    "--calculate-per-token-loss", "--fully-async", "--hybrid", "--max-staleness", "--true-on-policy-mode",
    "--num-iters-per-train-update", "--gdpo-reward-keys", "--gdpo-reward-weights", "--seed", "--context-parallel-size",
)  # fmt: skip


def groups(rng: Random) -> Case:
    """Rewards of mixed worth under labels, keys, weights and a group size that may not fit."""
    samples = []
    for position in range(rng.randrange(7)):
        reward: Any = {key: _number(rng) for key in "abc"[: rng.choice((2, 3, 3, 3))]}
        if rng.randrange(12) == 0:
            reward = rng.choice(NOT_A_MAPPING)
        samples.append(
            {"index": position, "group_index": rng.choice(LABELS[: rng.choice((2, 4, 7))]), "reward": reward}
        )
    keys = rng.choice(KEY_LISTS)
    weights = None if rng.randrange(3) == 0 else [rng.choice(WEIGHTS) for _ in range(rng.choice((2, 2, 3)))]
    return normalize_case(
        "gdpo", "drawn-doubtful", samples, group_size=rng.choice((1, 2, 2, 3, 4, 6)), gdpo_reward_keys=keys,
        gdpo_reward_weights=weights,
    )  # fmt: skip


def whole_groups(rng: Random) -> Case:
    """Groups that fit, keys and weights in order; only the numbers are odd: most of these are valid."""
    size = rng.randrange(2, 5)
    samples = [
        {"index": position, "group_index": position // size, "reward": {key: _number(rng) for key in "ab"}}
        for position in range(size * rng.randrange(1, 3))
    ]
    weights = [rng.choice(WEIGHTS[:6]) for _ in range(2)]
    return normalize_case(
        "gdpo", "drawn-whole", samples, group_size=size, gdpo_reward_keys=["a", "b"], gdpo_reward_weights=weights
    )


def one_reward(rng: Random) -> Case:
    """One reward a sample, to be correctly rounded: leave-one-out, or group scores with exact statistics."""
    algorithm = rng.choice(("rloo", "grpo", "reinforce_plus_plus_baseline"))
    size = rng.randrange(2, 5)
    samples = [
        {"index": position, "group_index": position // size if rng.randrange(24) else rng.choice(LABELS)}
        | {"reward": _number(rng)}
        for position in range(size * rng.randrange(1, 3))
    ]
    return normalize_case(algorithm, "drawn-doubtful", samples, group_size=size, exact_statistics=True)


def baseline_rewards(rng: Random) -> Case:
    """One reward a sample on the baseline's routes, NaN and infinities among them, under switches that may not fit."""
    algorithm = rng.choice((*DIVIDE_BY_STD, *NO_GROUPS, *CENTRE_ONLY))
    size = rng.randrange(2, 5)
    keyed = rng.randrange(3) == 0
    samples = []
    for position in range(size * rng.randrange(1, 3)):
        number = rng.choice((*NUMBERS, float("nan"), float("inf"), float("-inf")))
        if rng.randrange(24) == 0:
            number = NO_NUMBER[rng.choice(tuple(NO_NUMBER))](rng)
        reward = {"score": number} if keyed and rng.randrange(24) else number
        label = position // size if rng.randrange(24) else rng.choice(LABELS)
        samples.append({"index": position, "group_index": label, "reward": reward, "custom_advantage": _number(rng)})
    options: dict[str, Any] = {
        "reward_key": "score" if keyed else None,
        "rewards_normalization": rng.randrange(4) > 0,
        "grpo_std_normalization": rng.randrange(2) > 0,
    }
    return normalize_case(algorithm, "drawn-baseline", samples, group_size=size, **options)


def _number(rng: Random) -> Any:
    return rng.choice(NUMBERS) if rng.randrange(24) else NOT_A_REWARD[rng.choice(tuple(NOT_A_REWARD))](rng)


def batches(rng: Random) -> Case:
    """Scores, responses and a segment plan that may not fit together."""
    scores = [_score(rng) for _ in range(rng.randrange(7))]
    responses = len(scores) if rng.randrange(8) else rng.randrange(7)
    kl = [np.zeros(rng.randrange(4), dtype=np.float32) for _ in range(responses)]
    sizes: Any = [len(scores)]
    fault = rng.randrange(8)
    if fault == 0:
        sizes = [rng.choice((0, 1, 2, 3, *NOT_A_SIZE)) for _ in range(rng.randrange(4))]
    elif fault == 1:
        sizes = rng.choice((None, 3, "33", [], {}, float("nan")))
    elif fault < 6 and scores:
        first = rng.randrange(len(scores))
        sizes = [first, 0, len(scores) - first]
    return advantage_case("gdpo", "drawn-doubtful", scores, kl, mini_batch_sizes=sizes)


def _score(rng: Random) -> Any:
    return rng.choice(NUMBERS) if rng.randrange(32) else NOT_A_REWARD[rng.choice(tuple(NOT_A_REWARD))](rng)


def lines(rng: Random) -> Case:
    """A command line of real options with values that may not belong to them."""
    words = ["--advantage-estimator", rng.choice((*ALL, "gdpo", "gdpo", "gpdo"))]
    if rng.randrange(4):
        words += ["--gdpo-reward-keys", "correct", "format"]
    for _ in range(rng.randrange(4)):
        kind = rng.randrange(4)
        if kind == 0:
            words += rng.choice(HARMLESS).split()
        elif kind == 1:
            words += rng.choice(REFUSED_OPTIONS)[0].split()
        else:
            words.append(rng.choice(OPTIONS))
            words += [rng.choice(OPTION_VALUES)] if rng.randrange(4) else []
    return Case("arguments.validate/gdpo/drawn-doubtful", "arguments.validate", "gdpo", {"argv": words})


DOUBTFUL: dict[str, Callable[[Random], Case]] = {
    "groups": groups,
    "whole-groups": whole_groups,
    "one-reward": one_reward,
    "baseline-rewards": baseline_rewards,
    "batches": batches,
    "lines": lines,
}
