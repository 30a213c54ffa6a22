"""Rows as the roles before the advantages leave them, for the tests of the advantages role."""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Sequence

import torch

from relax.core.rows import rollout_keys
from tests.runtime.in_process import tiny
from tests.runtime.local_queue import LocalQueue

TOKENS = ("log_probs", "ref_log_probs", "rollout_log_probs", "values")
COLUMNS = ("rewards", "response_lengths", "total_lengths", "loss_masks", *TOKENS)
WRITTEN = ("kl", "advantages", "returns")
BATCH = 8


def filled(args: Namespace, rollouts: int = 2) -> LocalQueue:
    """Rows as the roles before this one leave them, with responses of many lengths."""
    numbers, queue = random.Random(4), LocalQueue()
    for rollout in range(rollouts):
        keys = rollout_keys(args, rollout)
        lengths = [numbers.randrange(1, 7) for _ in keys]
        tokens = {
            name: [torch.tensor([numbers.uniform(-2, -0.1) for _ in range(length)]) for length in lengths]
            for name in TOKENS
        }
        rewards = [numbers.choice([0.0, 0.25, 1.0]) + numbers.random() / 7 for _ in keys]
        masks = [torch.ones(length) for length in lengths]
        totals = [length + 3 for length in lengths]
        plain = {"rewards": rewards, "response_lengths": lengths, "total_lengths": totals, "loss_masks": masks}
        queue.put(keys, {**plain, **tokens})
    return queue


def bits_of(queue: LocalQueue, keys: Sequence[str]) -> list[dict[str, bytes]]:
    """What was written into rows."""
    return [{name: queue.rows[key][name] for name in WRITTEN} for key in keys]


def options(algorithm: str, *more: str) -> Namespace:
    """A fully asynchronous run in which eight responses are an optimizer batch, and the reference is needed."""
    kl = ["--kl-coef", "0.01"] if algorithm == "ppo" else ["--use-kl-loss", "--kl-loss-coef", "0.01"]
    return tiny(algorithm, "--fully-async", *kl, *more)
