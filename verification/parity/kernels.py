"""Where the kernels of both dispatchers are, under one name each, and how their arguments read in one vocabulary.

An *entry* is a line of a live table (``POLICY_LOSS_FNS/soft_gate``); a *formula* is the function that computes. The
live side is recorded at both: an entry bound to another formula than before shows, and so does an argument that an
entry passes on wrongly. A frozen kernel stands for an entry and a formula at once: the name map is ``FROZEN_KERNELS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Kernel:
    """One callable that is recorded: ``place`` is ``module:attribute`` or ``module:TABLE[key]``.

    ``entry`` names the line of the live table that it is or stands for, empty where there is no table. ``formula``
    names what computes; None for a table entry that only hands arguments on to a formula. ``rename`` maps parameter
    names to the common ones; ``read`` then makes the common arguments out of them, with masks as numbers.
    """

    place: str
    entry: str
    formula: str | None
    rename: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[Arguments], Arguments] = dict


def masks_as_numbers(arguments: Arguments) -> Arguments:
    """Masks of integers or booleans as the float32 0 and 1 that they count as, and none beside a KL as ones.

    One side makes them so before it calls a formula, the other hands them on: no result may show it.
    """
    read = dict(arguments)
    for name in ("loss_masks", "full_loss_masks"):
        masks = arguments.get(name)
        if masks is not None:
            read[name] = [mask if mask.is_floating_point() else mask.to(torch.float32) for mask in masks]
    if read.get("kl") is not None and "loss_masks" in read and read["loss_masks"] is None:
        read["loss_masks"] = [torch.ones_like(tokens) for tokens in read["kl"]]
    return read


def _float32_rewards(arguments: Arguments) -> Arguments:
    """Rewards as the float32 vector that enters the formula: one side hands over a tensor, the other a list."""
    rewards = torch.as_tensor(arguments["rewards"], dtype=torch.float32)
    kept = {name: value for name, value in arguments.items() if name != "context_parallel_rank"}
    return {**kept, "rewards": rewards}


def _ranks(arguments: Arguments) -> Arguments:
    """The process group or collective as the number of its ranks."""
    group = arguments.get("process_group", arguments.get("collective"))
    kept = {name: value for name, value in arguments.items() if name not in ("process_group", "collective")}
    return {**kept, "ranks": 1 if group is None else group.size}


def _full_masks(arguments: Arguments) -> Arguments:
    """Without full masks the masks are full."""
    full = arguments["full_loss_masks"]
    return {**arguments, "full_loss_masks": arguments["loss_masks"] if full is None else full}


def _group_scores(*, std: bool) -> Callable[[Arguments], Arguments]:
    """What a live normalizer reads of the command line and the samples."""

    def read(arguments: Arguments) -> Arguments:
        args, samples = arguments["args"], arguments["samples"]
        found = {
            "raw_rewards": list(arguments["raw_rewards"]),
            "group_indices": [sample.group_index for sample in samples],
            "n_samples_per_prompt": args.n_samples_per_prompt,
        }
        return {**found, "std_normalization": args.grpo_std_normalization} if std else found

    return read


_OLD_AND_ROLLOUT = {"old_log_probs": "old", "rollout_log_probs": "rollout"}
_FROZEN = "verification.frozen"
_REWARDS = "relax.algorithms.rewards:REWARD_NORMALIZERS"
_ADVANTAGES = "relax.algorithms.advantages"
_POLICY = "relax.algorithms.policy"

FROZEN_KERNELS: tuple[Kernel, ...] = (
    Kernel(f"{_FROZEN}.reward:group_mean_std", "REWARD_NORMALIZERS/group_mean_std", "group_mean_std"),
    Kernel(f"{_FROZEN}.reward:group_mean", "REWARD_NORMALIZERS/group_mean", "group_mean"),
    Kernel(f"{_FROZEN}.kl:approx_kl", "", "approx_kl"),
    Kernel(f"{_FROZEN}.advantages:broadcast", "ADVANTAGE_FNS/broadcast", "broadcast", read=_float32_rewards),
    Kernel(
        f"{_FROZEN}.advantages:masked_broadcast",
        "ADVANTAGE_FNS/masked_broadcast",
        "masked_broadcast",
        read=_float32_rewards,
    ),
    Kernel(
        f"{_FROZEN}.advantages:discounted_returns",
        "ADVANTAGE_FNS/discounted_returns",
        "discounted_returns",
        read=_float32_rewards,
    ),
    Kernel(f"{_FROZEN}.gae:gae", "ADVANTAGE_FNS/gae", "gae", read=_float32_rewards),
    Kernel(f"{_FROZEN}.token_normalization:whiten", "TOKEN_NORMALIZATIONS/whiten", "whiten", read=_ranks),
    Kernel(
        f"{_FROZEN}.token_normalization:token_global", "TOKEN_NORMALIZATIONS/token_global", "token_global", read=_ranks
    ),
    Kernel(f"{_FROZEN}.policy:sequence_kl", "", "sequence_level_kl"),
    Kernel(f"{_FROZEN}.policy:ppo_clip", "POLICY_LOSS_FNS/ppo_clip", "ppo_clip"),
    Kernel(f"{_FROZEN}.policy:sapo", "POLICY_LOSS_FNS/soft_gate", "soft_gate"),
    Kernel(f"{_FROZEN}.policy:cispo", "POLICY_LOSS_FNS/clipped_is", "clipped_is"),
    Kernel(f"{_FROZEN}.policy:opsm_mask", "", "opsm_mask"),
    Kernel(f"{_FROZEN}.policy:tis_weights", "OFF_POLICY_WEIGHTS/truncate", "truncate"),
    Kernel(f"{_FROZEN}.policy:icepop_weights", "OFF_POLICY_WEIGHTS/icepop", "icepop"),
    Kernel(f"{_FROZEN}.reducers:sample_mean", "", "sample_mean", read=_full_masks),
    Kernel(f"{_FROZEN}.reducers:token_sum", "", "token_sum"),
)

LIVE_KERNELS: tuple[Kernel, ...] = (
    Kernel(
        f"{_REWARDS}[group_mean_std]",
        "REWARD_NORMALIZERS/group_mean_std",
        "group_mean_std",
        read=_group_scores(std=True),
    ),
    Kernel(f"{_REWARDS}[group_mean]", "REWARD_NORMALIZERS/group_mean", "group_mean", read=_group_scores(std=False)),
    Kernel(f"{_REWARDS}[leave_one_out]", "REWARD_NORMALIZERS/leave_one_out", None),
    Kernel(f"{_REWARDS}[component_groups]", "REWARD_NORMALIZERS/component_groups", None),
    Kernel("relax.algorithms.formulas.kl:approx_kl", "", "approx_kl"),
    *(
        Kernel(f"{_ADVANTAGES}:ADVANTAGE_FNS[{name}]", f"ADVANTAGE_FNS/{name}", None)
        for name in ("broadcast", "masked_broadcast", "discounted_returns", "gae", "whitened_broadcast")
    ),
    *(
        Kernel(f"{_ADVANTAGES}:{name}", "", name, read=_float32_rewards)
        for name in ("broadcast", "masked_broadcast", "discounted_returns", "gae")
    ),
    *(
        Kernel(f"{_ADVANTAGES}:TOKEN_NORMALIZATIONS[{name}]", f"TOKEN_NORMALIZATIONS/{name}", name, read=_ranks)
        for name in ("whiten", "token_global")
    ),
    Kernel(f"{_POLICY}:sequence_level_kl", "", "sequence_level_kl"),
    *(
        Kernel(f"{_POLICY}:POLICY_LOSS_FNS[{name}]", f"POLICY_LOSS_FNS/{name}", None)
        for name in ("ppo_clip", "soft_gate", "clipped_is", "reinforce")
    ),
    *(Kernel(f"{_POLICY}:{name}", "", name) for name in ("ppo_clip", "soft_gate", "clipped_is", "reinforce")),
    Kernel(f"{_POLICY}:opsm_mask", "", "opsm_mask"),
    *(
        Kernel(f"{_POLICY}:OFF_POLICY_WEIGHTS[{name}]", f"OFF_POLICY_WEIGHTS/{name}", name, _OLD_AND_ROLLOUT)
        for name in ("truncate", "icepop")
    ),
    Kernel("relax.algorithms.formulas.reducers:sample_mean", "", "sample_mean", read=_full_masks),
    Kernel("relax.algorithms.formulas.reducers:token_sum", "", "token_sum"),
)

# The live tables whose every line must be reached by a test, as ``module:TABLE``.
LIVE_TABLES = (
    _REWARDS,
    f"{_ADVANTAGES}:ADVANTAGE_FNS",
    f"{_ADVANTAGES}:TOKEN_NORMALIZATIONS",
    f"{_POLICY}:POLICY_LOSS_FNS",
    f"{_POLICY}:OFF_POLICY_WEIGHTS",
)
