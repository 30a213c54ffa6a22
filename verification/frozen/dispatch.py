"""Frozen dispatcher: which kernel each of the seven baseline algorithms runs at each stage, as if/elif chains.

The calls and their signatures are those of the live code. An algorithm or a switch that the baseline did not have is
a NotImplementedError.
"""

from __future__ import annotations

from typing import Any

import torch

from verification.frozen import advantages as advantage_kernels
from verification.frozen import gae as gae_kernels
from verification.frozen import kl as kl_kernels
from verification.frozen import policy as policy_kernels
from verification.frozen import reducers as reducer_kernels
from verification.frozen import reward as reward_kernels
from verification.frozen import roles as role_kernels
from verification.frozen import token_normalization as normalization_kernels

ALGORITHMS = ("grpo", "gspo", "sapo", "cispo", "ppo", "reinforce_plus_plus", "reinforce_plus_plus_baseline")


def refuse_unknown(args: Any) -> None:
    """NotImplementedError for an algorithm that the baseline did not have."""
    if args.advantage_estimator not in ALGORITHMS:
        raise NotImplementedError(f"the baseline has no algorithm {args.advantage_estimator!r}")


def masks_or_ones(loss_masks: list[torch.Tensor] | None, like: list[torch.Tensor]) -> list[torch.Tensor]:
    """The masks as given; without any, every token counts."""
    if loss_masks is None:
        loss_masks = []
        for tensor in like:
            loss_masks.append(torch.ones_like(tensor))
    return loss_masks


def refuse_exact_statistics(args: Any) -> None:
    """NotImplementedError where correctly rounded statistics are asked for: the baseline did not have them."""
    if getattr(args, "exact_statistics", False):
        raise NotImplementedError("the baseline has no exact statistics")


def refuse_context_parallel(args: Any) -> None:
    """NotImplementedError where responses are cut over ranks: gathering them is the Megatron side's part."""
    if getattr(args, "context_parallel_size", 1) > 1:
        raise NotImplementedError("no context parallelism: the frozen copies take whole responses, gathered first")


def post_process_rewards(args: Any, samples: list[Any]) -> Any:
    """``(raw_rewards, rewards)``, one float a sample; a hook's result as it is."""
    refuse_unknown(args)
    if args.custom_reward_post_process_path:
        return reward_kernels.call_hook(args.custom_reward_post_process_path, args, samples)
    raw_rewards = reward_kernels.read_raw_rewards(samples, args.reward_key)
    if args.agentic_custom_advantage_path:
        return raw_rewards, reward_kernels.read_custom_advantages(samples)
    if not args.rewards_normalization:
        return raw_rewards, raw_rewards
    name = args.advantage_estimator
    if name == "grpo" or name == "gspo" or name == "sapo" or name == "cispo":
        refuse_exact_statistics(args)
        group_indices = [sample.group_index for sample in samples]
        rewards = reward_kernels.group_mean_std(
            raw_rewards, group_indices, args.n_samples_per_prompt, args.grpo_std_normalization
        )
        return raw_rewards, rewards
    elif name == "reinforce_plus_plus_baseline":
        refuse_exact_statistics(args)
        group_indices = [sample.group_index for sample in samples]
        rewards = reward_kernels.group_mean(raw_rewards, group_indices, args.n_samples_per_prompt)
        return raw_rewards, rewards
    elif name == "ppo" or name == "reinforce_plus_plus":
        return raw_rewards, raw_rewards
    raise NotImplementedError(name)


def group_carries_reward_signal(args: Any, samples: list[Any]) -> bool:
    """Whether the rewards of one group differ."""
    refuse_unknown(args)
    return reward_kernels.rewards_differ(reward_kernels.read_raw_rewards(samples, args.reward_key))


def kl_per_response(
    args: Any,
    *,
    log_probs: list[torch.Tensor] | None,
    ref_log_probs: Any,
    values: Any,
    importance_ratios: list[torch.Tensor] | None = None,
) -> list[torch.Tensor]:
    """The KL estimate of each response, ``[R_i]``; zeros where there is no coefficient or no log-prob."""
    refuse_unknown(args)
    if args.kl_coef == 0 or not log_probs:
        if log_probs:
            return kl_kernels.zero_kl(log_probs)
        return kl_kernels.zero_kl(values)
    return kl_kernels.kl_of_responses(log_probs, ref_log_probs, args.kl_loss_type, importance_ratios)


