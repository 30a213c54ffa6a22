"""Dynamic sampling: which prompt groups enter training."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from relax.algorithms.rewards import group_carries_reward_signal
from relax.types import Sample


def keep_groups_with_signal(args: Namespace, samples: Sequence[Sample]) -> bool:
    """Whether one prompt group is kept: its samples differ in what training sees (DAPO, arXiv 2503.14476, section 3.2).

    The decision is the reward stage's own, so that the filter never drops what training would have learned from: a
    group whose correctness is flat and whose format varies is kept where both are reward components.
    """
    return group_carries_reward_signal(args, samples)
