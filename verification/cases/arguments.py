"""The command line's attributes and their defaults, written down as data so that every subject gets the same."""

from __future__ import annotations

import argparse
from typing import Any

DEFAULTS: dict[str, Any] = {
    "reward_key": None,
    "custom_rm_path": None,
    "custom_reward_post_process_path": None,
    "agentic_custom_advantage_path": None,
    "dynamic_sampling_filter_path": None,
    "gdpo_reward_keys": None,
    "gdpo_reward_weights": None,
    "n_samples_per_prompt": 8,
    "rollout_batch_size": 32,
    "global_batch_size": None,
    "num_rollout": 1,
    "rewards_normalization": True,
    "grpo_std_normalization": True,
    "exact_statistics": False,
    "normalize_advantages": False,
    "kl_coef": 0.0,
    "kl_loss_type": "k1",
    "use_kl_loss": False,
    "kl_loss_coef": 0.0,
    "gamma": 1.0,
    "lambd": 1.0,
    "eps_clip": 0.2,
    "eps_clip_high": 0.2,
    "eps_clip_c": None,
    "sapo_tau_pos": 1.0,
    "sapo_tau_neg": 1.05,
    "use_opsm": False,
    "opsm_delta": 1e-4,
    "use_tis": False,
    "tis_mode": "truncate",
    "tis_clip": 2.0,
    "tis_clip_low": 0.0,
    "calculate_per_token_loss": False,
    "colocate": True,
    "hybrid": False,
    "fully_async": False,
    "max_staleness": 0,
    "num_iters_per_train_update": 1,
    "true_on_policy_mode": False,
    "loss_type": "policy_loss",
    "debug_rollout_only": False,
    "debug_train_only": False,
    "qkv_format": "thd",
    "tensor_model_parallel_size": 1,
    "pipeline_model_parallel_size": 1,
    "context_parallel_size": 1,
    "save": None,
    "load": None,
    "seed": 1234,
}


def namespace(algorithm: str, **options: Any) -> argparse.Namespace:
    """The defaults with ``advantage_estimator`` set and ``options`` laid over them; an unknown option is an error."""
    unknown = set(options) - set(DEFAULTS)
    if unknown:
        raise ValueError(f"no such command-line attribute: {', '.join(sorted(unknown))}")
    return argparse.Namespace(advantage_estimator=algorithm, **{**DEFAULTS, **options})
