"""Defects planted in the live calls, in this process: what a wrong change of each kind would make of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from relax.algorithms import policy
from relax.algorithms.formulas import group, reinforce
from verification.diff.run import run_diff
from verification.revisions.source import Source
from verification.subjects.in_process import Implementation
from verification.subjects.live import live_subject
from verification.subjects.protocol import Subject

LIVE = live_subject()
CALLS = vars(LIVE.calls)
Change = Callable[..., Any]


def planted(call: str, change: Change) -> Implementation:
    """The live calls with one of them replaced: ``change`` is given the live call and then its arguments."""

    def changed(*positional: Any, **keywords: Any) -> Any:
        return change(CALLS[call], *positional, **keywords)

    return Implementation("planted", SimpleNamespace(**{**CALLS, call: changed}))


def source(name: str) -> Source:
    """A source for what runs in this process."""
    return Source(name, "checkout", None, name.ljust(40, "0"), Path("."), dirty=False)


def compared(subject: Subject, cases, **options: Any):
    """The live calls as A, ``subject`` as B."""
    return run_diff((source("a"), LIVE), (source("b"), subject), cases, **options)


def _patched(target: Any, name: str, value: Any) -> Change:
    def change(live, *positional, **keywords):
        with mock.patch.object(target, name, value):
            return live(*positional, **keywords)

    return change


def _population_std(rows: torch.Tensor) -> torch.Tensor:
    return rows.std(dim=1, unbiased=False)


def _first_unmasked(mask: torch.Tensor, position: int) -> int | None:
    return int(torch.nonzero(mask)[0]) if mask.numel() else None


def _other_clip(args, **keywords):
    return _ppo_clip(SimpleNamespace(**{**vars(args), "eps_clip_high": args.eps_clip_high + 0.1}), **keywords)


_ppo_clip = policy.POLICY_LOSS_FNS["ppo_clip"]


def _without_masks(live, args, *, loss_masks, **keywords):
    return live(args, loss_masks=None, **keywords)


def _summed_backwards(live, args, *, values, loss_masks, **keywords):
    flipped = [[torch.flip(tokens, [0]) for tokens in listed] for listed in (values, loss_masks)]
    return live(args, values=flipped[0], loss_masks=flipped[1], **keywords)


def _negated(live, *positional, **keywords):
    return [-tokens for tokens in live(*positional, **keywords)]


def _swallowed(live, args, *, kl, **keywords):
    try:
        return live(args, kl=kl, **keywords)
    except ValueError:
        return [torch.zeros_like(tokens) for tokens in kl], [torch.zeros_like(tokens) for tokens in kl]


def _other_type(live, *positional, **keywords):
    try:
        return live(*positional, **keywords)
    except ValueError as error:
        raise TypeError(str(error)) from error


def _copied(live, *positional, **keywords):
    advantages, returns = live(*positional, **keywords)
    return advantages, [tokens.clone() for tokens in returns]


def _equal_weights(live, args, samples):
    weights = args.gdpo_reward_weights and [1.0] * len(args.gdpo_reward_weights)
    return live(SimpleNamespace(**{**vars(args), "gdpo_reward_weights": weights}), samples)


def _written_over(live, args, *, advantages, **keywords):
    normalized = live(args, advantages=advantages, **keywords)
    advantages[0].zero_()
    return normalized


def _in_float64(live, *positional, **keywords):
    return [tokens.double() for tokens in live(*positional, **keywords)]


def _higher_entropy(live, *positional, **keywords):
    log_probs, entropy = live(*positional, **keywords)
    return log_probs, [tokens + 2**-10 for tokens in entropy]


def _second_counts_twice(live, args, *, rewards, mini_batch_sizes, **keywords):
    doubled = [2 * reward if place == 1 else reward for place, reward in enumerate(rewards)]
    return live(args, rewards=doubled, mini_batch_sizes=mini_batch_sizes, **keywords)


def _no_kl_loss(live, argv):
    parsed = live(argv)
    parsed.use_kl_loss = False
    return parsed


def _no_critic(live, config):
    return {name: role for name, role in dict(live(config)).items() if name != "critic"}


EPSILON = planted("post_process_rewards", _patched(group, "EPSILON", 2e-6))
POPULATION = planted("post_process_rewards", _patched(group, "_row_std", _population_std))
CLIP = planted(
    "policy_objective", _patched(policy, "POLICY_LOSS_FNS", {**policy.POLICY_LOSS_FNS, "ppo_clip": _other_clip})
)
MASK = planted("reduce_loss", _without_masks)
ORDER = planted("reduce_loss", _summed_backwards)
SIGN = planted("kl_per_response", _negated)
FIRST_TOKEN = planted("compute_advantages_and_returns", _patched(reinforce, "_last_unmasked", _first_unmasked))
SWALLOWED = planted("compute_advantages_and_returns", _swallowed)
OTHER_TYPE = planted("post_process_rewards", _other_type)
ALIASES = planted("compute_advantages_and_returns", _copied)
WEIGHTS = planted("post_process_rewards", _equal_weights)
WRITTEN_OVER = planted("normalize_advantages", _written_over)
DTYPE = planted("kl_per_response", _in_float64)
ENTROPY = planted("log_probs_and_entropy", _higher_entropy)
SECOND = planted("compute_advantages_and_returns", _second_counts_twice)
KL_LOSS = planted("parse_args", _no_kl_loss)
ROLES = planted("process_role", _no_critic)