def compute_advantages_and_returns(
    args: Any,
    *,
    rewards: list[float],
    kl: list[torch.Tensor],
    loss_masks: list[torch.Tensor] | None = None,
    response_lengths: Any = None,
    total_lengths: list[int] | None = None,
    values: Any = None,
    padded_total_lengths: list[int] | None = None,
    process_group: Any = None,
    mini_batch_sizes: list[int] | None = None,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """``(advantages, returns)``, two lists of ``[R_i]``."""
    refuse_unknown(args)
    rewards_as_float32 = torch.tensor(rewards, dtype=torch.float32)  # [n]
    loss_masks = masks_or_ones(loss_masks, kl)
    name = args.advantage_estimator
    if name == "grpo" or name == "gspo" or name == "sapo" or name == "cispo":
        return advantage_kernels.broadcast(rewards_as_float32, kl)
    elif name == "ppo":
        refuse_context_parallel(args)
        return gae_kernels.gae(rewards_as_float32, kl, values, response_lengths, args.kl_coef, args.gamma, args.lambd)
    elif name == "reinforce_plus_plus":
        refuse_context_parallel(args)
        return advantage_kernels.discounted_returns(rewards_as_float32, kl, loss_masks, args.kl_coef, args.gamma)
    elif name == "reinforce_plus_plus_baseline":
        return advantage_kernels.masked_broadcast(rewards_as_float32, kl, loss_masks)
    raise NotImplementedError(name)


def normalize_advantages(
    args: Any,
    *,
    advantages: list[torch.Tensor],
    loss_masks: list[torch.Tensor] | None,
    process_group: Any = None,
) -> list[torch.Tensor]:
    """The advantages normalised over tokens; the list as it was given unless ``args.normalize_advantages``."""
    refuse_unknown(args)
    if not args.normalize_advantages:
        return advantages
    loss_masks = masks_or_ones(loss_masks, advantages)
    name = args.advantage_estimator
    if name == "grpo" or name == "gspo" or name == "sapo" or name == "cispo" or name == "ppo":
        return normalization_kernels.whiten(advantages, loss_masks, process_group)
    elif name == "reinforce_plus_plus" or name == "reinforce_plus_plus_baseline":
        return normalization_kernels.token_global(advantages, loss_masks, process_group)
    raise NotImplementedError(name)


def compute_policy_loss_for(
    args: Any, *, log_probs: torch.Tensor, ppo_kl: torch.Tensor, advantages: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """``(loss, clipfrac)``, both ``[T]``, not reduced."""
    refuse_unknown(args)
    name = args.advantage_estimator
    if (
        name == "grpo"
        or name == "gspo"
        or name == "ppo"
        or name == "reinforce_plus_plus"
        or name == "reinforce_plus_plus_baseline"
    ):
        return policy_kernels.ppo_clip(ppo_kl, advantages, args.eps_clip, args.eps_clip_high, args.eps_clip_c)
    elif name == "sapo":
        return policy_kernels.sapo(ppo_kl, advantages, args.sapo_tau_pos, args.sapo_tau_neg)
    elif name == "cispo":
        return policy_kernels.cispo(ppo_kl, log_probs, advantages, args.eps_clip, args.eps_clip_high)
    raise NotImplementedError(name)


def policy_objective(
    args: Any,
    *,
    old_log_probs: list[torch.Tensor],
    log_probs: list[torch.Tensor],
    advantages: list[torch.Tensor],
    loss_masks: list[torch.Tensor] | None,
    rollout_log_probs: list[torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``(loss, clipfrac, ppo_kl)``, each ``[T]``: objective, then off-policy sequence mask, then importance weights."""
    refuse_unknown(args)
    loss_masks = masks_or_ones(loss_masks, log_probs)
    if args.advantage_estimator == "gspo":
        refuse_context_parallel(args)
        ppo_kl = policy_kernels.sequence_kl(old_log_probs, log_probs, loss_masks)
    else:
        ppo_kl = policy_kernels.token_kl(old_log_probs, log_probs)
    loss, clipfrac = compute_policy_loss_for(
        args, log_probs=torch.cat(log_probs), ppo_kl=ppo_kl, advantages=torch.cat(advantages)
    )
    if args.use_opsm:
        refuse_context_parallel(args)
        loss = loss * policy_kernels.opsm_mask(old_log_probs, log_probs, advantages, loss_masks, args.opsm_delta)
    if args.use_tis:
        if rollout_log_probs is None:
            raise ValueError("use_tis is set, but there are no rollout_log_probs to correct for")
        old = torch.cat(old_log_probs)
        rollout = torch.cat(rollout_log_probs)
        if args.tis_mode == "truncate":
            loss = loss * policy_kernels.tis_weights(old, rollout, args.tis_clip_low, args.tis_clip)
        elif args.tis_mode == "icepop":
            loss = loss * policy_kernels.icepop_weights(old, rollout, args.tis_clip_low, args.tis_clip)
        else:
            raise ValueError(f"tis_mode {args.tis_mode!r} is not one of truncate, icepop")
    return loss, clipfrac, ppo_kl


def reduce_loss(
    args: Any,
    *,
    values: list[torch.Tensor],
    loss_masks: list[torch.Tensor] | None,
    full_loss_masks: list[torch.Tensor] | None = None,
) -> torch.Tensor:
    """The loss as one number, ``[]``."""
    refuse_unknown(args)
    loss_masks = masks_or_ones(loss_masks, values)
    if args.calculate_per_token_loss:
        return reducer_kernels.token_sum(values, loss_masks)
    return reducer_kernels.sample_mean(values, loss_masks, full_loss_masks)


def process_role(config: Any) -> dict[str, str]:
    """The roles that the run starts, in order: role to import path of its class."""
    if config.loss_type == "sft_loss":
        table = role_kernels.TABLE_SFT
        role_set = role_kernels.ROLES_SFT
    else:
        refuse_unknown(config)
        if config.advantage_estimator == "ppo":
            table = role_kernels.TABLE_WITH_CRITIC
            colocate = role_kernels.PPO_ROLES_COLOCATE
            fully_async = role_kernels.PPO_ROLES_FULLY_ASYNC
            true_on_policy = role_kernels.PPO_ROLES_TRUE_ON_POLICY
        else:
            table = role_kernels.TABLE_WITHOUT_CRITIC
            colocate = role_kernels.ROLES_COLOCATE
            fully_async = role_kernels.ROLES_FULLY_ASYNC
            true_on_policy = role_kernels.ROLES_TRUE_ON_POLICY
        if config.fully_async and config.true_on_policy_mode:
            role_set = true_on_policy
        elif config.fully_async:
            role_set = fully_async
        else:
            role_set = colocate
    if config.debug_rollout_only:
        role_set = role_kernels.ROLES_ROLLOUT_ONLY
    elif config.debug_train_only:
        role_set = role_kernels.ROLES_TRAIN_ONLY
    return role_kernels.started_roles(role_set, table)
