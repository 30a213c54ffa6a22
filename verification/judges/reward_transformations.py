"""Transformations of the reward stages that must not change the result, or change it in an exactly known way.

What holds: every algorithm treats a prompt group alone, so order and labels of groups and what else is in the batch
do not count. Within a group the baseline's float32 sums depend on the order of samples, the correctly rounded results
do not; these depend on nothing but the real numbers, so that exact shifts, doubled weights, turned signs and flat
components have exact consequences too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import torch

from verification.cases.case import Case
from verification.judges.families import Scores, scores_of
from verification.judges.transformation import (
    IGNORED,
    Arrays,
    Run,
    Transformation,
    denormals_flushed,
    doubled,
    negated,
    positive_zeros,
    safely_normal,
    with_inputs,
    with_options,
)

HOOKS = ("custom_reward_post_process_path", "agentic_custom_advantage_path")
LARGEST_BATCH = 4096
FLOAT32_MAX = 3.4028234663852886e38


def reward_transformations(case: Case, arrays: Arrays) -> Iterator[Transformation]:
    """The transformations that hold for this case, whose result was ``arrays``."""
    samples = case.inputs["samples"]
    scores = scores_of(case.algorithm)
    if scores is None or any(case.options.get(hook) for hook in HOOKS) or len(samples) > LARGEST_BATCH:
        return
    places = tuple(range(len(samples)))
    exact = scores.exact or (scores.by_switch and case.options.get("exact_statistics", False))
    plain = not scores.grouped or not case.options.get("rewards_normalization", True)
    if exact and not plain and (case.stage == "reward.normalize" or scores.components):
        yield denormals_flushed(case, places)
    if exact or plain or case.stage == "reward.signal":
        yield _reordered(case, "samples in reverse order", places[::-1])
    groups = _groups(samples)
    if groups is not None:
        yield from _regrouped(case, groups, places)
    if not plain:
        yield from _renumbered(case, arrays, places, scores, exact=exact)


def _reordered(case: Case, name: str, order: Sequence[int]) -> Transformation:
    samples = case.inputs["samples"]
    return Transformation(name, (Run(with_inputs(case, samples=[samples[i] for i in order]), tuple(order)),))


def _groups(samples: Sequence[Any]) -> dict[int, list[int]] | None:
    """Positions by group in order of first appearance; None where a sample has no group."""
    groups: dict[int, list[int]] = {}
    for position, sample in enumerate(samples):
        label = sample.get("group_index")
        if not isinstance(label, int):
            return None
        groups.setdefault(label, []).append(position)
    return groups


def _regrouped(case: Case, groups: dict[int, list[int]], places: tuple[int, ...]) -> Iterator[Transformation]:
    samples = case.inputs["samples"]
    labels = {label: 1000 - 3 * place for place, label in enumerate(groups)}
    relabelled = [{**sample, "group_index": labels[sample["group_index"]]} for sample in samples]
    yield Transformation("groups relabelled", (Run(with_inputs(case, samples=relabelled), places),))
    if case.stage != "reward.normalize":
        return
    twice = with_inputs(case, samples=[*samples, *relabelled_apart(samples)])
    ignored = (IGNORED,) * len(places)
    yield Transformation("batches concatenated, first", (Run(twice, places + ignored),))
    yield Transformation("batches concatenated, second", (Run(twice, ignored + places),))
    if len(groups) > 1:
        yield _reordered(case, "groups in reverse order", [i for group in reversed(groups.values()) for i in group])
        rounds = range(max(map(len, groups.values())))
        woven = [group[turn] for turn in rounds for group in groups.values() if turn < len(group)]
        yield _reordered(case, "groups interleaved", woven)


def relabelled_apart(samples: Sequence[Any]) -> list[dict[str, Any]]:
    """The samples with group labels that none of them has."""
    apart = 1 + max(abs(sample["group_index"]) for sample in samples) * 2
    return [{**sample, "group_index": sample["group_index"] + apart} for sample in samples]


def _renumbered(
    case: Case, arrays: Arrays, places: tuple[int, ...], scores: Scores, *, exact: bool
) -> Iterator[Transformation]:
    """Transformations of the reward values themselves."""
    keys = _keys(case, scores)
    values = _values(case, keys)
    if values is None or not all(math.isfinite(value) for value in values):
        return
    changed = _changer(case, keys)

    def run(function: Callable[[float], float]) -> tuple[Run]:
        return (Run(changed(function), places),)

    yield Transformation("rewards negated", run(lambda value: -value), negated, positive_zeros)
    in_range = case.stage == "reward.normalize" and safely_normal([arrays["rewards"]], 1e-36, 1e37)
    if in_range and _is_linear(case, scores) and _safe(values):
        yield Transformation("rewards doubled", run(lambda value: value * 2), doubled)
    if exact:
        shift = _exact_shift(values)
        if shift is not None and case.stage == "reward.normalize":
            transformation = Transformation(f"rewards shifted by {shift:g}", run(lambda value: value + shift))
            yield replace(transformation, expected=_without_raw, viewed=_without_raw)
    if scores.components:
        yield from _recomposed(case, arrays, places)


def _is_linear(case: Case, scores: Scores) -> bool:
    """Centred but not divided by a standard deviation plus epsilon."""
    switched_off = scores.divided == "by switch" and not case.options.get("grpo_std_normalization", True)
    return scores.divided == "never" or switched_off


def _recomposed(case: Case, arrays: Arrays, places: tuple[int, ...]) -> Iterator[Transformation]:
    """Components in another order, weights doubled or turned with their component, a flat component more."""
    keys = list(case.options["gdpo_reward_keys"])
    weights = [float(weight) for weight in case.options.get("gdpo_reward_weights") or [1.0] * len(keys)]
    reversed_keys = with_options(case, gdpo_reward_keys=keys[::-1], gdpo_reward_weights=weights[::-1])
    yield Transformation("components in reverse order", (Run(reversed_keys, places),), _without_raw, _without_raw)
    turned = _changer(case, [keys[0]])(lambda value: -value)
    turned = with_options(turned, gdpo_reward_weights=[-weights[0], *weights[1:]])
    yield Transformation("a component and its weight negated", (Run(turned, places),), _without_raw, _without_raw)
    flat = [{**sample, "reward": {**sample["reward"], "flat": 0.3}} for sample in case.inputs["samples"]]
    options = {"gdpo_reward_keys": [*keys, "flat"], "gdpo_reward_weights": [*weights, 7.0]}
    more = with_options(with_inputs(case, samples=flat), **options)
    yield Transformation("a flat component added", (Run(more, places),), _without_raw, _without_raw)
    in_range = _safe(_values(case, keys) or ()) and all(weight == 0 or 1e-10 < abs(weight) < 1e10 for weight in weights)
    if case.stage == "reward.normalize" and in_range and safely_normal([arrays["rewards"]], 1e-36, 1e37):
        heavier = with_options(case, gdpo_reward_weights=[weight * 2 for weight in weights])

        def doubled_rewards(name: str, tensor: torch.Tensor) -> torch.Tensor | None:
            return _without_raw(name, doubled(name, tensor))

        yield Transformation("weights doubled", (Run(heavier, places),), doubled_rewards, _without_raw)


def _without_raw(name: str, tensor: torch.Tensor) -> torch.Tensor | None:
    """The raw rewards are what came in: a transformation that changes them says nothing about them."""
    return None if name == "raw_rewards" else tensor


def _keys(case: Case, scores: Scores) -> list[str] | None:
    """The components that enter the result; None for a single number."""
    if scores.components:
        return list(case.options.get("gdpo_reward_keys") or ())
    return [case.options["reward_key"]] if case.options.get("reward_key") else None


def _values(case: Case, keys: list[str] | None) -> list[float] | None:
    """Every reward value that enters the result; None where one is no plain number."""
    rewards = [sample.get("reward") for sample in case.inputs["samples"]]
    found = rewards if keys is None else [reward[key] for reward in rewards for key in keys]
    plain = all(isinstance(value, float | int) and not isinstance(value, bool) for value in found)
    return [float(value) for value in found] if plain and found else None


def _changer(case: Case, keys: list[str] | None) -> Callable[[Callable[[float], float]], Case]:
    def changed(function: Callable[[float], float]) -> Case:
        samples = []
        for sample in case.inputs["samples"]:
            reward = sample["reward"]
            if keys is None:
                samples.append({**sample, "reward": function(float(reward))})
            else:
                new = {key: function(float(value)) if key in keys else value for key, value in reward.items()}
                samples.append({**sample, "reward": new})
        return with_inputs(case, samples=samples)

    return changed


def _safe(values: Sequence[float]) -> bool:
    return all(value == 0.0 or 1e-20 <= abs(value) <= 1e30 for value in values)


def _exact_shift(values: Sequence[float]) -> float | None:
    """A shift that every value takes without rounding in float64, if one of a few does."""
    for shift in (1.0, 8.0, 1024.0, 2.0**-20):
        within = all(abs(value + shift) <= FLOAT32_MAX for value in values)
        if within and all(Fraction(value) + Fraction(shift) == Fraction(value + shift) for value in values):
            return shift
    return None
