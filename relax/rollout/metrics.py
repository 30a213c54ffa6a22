"""Counts of prompt groups without a reward signal. Observes: a reward that cannot be read is counted, not raised."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

import numpy as np

from relax.algorithms.exact.sensitivity import within_input_rounding
from relax.algorithms.reward_inputs import component_weights, extract_reward_components
from relax.algorithms.rewards import observe_reward_signal
from relax.algorithms.spec import get_algorithm
from relax.types import Sample


def reward_metrics(args: Namespace, groups: Sequence[Sequence[Sample]]) -> dict[str, float]:
    """Counts over the prompt groups of a rollout.

    One reward: ``zero_std``. Components: ``gdpo/zero_std/<key>`` (the component is flat), ``gdpo/zero_std/combined``
    (the scores are), ``gdpo/groups_within_input_rounding`` (the scores differ by no more than the rounding of the
    inputs). ``unreadable_groups`` counts the groups about whose signal nothing can be told.
    """
    signals = [observe_reward_signal(args, group) for group in groups]
    unreadable = float(signals.count(None))
    if not get_algorithm(args.advantage_estimator).uses_reward_components:
        return {"zero_std": float(signals.count(False)), "unreadable_groups": unreadable}
    readable = [group for group, signal in zip(groups, signals, strict=True) if signal is not None]
    components = [extract_reward_components(args, group) for group in readable]  # P of [G, K]
    flat = np.array([group.min(axis=0) == group.max(axis=0) for group in components])  # [P, K]
    metrics = {
        f"gdpo/zero_std/{key}": float(flat[:, k].sum()) if components else 0.0
        for k, key in enumerate(args.gdpo_reward_keys)
    }
    weights = component_weights(args)
    metrics["gdpo/zero_std/combined"] = float(signals.count(False))
    metrics["gdpo/groups_within_input_rounding"] = float(
        sum(within_input_rounding(group, weights) for group in components)
    )
    metrics["unreadable_groups"] = unreadable
    return metrics
