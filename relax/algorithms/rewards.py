"""The reward stage: scalar rewards or reward components of prompt groups become one score a sample."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import torch

from relax.algorithms.exact.gdpo import combine_groups, dominating_component
from relax.algorithms.exact.groups import standardize_groups
from relax.algorithms.exact.subnormals import subnormals_kept
from relax.algorithms.formulas import group
from relax.algorithms.reward_inputs import (
    component_weights,
    extract_reward_components,
    finite_number,
    group_positions,
    picked_rewards,
    place,
    real_numbers,
)
from relax.algorithms.spec import get_algorithm
from relax.types import Sample


def read_rewards(args: Namespace, samples: Sequence[Sample]) -> list[float]:
    """One raw reward a sample: ``reward``, or ``reward[reward_key]`` where ``--reward-key`` is set.

    Several reward components without a key are summed with their weights, in the order of the keys. Raises TypeError
    or ValueError naming the sample for what is no real number. A single reward may be NaN or infinite, and is then
    passed on as it is; where there are components none may be, and their weighted sum must not leave float64 either.
    """
    components = get_algorithm(args.advantage_estimator).uses_reward_components
    if components and not args.reward_key:
        return _weighted_sums(args, samples)
    raw = picked_rewards(samples, args.reward_key) if args.reward_key else [sample.reward for sample in samples]
    if components:
        return [finite_number(value, args.reward_key, samples, position) for position, value in enumerate(raw)]
    return real_numbers(samples, raw)


def _weighted_sums(args: Namespace, samples: Sequence[Sample]) -> list[float]:
    weights = component_weights(args)
    components = extract_reward_components(args, samples)  # [n, K]
    total = np.zeros(len(samples))
    with np.errstate(over="ignore", invalid="ignore"):
        for column, weight in zip(components.T, weights, strict=True):
            total += weight * column
    if not np.isfinite(total).all():
        position = int(np.flatnonzero(~np.isfinite(total))[0])
        with np.errstate(over="ignore"):
            dominating = int(np.argmax(np.abs(components[position] * weights)))
        raise ValueError(
            f"the weighted sum of the rewards of {place(samples, position)} is beyond float64: component "
            f"{args.gdpo_reward_keys[dominating]!r} dominates; make its weight smaller"
        )
    return total.tolist()


def normalize_by_mean_std(args: Namespace, samples: Sequence[Sample], raw_rewards: Sequence[float]) -> list[float]:
    """Centred by group, and divided by the group's std unless ``--disable-grpo-std-normalization`` (Dr. GRPO)."""
    if not args.grpo_std_normalization:
        return normalize_by_mean(args, samples, raw_rewards)
    return _by_group(args, samples, raw_rewards, group.group_mean_std, weight=1, epsilon=group.EPSILON)


def normalize_by_mean(args: Namespace, samples: Sequence[Sample], raw_rewards: Sequence[float]) -> list[float]:
    """Centred by group."""
    return _by_group(args, samples, raw_rewards, group.group_mean, weight=1, epsilon=None)


def leave_one_out(args: Namespace, samples: Sequence[Sample], raw_rewards: Sequence[float]) -> list[float]:
    """The reward minus the mean of the other rewards of its group, correctly rounded (RLOO, arXiv 2402.14740).

    That is ``G / (G - 1)`` times the centred reward.
    """
    size = args.n_samples_per_prompt
    if size < 2:
        raise ValueError(
            "a prompt group of one sample leaves no other to compare with: set --n-samples-per-prompt to 2 or more"
        )
    return _by_group(args, samples, raw_rewards, None, weight=Fraction(size, size - 1), epsilon=None)


@subnormals_kept()
def combine_components(args: Namespace, samples: Sequence[Sample], raw_rewards: Sequence[float]) -> list[float]:
    """GDPO's steps 1 and 2: each component standardized by group, then their weighted sum, correctly rounded."""
    del raw_rewards
    positions = group_positions(samples, args.n_samples_per_prompt)  # [P, G]
    weights = component_weights(args)
    components = extract_reward_components(args, samples)[positions]  # [P, G, K]
    scores = combine_groups(components, weights)  # [P, G]
    if np.isinf(scores).any():
        p, member = np.argwhere(np.isinf(scores))[0]
        key = args.gdpo_reward_keys[dominating_component(components[p], np.array(weights), member)]
        raise ValueError(
            f"the combined reward of {place(samples, int(positions[p, member]))} is beyond float32: component {key!r} "
            "dominates; make its weight smaller"
        )
    return _scatter(scores, positions)


REWARD_NORMALIZERS: dict[str, Callable[[Namespace, Sequence[Sample], Sequence[float]], list[float]] | None] = {
    "none": None,
    "group_mean_std": normalize_by_mean_std,
    "group_mean": normalize_by_mean,
    "leave_one_out": leave_one_out,
    "component_groups": combine_components,
}


def group_carries_reward_signal(args: Namespace, samples: Sequence[Sample]) -> bool:
    """Whether the samples of one prompt group differ in what training sees.

    One reward: the smallest and the largest float32 reward differ; a reward that is not finite answers False.
    Components: the scores of the reward stage differ. Raises ValueError for rewards that the stage would refuse.
    """
    if get_algorithm(args.advantage_estimator).uses_reward_components:
        scores = combine_components(args, samples, ())
        return bool(scores) and min(scores) != max(scores)
    rewards = torch.tensor(read_rewards(args, samples), dtype=torch.float32)
    return bool(rewards.numel()) and bool(torch.isfinite(rewards).all()) and bool(rewards.min() != rewards.max())


def observe_reward_signal(args: Namespace, samples: Sequence[Sample]) -> bool | None:
    """``group_carries_reward_signal`` for those who only report: None, "cannot tell", where it would raise."""
    try:
        return group_carries_reward_signal(args, samples)
    except (ValueError, TypeError, KeyError):
        return None


def _by_group(
    args: Namespace,
    samples: Sequence[Sample],
    raw_rewards: Sequence[float],
    formula: Callable[[torch.Tensor], torch.Tensor] | None,
    *,
    weight: float | Fraction,
    epsilon: float | None,
) -> list[float]:
    """Scores by group: ``formula`` on float32 ``[P, G]``, or the exact statistic where asked for or all there is."""
    positions = group_positions(samples, args.n_samples_per_prompt)  # [P, G]
    if formula is None or args.exact_statistics:
        return _exactly(samples, raw_rewards, positions, weight, epsilon)
    scores = formula(torch.tensor(raw_rewards, dtype=torch.float32)[torch.from_numpy(positions)]).numpy()
    return _scatter(scores, positions)


@subnormals_kept()
def _exactly(
    samples: Sequence[Sample],
    raw_rewards: Sequence[float],
    positions: np.ndarray,
    weight: float | Fraction,
    epsilon: float | None,
) -> list[float]:
    values = np.array([finite_number(value, None, samples, i) for i, value in enumerate(raw_rewards)], dtype=np.float64)
    scores = standardize_groups(values[positions][..., None], [weight], epsilon)
    if np.isinf(scores).any():
        p, member = np.argwhere(np.isinf(scores))[0]
        raise ValueError(
            f"the score of {place(samples, int(positions[p, member]))} is beyond float32: scale the rewards down"
        )
    return _scatter(scores, positions)


def _scatter(scores: np.ndarray, positions: np.ndarray) -> list[float]:
    """Scores ``[P, G]`` back to the order of the samples, as Python floats."""
    flat = np.empty(scores.size, dtype=np.float32)
    flat[positions.ravel()] = scores.ravel()
    return flat.tolist()
