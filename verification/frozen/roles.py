"""Frozen roles: the role sets, each algorithm's table, and which roles a run starts (baseline section 7)."""

from __future__ import annotations

ROLES_COLOCATE = ["actor", "critic", "rollout"]
ROLES_FULLY_ASYNC = ["actor", "critic", "rollout", "advantages", "reference", "actor_fwd"]
ROLES_TRUE_ON_POLICY = ["actor", "critic", "rollout", "advantages", "reference"]
PPO_ROLES_COLOCATE = ["actor", "critic", "rollout"]
PPO_ROLES_FULLY_ASYNC = ["actor", "critic", "rollout", "advantages", "reference", "actor_fwd"]
PPO_ROLES_TRUE_ON_POLICY = ["actor", "critic", "rollout", "advantages", "reference"]
ROLES_ROLLOUT_ONLY = ["rollout"]
ROLES_TRAIN_ONLY = ["actor"]
ROLES_SFT = ["sft", "actor"]

ROLLOUT = "relax.components.rollout:Rollout"
ACTOR = "relax.components.actor:Actor"
CRITIC = "relax.components.critic:Critic"
ADVANTAGES = "relax.components.advantages:Advantages"
ACTOR_FWD = "relax.components.actor_fwd:ActorFwd"
SFT = "relax.components.sft:SFT"

TABLE_WITHOUT_CRITIC = {
    "rollout": ROLLOUT,
    "actor": ACTOR,
    "advantages": ADVANTAGES,
    "reference": ACTOR_FWD,
    "actor_fwd": ACTOR_FWD,
}
TABLE_WITH_CRITIC = {
    "rollout": ROLLOUT,
    "actor": ACTOR,
    "critic": CRITIC,
    "advantages": ADVANTAGES,
    "reference": ACTOR_FWD,
    "actor_fwd": ACTOR_FWD,
}
TABLE_SFT = {"sft": SFT, "actor": ACTOR}


def started_roles(role_set: list[str], table: dict[str, str]) -> dict[str, str]:
    """The roles of the set that the table holds, in the order of the set: role to import path."""
    started = {}
    for role in role_set:
        if role in table:
            started[role] = table[role]
    return started
