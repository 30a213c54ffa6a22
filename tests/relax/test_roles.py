"""Which roles a run starts, by algorithm and mode."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from relax.algorithms.spec import ALGORITHM_SPECS, get_algorithm, list_algorithm_names
from relax.core import registry
from relax.core.registry import ALGOS, process_role, role_table
from verification.cases.arguments import namespace

PATHS = {
    "actor": "relax.components.actor:Actor",
    "critic": "relax.components.critic:Critic",
    "rollout": "relax.components.rollout:Rollout",
    "advantages": "relax.components.advantages:Advantages",
    "reference": "relax.components.actor_fwd:ActorFwd",
    "actor_fwd": "relax.components.actor_fwd:ActorFwd",
    "sft": "relax.components.sft:SFT",
}

# mode: (options, roles in order; the critic's place is where it stands for an algorithm that trains one)
MODES: dict[str, tuple[dict[str, Any], str]] = {
    "colocate": ({}, "actor critic rollout"),
    "colocate true-on-policy": ({"true_on_policy_mode": True}, "actor critic rollout"),
    "hybrid": ({"hybrid": True}, "actor critic rollout"),
    "fully async": ({"fully_async": True}, "actor critic rollout advantages reference actor_fwd"),
    "true on-policy": (
        {"fully_async": True, "true_on_policy_mode": True},
        "actor critic rollout advantages reference",
    ),
    "rollout only": ({"debug_rollout_only": True}, "rollout"),
    "rollout only, async": ({"debug_rollout_only": True, "fully_async": True}, "rollout"),
    "train only": ({"debug_train_only": True}, "actor"),
    "train only, async": ({"debug_train_only": True, "fully_async": True}, "actor"),
}


def roles_text(roles: dict[str, str]) -> list[str]:
    """The form of ``stages.md``: ``name=import.path:Class``, in order."""
    return [f"{role}={path}" for role, path in roles.items()]


class TestProcessRole:
    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("algorithm", list_algorithm_names())
    def test_mode(self, algorithm: str, mode: str) -> None:
        """A mode starts its role set, in order, without the critic where the algorithm trains none."""
        options, roles = MODES[mode]
        expected = [role for role in roles.split() if role != "critic" or algorithm == "ppo"]
        started = process_role(namespace(algorithm, **options))
        assert roles_text(started) == [f"{role}={PATHS[role]}" for role in expected]

    @pytest.mark.parametrize("options", [{}, {"fully_async": True}, {"hybrid": True}])
    def test_supervised(self, options: dict[str, Any]) -> None:
        """Supervised training starts its own two roles whatever algorithm is named, even one that is not there."""
        for algorithm in ("ppo", "grpo", "nonesuch"):
            started = process_role(namespace(algorithm, loss_type="sft_loss", **options))
            assert roles_text(started) == ["sft=relax.components.sft:SFT", "actor=relax.components.actor:Actor"]

    def test_supervised_debug_modes(self) -> None:
        """A debug mode of supervised training starts the actor alone, or says that there is no rollout."""
        train_only = process_role(namespace("grpo", loss_type="sft_loss", debug_train_only=True))
        assert roles_text(train_only) == ["actor=relax.components.actor:Actor"]
        with pytest.raises(ValueError, match=r"--debug-rollout-only .* and --loss-type sft_loss"):
            process_role(namespace("grpo", loss_type="sft_loss", debug_rollout_only=True))

    def test_unknown_algorithm(self) -> None:
        """An unknown algorithm is refused by name, with the closest one."""
        with pytest.raises(ValueError, match=r"unknown algorithm 'grop'.*did you mean 'grpo'"):
            process_role(namespace("grop"))

    def test_a_caller_cannot_change_the_table(self) -> None:
        """What is returned is the caller's own."""
        process_role(namespace("grpo")).clear()
        assert list(process_role(namespace("grpo"))) == ["actor", "rollout"]


class TestTables:
    def test_every_registered_name_has_a_table(self) -> None:
        """The parser's choices and the role tables are the same names."""
        assert list(ALGOS) == list_algorithm_names()

    @pytest.mark.parametrize("algorithm", list_algorithm_names())
    def test_table(self, algorithm: str) -> None:
        """A table holds the five common roles, and the critic where one is needed, by import path."""
        common = {"rollout", "actor", "advantages", "reference", "actor_fwd"}
        critic = {"critic"} if get_algorithm(algorithm).needs_critic else set()
        assert {role: PATHS[role] for role in common | critic} == ALGOS[algorithm]

    def test_only_needs_critic_decides(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An algorithm gains the critic in every mode by the flag alone, and loses it likewise."""
        with_critic = dataclasses.replace(get_algorithm("grpo"), needs_critic=True)
        without = dataclasses.replace(get_algorithm("ppo"), needs_critic=False)
        assert set(role_table(with_critic)) - set(role_table(without)) == {"critic"}
        monkeypatch.setitem(ALGORITHM_SPECS, "grpo", with_critic)
        monkeypatch.setitem(ALGORITHM_SPECS, "ppo", without)
        for options, roles in MODES.values():
            assert list(process_role(namespace("grpo", **options))) == roles.split()
            assert list(process_role(namespace("ppo", **options))) == [r for r in roles.split() if r != "critic"]

    @pytest.mark.parametrize("shape", ["COLOCATE", "FULLY_ASYNC", "TRUE_ON_POLICY"])
    def test_critic_algorithms_have_sets_of_their_own(self, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """An algorithm with a critic reads its own set and no other; the two sets have the same shape."""
        own, common = f"ROLES_PPO_{shape}", f"ROLES_{shape}"
        assert getattr(registry, own) == getattr(registry, common)
        options = {
            "COLOCATE": {},
            "FULLY_ASYNC": {"fully_async": True},
            "TRUE_ON_POLICY": {"fully_async": True, "true_on_policy_mode": True},
        }[shape]
        monkeypatch.setattr(registry, own, ("critic",))
        assert list(process_role(namespace("ppo", **options))) == ["critic"]
        assert "actor" in process_role(namespace("grpo", **options))
