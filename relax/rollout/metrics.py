"""Counts of prompt groups without a reward signal. Observes: a reward that cannot be read is counted, not raised."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

import numpy as np

from relax.algorithms.exact.gdpo import combine_groups
from relax.algorithms.exact.sensitivity import within_input_rounding
from relax.algorithms.reward_inputs import component_weights, extract_reward_components, group_positions
from relax.algorithms.rewards import observe_reward_signal
from relax.algorithms.spec import get_algorithm
from relax.types import Sample

SIGNAL, FLAT, UNREADABLE = "signal", "flat", "unreadable"


def reward_metrics(args: Namespace, groups: Sequence[Sequence[Sample]]) -> dict[str, float]:
    """Counts over the prompt groups of a rollout.

    One reward: ``zero_std``. Components: ``gdpo/zero_std/<key>`` (the component is flat), ``gdpo/zero_std/combined``
    (the scores are), ``gdpo/groups_within_input_rounding`` (the scores differ by no more than the rounding of the
    inputs). ``unreadable_groups`` counts the groups about whose signal nothing can be told.
    """
    if get_algorithm(args.advantage_estimator).uses_reward_components:
        return _component_metrics(args, groups)
    labels = [group_label(args, group) for group in groups]
    return {"zero_std": float(labels.count(FLAT)), "unreadable_groups": float(labels.count(UNREADABLE))}


def group_label(args: Namespace, samples: Sequence[Sample]) -> str:
    """What a prompt group is to training: it has a ``signal``, is ``flat``, or ``unreadable``: nothing can be told."""
    return {True: SIGNAL, False: FLAT, None: UNREADABLE}[observe_reward_signal(args, samples)]


def _component_metrics(args: Namespace, groups: Sequence[Sequence[Sample]]) -> dict[str, float]:
    readable = [components for group in groups if (components := _readable(args, group)) is not None]  # P of [G, K]
    metrics = {f"gdpo/zero_std/{key}": 0.0 for key in args.gdpo_reward_keys or ()}
    metrics |= {"gdpo/zero_std/combined": 0.0, "gdpo/groups_within_input_rounding": 0.0}
    metrics["unreadable_groups"] = float(len(groups) - len(readable))
    if not readable:
        return metrics
    components, weights = np.stack(readable), component_weights(args)  # [P, G, K]
    scores = combine_groups(components, weights)  # [P, G]
    flat = components.min(axis=1) == components.max(axis=1)  # [P, K]
    for k, key in enumerate(args.gdpo_reward_keys):
        metrics[f"gdpo/zero_std/{key}"] = float(flat[:, k].sum())
    metrics["gdpo/zero_std/combined"] = float((scores.min(axis=1) == scores.max(axis=1)).sum())
    metrics["gdpo/groups_within_input_rounding"] = float(
        sum(within_input_rounding(*group, weights) for group in zip(components, scores, strict=True))
    )
    return metrics


def _readable(args: Namespace, group: Sequence[Sample]) -> np.ndarray | None:
    """The components ``[G, K]`` of one whole prompt group; None where the reward stage would refuse it."""
    try:
        component_weights(args)
        if len(group_positions(group, args.n_samples_per_prompt)) != 1:
            return None
        return extract_reward_components(args, group)
    except (ValueError, TypeError):
        return None
