"""From rollout samples to the rewards that enter training."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from relax.algorithms.reward_inputs import real_numbers
from relax.algorithms.rewards import REWARD_NORMALIZERS, read_rewards
from relax.algorithms.spec import get_algorithm
from relax.rollout.own_functions import blamed, load_function
from relax.types import Sample


def post_process_rewards(args: Namespace, samples: Sequence[Sample]) -> tuple[list[float], list[float]]:
    """Raw rewards and the rewards that training sees, one float a sample each.

    In this order: the function of ``--custom-reward-post-process-path`` answers alone; with
    ``--agentic-custom-advantage-path`` each sample's ``custom_advantage`` is its reward; an algorithm that normalizes
    by group does so while ``rewards_normalization`` is on; else the raw rewards are given twice. Raises TypeError or
    ValueError naming the sample for a reward that is no real number, and for what the algorithm's reward stage refuses.
    """
    if args.custom_reward_post_process_path is not None:
        with blamed("--custom-reward-post-process-path", args.custom_reward_post_process_path):
            return load_function(args.custom_reward_post_process_path)(args, samples)
    with blamed("--custom-rm-path", args.custom_rm_path, "given"):
        raw_rewards = read_rewards(args, samples)
    if args.agentic_custom_advantage_path is not None:
        advantages = [sample.custom_advantage for sample in samples]
        with blamed("--agentic-custom-advantage-path", args.agentic_custom_advantage_path, "given"):
            return raw_rewards, real_numbers(samples, advantages, "custom_advantage")
    normalize = REWARD_NORMALIZERS[get_algorithm(args.advantage_estimator).reward_normalizer]
    if normalize is not None and args.rewards_normalization:
        with blamed("--custom-rm-path", args.custom_rm_path, "given"):
            return raw_rewards, normalize(args, samples, raw_rewards)
    return raw_rewards, raw_rewards
