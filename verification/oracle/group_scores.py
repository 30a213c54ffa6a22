"""The reward stage as real numbers: group scores, GDPO steps 1 and 2, and whether a group carries a signal.

Without exact statistics the inputs are the float32 of the rewards and eps is the float32 nearest 1e-6 (a Python
number added to a float32 tensor is rounded to float32 first). With them, and always under GDPO, the inputs are the
doubles given, eps is a double (1e-6 for the group score, 1e-4 for GDPO) and the result is the float32 nearest the
real number, zeros positive. The leave-one-out score has no baseline to keep and is always of the second kind.
Malformed rewards, and scores beyond float32, have no result: None.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from numbers import Real as RealNumber
from typing import Any

import torch
from flint import arb, ctx, fmpq

from verification.oracle.exact import Exact
from verification.oracle.reals import (
    FLOAT32_MAX,
    ZERO,
    magnitude,
    rational,
    rationals,
    reach,
    settled_single,
    single,
)
from verification.oracle.routes import ROUTES
from verification.oracle.standardized import deviations_and_variance, standardized_sum

GROUP_EPS = 1e-6
GDPO_EPS = 1e-4
PRECISION = 192

Sample = Mapping[str, Any]
Scores = list[tuple[arb | fmpq, float]]  # value and scale, one a sample


def normalize(args: Namespace, samples: Sequence[Sample]) -> dict[str, Exact] | None:
    """``rewards`` (and ``raw_rewards`` where each sample has one number) of the reward stage; None where undefined."""
    if args.custom_reward_post_process_path or args.agentic_custom_advantage_path:
        return None
    route = ROUTES[args.advantage_estimator]
    if route.scores == "components":
        return _normalize_components(args, samples)
    raw = single_rewards(args, samples)
    if raw is None:
        return None
    as_given = _python_floats("reward.as_given", [(rational(value), abs(value)) for value in raw], torch.float64)
    if route.scores == "none" or not args.rewards_normalization:
        return {"raw_rewards": as_given, "rewards": as_given}
    groups = prompt_groups(args, samples)
    if groups is None:
        return None
    kind = "mean" if route.scores == "mean_std" and not args.grpo_std_normalization else route.scores
    exact = args.exact_statistics or kind == "leave_one_out"
    results: Scores = [(ZERO, 0.0)] * len(raw)
    for positions in groups:
        group = [raw[position] for position in positions]
        scores = _exact_scores(kind, group) if exact else _float32_scores(kind, group)
        if scores is None:
            return None
        for position, score in zip(positions, scores, strict=True):
            results[position] = score
    formula = "reward.correctly_rounded" if exact else f"reward.{kind}"
    return {"raw_rewards": as_given, "rewards": _python_floats(formula, results, torch.float32, exact)}


def signal(args: Namespace, samples: Sequence[Sample]) -> dict[str, Exact] | None:
    """``signal``: whether the group's smallest and largest float32 number differ; None where malformed."""
    if ROUTES[args.advantage_estimator].scores == "components":
        combined = combined_components(args, samples)
        if combined is None:
            return None
        numbers = [settled_single(value) for value in combined]
    else:
        raw = single_rewards(args, samples, finite=False)
        if not raw:
            return None
        numbers = [single(value) for value in raw]
    carries = all(math.isfinite(number) for number in numbers) and min(numbers) != max(numbers)
    return {"signal": Exact((fmpq(int(carries)),), (0.0,), (), "reward.signal", dtype=torch.bool)}


def single_rewards(args: Namespace, samples: Sequence[Sample], *, finite: bool = True) -> list[float] | None:
    """Each sample's one reward as a double; None where one is no number (or, if ``finite``, beyond float32)."""
    rewards = []
    for sample in samples:
        reward = sample.get("reward")
        if args.reward_key:
            reward = reward.get(args.reward_key) if isinstance(reward, Mapping) else None
        if not isinstance(reward, RealNumber):
            return None
        rewards.append(float(reward))
    if finite and not all(math.isfinite(single(reward)) for reward in rewards):
        return None
    return rewards


def combined_components(args: Namespace, group: Sequence[Sample]) -> list[arb | fmpq] | None:
    """GDPO steps 1 and 2 for one group: A_i = sum of w_k (x_ik - mean_k) / (std_k + eps), float32 certain."""
    keys = args.gdpo_reward_keys or ()
    weights = [1.0] * len(keys) if args.gdpo_reward_weights is None else list(args.gdpo_reward_weights)
    if len(keys) < 2 or len(set(keys)) != len(keys) or len(weights) != len(keys) or len(group) < 2:
        return None
    if not all(math.isfinite(weight) for weight in weights) or not any(weights):
        return None
    columns = []
    for key in keys:
        column: list[Any] = [
            sample["reward"].get(key) if isinstance(sample.get("reward"), Mapping) else None for sample in group
        ]
        if not all(_is_component(value) for value in column):
            return None
        columns.append(rationals(float(value) for value in column))
    combined = standardized_sum(columns, rationals(float(weight) for weight in weights), rational(GDPO_EPS))
    return combined if all(math.isfinite(settled_single(value)) for value in combined) else None


