"""What the frozen copies know: the roles of a run, the algorithms of the baseline, and nothing of relax."""

from __future__ import annotations

import ast
import sys
from typing import Any

import pytest

from tests.verification.frozen_inputs import samples, tensor
from verification.cases.arguments import namespace
from verification.frozen import dispatch, lock


class TestRoles:
    @pytest.mark.parametrize(
        ("algorithm", "options", "expected"),
        [
            ("grpo", {}, ["actor", "rollout"]),
            ("ppo", {"hybrid": True}, ["actor", "critic", "rollout"]),
            ("gspo", {"fully_async": True}, ["actor", "rollout", "advantages", "reference", "actor_fwd"]),
            ("ppo", {"fully_async": True}, ["actor", "critic", "rollout", "advantages", "reference", "actor_fwd"]),
            (
                "sapo",
                {"fully_async": True, "true_on_policy_mode": True},
                ["actor", "rollout", "advantages", "reference"],
            ),
            ("grpo", {"debug_rollout_only": True}, ["rollout"]),
            ("ppo", {"debug_train_only": True}, ["actor"]),
            ("grpo", {"loss_type": "sft_loss"}, ["sft", "actor"]),
        ],
    )
    def test_roles_in_order(self, algorithm: str, options: dict[str, Any], expected: list[str]) -> None:
        """Each mode starts the roles of its set that the algorithm's table holds, in the order of the set."""
        assert list(dispatch.process_role(namespace(algorithm, **options))) == expected

    def test_reference_and_actor_fwd_share_a_class(self) -> None:
        """ActorFwd runs as reference and as actor_fwd."""
        roles = dispatch.process_role(namespace("grpo", fully_async=True))
        assert roles["reference"] == roles["actor_fwd"] == "relax.components.actor_fwd:ActorFwd"


class TestBoundaries:
    @pytest.mark.parametrize("algorithm", ["gdpo", "rloo", "GRPO", ""])
    def test_unknown_algorithm(self, algorithm: str) -> None:
        """What the baseline did not have is a NotImplementedError at every stage."""
        args = namespace(algorithm)
        calls = [
            lambda: dispatch.post_process_rewards(args, []),
            lambda: dispatch.group_carries_reward_signal(args, []),
            lambda: dispatch.kl_per_response(args, log_probs=None, ref_log_probs=None, values=[]),
            lambda: dispatch.compute_advantages_and_returns(args, rewards=[], kl=[]),
            lambda: dispatch.normalize_advantages(args, advantages=[], loss_masks=[]),
            lambda: dispatch.compute_policy_loss_for(args, log_probs=tensor(), ppo_kl=tensor(), advantages=tensor()),
            lambda: dispatch.policy_objective(args, old_log_probs=[], log_probs=[], advantages=[], loss_masks=[]),
            lambda: dispatch.reduce_loss(args, values=[], loss_masks=[]),
            lambda: dispatch.process_role(args),
        ]
        for call in calls:
            with pytest.raises(NotImplementedError):
                call()

    def test_exact_statistics_are_unknown(self) -> None:
        """Correctly rounded statistics are newer than the baseline."""
        with pytest.raises(NotImplementedError, match="exact"):
            dispatch.post_process_rewards(namespace("grpo", exact_statistics=True), samples([1.0], [0]))

    def test_frozen_imports_nothing_else(self) -> None:
        """The copies import torch, the standard library and one another, and nothing of relax."""
        allowed = {"torch", "verification.frozen", *sys.stdlib_module_names}
        for path in lock.FOLDER.glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    assert {alias.name for alias in node.names} <= allowed, path
                elif isinstance(node, ast.ImportFrom):
                    assert node.module in allowed or (node.module or "").split(".")[0] in sys.stdlib_module_names, path
