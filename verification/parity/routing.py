"""The old routing as data: what each of the seven baseline algorithms ran at each stage, and which roles it started.

Written down from the baseline's tables, in the registry's identifiers; nothing here is computed from the registry.
"""

from __future__ import annotations

from dataclasses import dataclass

from verification.frozen import roles as frozen_roles


@dataclass(frozen=True)
class OldRoute:
    """One row of the baseline's table of algorithms, with its token normalisation and its critic."""

    reward_normalizer: str
    advantage_fn: str
    policy_loss_fn: str
    kl_level: str = "token"
    needs_full_log_probs: bool = False
    needs_critic: bool = False
    requires_normalize_advantages: bool = False
    advantage_normalization: str = "whiten"


OLD_ROUTES: dict[str, OldRoute] = {
    "grpo": OldRoute("group_mean_std", "broadcast", "ppo_clip"),
    "gspo": OldRoute("group_mean_std", "broadcast", "ppo_clip", kl_level="sequence", needs_full_log_probs=True),
    "sapo": OldRoute("group_mean_std", "broadcast", "soft_gate"),
    "cispo": OldRoute("group_mean_std", "broadcast", "clipped_is"),
    "ppo": OldRoute("none", "gae", "ppo_clip", needs_critic=True),
    "reinforce_plus_plus": OldRoute(
        "none",
        "discounted_returns",
        "ppo_clip",
        requires_normalize_advantages=True,
        advantage_normalization="token_global",
    ),
    "reinforce_plus_plus_baseline": OldRoute(
        "group_mean",
        "masked_broadcast",
        "ppo_clip",
        requires_normalize_advantages=True,
        advantage_normalization="token_global",
    ),
}

OLD_ALGORITHMS = tuple(OLD_ROUTES)

# The roles that an algorithm's table held. The old table had no row for reinforce_plus_plus, though the parser took the
# name, so that such a run died at start-up: its row here is the one that it should have had.
OLD_ROLE_TABLES: dict[str, frozenset[str]] = {
    name: frozenset({"rollout", "actor", "advantages", "reference", "actor_fwd"} | ({"critic"} if critic else set()))
    for name, critic in ((name, route.needs_critic) for name, route in OLD_ROUTES.items())
}
MISSING_FROM_THE_OLD_TABLE = frozenset({"reinforce_plus_plus"})

# The roles that a mode starts, in order, as far as the algorithm's table holds them; PPO's own sets have these shapes.
OLD_ROLE_SETS: dict[str, tuple[str, ...]] = {
    "colocate": ("actor", "critic", "rollout"),
    "hybrid": ("actor", "critic", "rollout"),
    "fully_async": ("actor", "critic", "rollout", "advantages", "reference", "actor_fwd"),
    "fully_async, true_on_policy_mode": ("actor", "critic", "rollout", "advantages", "reference"),
    "debug_rollout_only": ("rollout",),
    "debug_train_only": ("actor",),
}
OLD_SFT_ROLES: tuple[str, ...] = ("sft", "actor")

OLD_ROLE_CLASSES: dict[str, str] = {
    "rollout": frozen_roles.ROLLOUT,
    "actor": frozen_roles.ACTOR,
    "critic": frozen_roles.CRITIC,
    "advantages": frozen_roles.ADVANTAGES,
    "reference": frozen_roles.ACTOR_FWD,
    "actor_fwd": frozen_roles.ACTOR_FWD,
    "sft": frozen_roles.SFT,
}


def old_roles(algorithm: str, mode: str) -> dict[str, str]:
    """The roles that ``algorithm`` started in ``mode`` (a key of ``OLD_ROLE_SETS``, or ``sft``), in order."""
    if mode == "sft":
        return {role: OLD_ROLE_CLASSES[role] for role in OLD_SFT_ROLES}
    return {role: OLD_ROLE_CLASSES[role] for role in OLD_ROLE_SETS[mode] if role in OLD_ROLE_TABLES[algorithm]}