def prompt_groups(args: Namespace, samples: Sequence[Sample]) -> list[list[int]] | None:
    """The positions of each group, groups in order of first appearance; None where a group is incomplete."""
    groups: dict[Any, list[int]] = {}
    for position, sample in enumerate(samples):
        groups.setdefault(sample.get("group_index"), []).append(position)
    if None in groups or any(len(positions) != args.n_samples_per_prompt for positions in groups.values()):
        return None
    return list(groups.values())


def _normalize_components(args: Namespace, samples: Sequence[Sample]) -> dict[str, Exact] | None:
    groups = prompt_groups(args, samples)
    if groups is None or not args.rewards_normalization:
        return None
    results: Scores = [(ZERO, 0.0)] * len(samples)
    for positions in groups:
        combined = combined_components(args, [samples[position] for position in positions])
        if combined is None:
            return None
        for position, value in zip(positions, combined, strict=True):
            results[position] = (value, magnitude(value))
    named = {"rewards": _python_floats("reward.correctly_rounded", results, torch.float32, exact=True)}
    raw = _raw_sums(args, samples)
    return named if raw is None else {"raw_rewards": raw, **named}


def _raw_sums(args: Namespace, samples: Sequence[Sample]) -> Exact | None:
    """What is reported as GDPO's raw reward: the weighted sum in float64, or the one component that is asked for."""
    if args.reward_key:
        chosen = single_rewards(args, samples)
        if chosen is None:
            return None
        return _python_floats("reward.as_given", [(rational(value), abs(value)) for value in chosen], torch.float64)
    weights = args.gdpo_reward_weights or [1.0] * len(args.gdpo_reward_keys)
    sums: Scores = []
    for sample in samples:
        pairs = zip(weights, args.gdpo_reward_keys, strict=True)
        terms = [rational(float(weight)) * rational(float(sample["reward"][key])) for weight, key in pairs]
        sums.append((sum(terms, ZERO), magnitude(sum((abs(term) for term in terms), ZERO))))
    return _python_floats("reward.weighted_sum", sums, torch.float64)


def _is_component(value: Any) -> bool:
    """Whether GDPO's input contract takes ``value`` (numpy's bool is no Real, Python's is)."""
    if isinstance(value, bool) or not isinstance(value, RealNumber):
        return False
    return math.isfinite(float(value)) and abs(float(value)) <= FLOAT32_MAX


def _exact_scores(kind: str, group: Sequence[float]) -> Scores | None:
    numbers = rationals(group)
    values: Sequence[arb | fmpq] | None
    if kind == "mean_std":
        values = standardized_sum([numbers], [fmpq(1)], rational(GROUP_EPS)) if len(numbers) > 1 else None
    elif kind == "mean":
        values = deviations_and_variance(numbers)[0]
    else:
        values = _leave_one_out(numbers)
    if values is None or not all(math.isfinite(settled_single(value)) for value in values):
        return None
    return [(value, magnitude(value)) for value in values]


def _float32_scores(kind: str, group: Sequence[float]) -> Scores | None:
    """Scale: the largest magnitude of the group (what an error of the mean is an ulp of), over std + eps if divided;
    infinity where the sum may leave float32."""
    sizes = [abs(single(value)) for value in group]
    numbers = rationals(single(value) for value in group)
    largest = max(sizes) if sum(sizes) <= FLOAT32_MAX else math.inf
    deviations, variance = deviations_and_variance(numbers)
    if kind == "mean":
        return [(deviation, largest) for deviation in deviations]
    if len(group) < 2:
        return None
    with ctx.workprec(PRECISION):
        spread = arb(variance).sqrt() + arb(single(GROUP_EPS))
        scale = reach(arb(largest)) / magnitude(spread)
        return [(arb(deviation) / spread, scale) for deviation in deviations]


def _leave_one_out(numbers: Sequence[fmpq]) -> list[fmpq] | None:
    """x_i - (S - x_i) / (G - 1): each reward against the mean of the others."""
    if len(numbers) < 2:
        return None
    total = sum(numbers, ZERO)
    return [number - (total - number) / (len(numbers) - 1) for number in numbers]


def _python_floats(formula: str, scores: Scores, grid: torch.dtype, exact: bool = False) -> Exact:
    values, scales = zip(*scores, strict=True) if scores else ((), ())
    return Exact(
        values,
        scales,
        (len(scores),),
        formula,
        dtype=torch.float64,
        grid=grid,
        correctly_rounded=exact,
        positive_zero=exact,
    )
