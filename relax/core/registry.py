"""Which roles an algorithm runs, and which of them a mode of running starts: derived from the algorithm registry.

Roles are named by import path, so that reading this table imports neither ray nor megatron.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relax.algorithms.spec import ALGORITHM_SPECS, AlgorithmSpec, get_algorithm

ROLLOUT = "rollout"
ACTOR = "actor"
CRITIC = "critic"
ADVANTAGES = "advantages"
REFERENCE = "reference"
ACTOR_FWD = "actor_fwd"
SFT = "sft"

# The loss that needs no reward and so no algorithm: the one thing here that the registry does not decide.
SFT_LOSS_TYPE = "sft_loss"

CLASS_OF_ROLE: Mapping[str, str] = {
    ROLLOUT: "relax.components.rollout:Rollout",
    ACTOR: "relax.components.actor:Actor",
    CRITIC: "relax.components.critic:Critic",
    ADVANTAGES: "relax.components.advantages:Advantages",
    REFERENCE: "relax.components.actor_fwd:ActorFwd",
    ACTOR_FWD: "relax.components.actor_fwd:ActorFwd",
    SFT: "relax.components.sft:SFT",
}

# Role sets: what a mode starts, in this order, as far as the algorithm's table holds it.
ROLES_COLOCATE = (ACTOR, CRITIC, ROLLOUT)
ROLES_FULLY_ASYNC = (ACTOR, CRITIC, ROLLOUT, ADVANTAGES, REFERENCE, ACTOR_FWD)
ROLES_TRUE_ON_POLICY = (ACTOR, CRITIC, ROLLOUT, ADVANTAGES, REFERENCE)
# Those of an algorithm with a critic are sets of their own, and the same.
ROLES_PPO_COLOCATE = ROLES_COLOCATE
ROLES_PPO_FULLY_ASYNC = ROLES_FULLY_ASYNC
ROLES_PPO_TRUE_ON_POLICY = ROLES_TRUE_ON_POLICY
ROLES_ROLLOUT_ONLY = (ROLLOUT,)
ROLES_ACTOR_ONLY = (ACTOR,)
ROLES_SFT = (SFT, ACTOR)


def role_table(spec: AlgorithmSpec) -> dict[str, str]:
    """Role to import path of its class, for every role that the algorithm can run in some mode."""
    roles = [ROLLOUT, ACTOR, ADVANTAGES, REFERENCE, ACTOR_FWD]
    if spec.needs_critic:
        roles.append(CRITIC)
    return {role: CLASS_OF_ROLE[role] for role in roles}


ALGOS: dict[str, dict[str, str]] = {name: role_table(spec) for name, spec in ALGORITHM_SPECS.items()}


def process_role(config: Any) -> dict[str, str]:
    """The roles that this run starts, in order: role to import path (``module:Class``).

    ``config`` has the attributes of the command line: ``advantage_estimator``, ``loss_type``, ``fully_async``,
    ``true_on_policy_mode``, ``debug_rollout_only`` and ``debug_train_only``. Hybrid runs start what colocated ones do.

    A debug mode starts its one role, of a supervised run too.

    Raises:
        ValueError: an unknown algorithm, or a mode none of whose roles this run has.
    """
    supervised = config.loss_type == SFT_LOSS_TYPE
    spec = None if supervised else get_algorithm(config.advantage_estimator)
    table = role_table(spec) if spec else {role: CLASS_OF_ROLE[role] for role in ROLES_SFT}
    role_set: tuple[str, ...]
    if config.debug_rollout_only:
        role_set = ROLES_ROLLOUT_ONLY
    elif config.debug_train_only:
        role_set = ROLES_ACTOR_ONLY
    elif spec is None:
        role_set = ROLES_SFT
    else:
        role_set = _role_set(spec, fully_async=config.fully_async, true_on_policy=config.true_on_policy_mode)
    roles = {role: table[role] for role in role_set if role in table}
    if not roles:
        raise ValueError(
            f"--debug-rollout-only (on) and --loss-type {config.loss_type}: supervised training has no rollout; "
            "drop one of the two"
        )
    return roles


def _role_set(spec: AlgorithmSpec, *, fully_async: bool, true_on_policy: bool) -> tuple[str, ...]:
    if not fully_async:
        return ROLES_PPO_COLOCATE if spec.needs_critic else ROLES_COLOCATE
    if true_on_policy:
        return ROLES_PPO_TRUE_ON_POLICY if spec.needs_critic else ROLES_TRUE_ON_POLICY
    return ROLES_PPO_FULLY_ASYNC if spec.needs_critic else ROLES_FULLY_ASYNC
