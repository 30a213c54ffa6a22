"""Every field of a specification is obeyed by what consumes it."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from relax.algorithms.advantages import compute_advantages_and_returns, normalize_advantages
from relax.algorithms.context import WholeResponses
from relax.algorithms.policy import compute_policy_loss_for, policy_objective, token_losses
from relax.algorithms.rewards import REWARD_NORMALIZERS, group_carries_reward_signal
from relax.algorithms.spec import (
    ALGORITHM_SPECS,
    AlgorithmSpec,
    list_algorithm_names,
)
from relax.core.registry import process_role
from relax.refusals import validate_algorithm_args
from relax.rollout.post_process import post_process_rewards
from verification.cases.arguments import namespace


def plain(**fields: Any) -> AlgorithmSpec:
    """A spec that asks for nothing, with ``fields`` laid over it."""
    route = {"reward_normalizer": "none", "advantage_fn": "broadcast", "policy_loss_fn": "ppo_clip"}
    return AlgorithmSpec(**{"name": "probe", **route, **fields})


Run = Callable[[AlgorithmSpec], Any]


def samples(rewards: list[Any]) -> list[SimpleNamespace]:
    return [SimpleNamespace(index=i, group_index=0, reward=r, custom_advantage=None) for i, r in enumerate(rewards)]


def arguments(**options: Any) -> argparse.Namespace:
    return namespace("probe", **{"n_samples_per_prompt": 2, "rollout_batch_size": 2, **options})


def outcome(call: Callable[[], Any]) -> str:
    """The message of the ValueError that ``call`` raises, or the empty text."""
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""


def refusal(**options: Any) -> Run:
    """What the command line answers: the contradiction, without reason and remedy, or the empty text."""

    def run(spec: AlgorithmSpec) -> str:
        message = outcome(lambda: validate_algorithm_args(arguments(**options)))
        return message.rpartition("; ")[0].rpartition(": ")[0] if " and " in message else message.rpartition("; ")[0]

    return run


def rewards_of(spec: AlgorithmSpec) -> list[float]:
    return post_process_rewards(arguments(), samples([1.0, 0.0]))[1]


def advantages_of(spec: AlgorithmSpec) -> list[list[float]]:
    kl = [torch.zeros(2), torch.zeros(2)]
    masks = [torch.tensor([1.0, 0.0]), torch.ones(2)]
    advantages, _ = compute_advantages_and_returns(arguments(), rewards=[1.0, 2.0], kl=kl, loss_masks=masks)
    return [a.tolist() for a in advantages]


def normalized_of(spec: AlgorithmSpec) -> list[float]:
    args = arguments(normalize_advantages=True)
    masks = [torch.tensor([1.0, 1.0, 0.0])]
    return normalize_advantages(args, advantages=[torch.tensor([1.0, 3.0, 2.0])], loss_masks=masks)[0].tolist()


def loss_of(spec: AlgorithmSpec) -> list[float]:
    one = torch.ones(1)
    return compute_policy_loss_for(arguments(), log_probs=-one, ppo_kl=torch.zeros(1), advantages=one)[0].tolist()


def ppo_kl_of(spec: AlgorithmSpec) -> list[float]:
    old, new = torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -3.5])
    return policy_objective(
        arguments(), old_log_probs=[old], log_probs=[new], advantages=[torch.ones(2)], loss_masks=[torch.ones(2)]
    )[2].tolist()


def whole_responses_gathered(spec: AlgorithmSpec) -> int:
    """How often an objective of one token asks for whole responses."""
    context = mock.Mock(wraps=WholeResponses())
    one = [torch.ones(1)]
    token_losses(arguments(), context, old_log_probs=one, log_probs=one, advantages=one, loss_masks=one)
    return context.gather_each.call_count


def signal_of(spec: AlgorithmSpec) -> Any:
    args = arguments(gdpo_reward_keys=["a", "b"])
    try:
        return group_carries_reward_signal(args, samples([{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 0.0}]))
    except (TypeError, ValueError) as error:
        return type(error)


# field: (what runs, fields of the first spec, its result, fields of the second spec, its result)
PROOFS: dict[str, tuple[Run, Mapping[str, Any], Any, Mapping[str, Any], Any]] = {
    "reward_normalizer": (
        rewards_of, {"reward_normalizer": "none"}, [1.0, 0.0],
        {"reward_normalizer": "group_mean"}, [0.5, -0.5],
    ),
    "advantage_fn": (
        advantages_of, {"advantage_fn": "broadcast"}, [[1, 1], [2, 2]],
        {"advantage_fn": "masked_broadcast"}, [[1, 0], [2, 2]],
    ),
    "policy_loss_fn": (loss_of, {"policy_loss_fn": "ppo_clip"}, [-1.0], {"policy_loss_fn": "reinforce"}, [1.0]),
    "kl_level": (ppo_kl_of, {"kl_level": "token"}, [0.5, 1.5], {"kl_level": "sequence"}, [1.0, 1.0]),
    "needs_full_log_probs": (whole_responses_gathered, {}, 0, {"needs_full_log_probs": True}, 1),
    "needs_critic": (
        lambda spec: list(process_role(arguments())), {}, ["actor", "rollout"],
        {"needs_critic": True}, ["actor", "critic", "rollout"],
    ),
    "requires_normalize_advantages": (
        refusal(), {}, "",
        {"requires_normalize_advantages": True}, "--advantage-estimator probe and --normalize-advantages (off)",
    ),
    "forbids_normalize_advantages": (
        refusal(normalize_advantages=True), {}, "",
        {"forbids_normalize_advantages": True}, "--advantage-estimator probe and --normalize-advantages (on)",
    ),
    "requires_rewards_normalization": (
        refusal(rewards_normalization=False), {"reward_normalizer": "group_mean"}, "",
        {"reward_normalizer": "group_mean", "requires_rewards_normalization": True},
        "--advantage-estimator probe and --disable-rewards-normalization (on)",
    ),
    "supports_fully_async": (
        refusal(fully_async=True), {}, "",
        {"supports_fully_async": False}, "--advantage-estimator probe and --fully-async (on)",
    ),
    "uses_reward_components": (signal_of, {}, TypeError, {"uses_reward_components": True}, True),
    "min_group_size": (
        refusal(n_samples_per_prompt=3), {"min_group_size": 3}, "",
        {"min_group_size": 4}, "--advantage-estimator probe and --n-samples-per-prompt 3",
    ),
    "allows_reward_post_process_hooks": (
        refusal(custom_reward_post_process_path="my.hook"), {}, "",
        {"allows_reward_post_process_hooks": False},
        "--advantage-estimator probe and --custom-reward-post-process-path my.hook",
    ),
    "forbids_reward_side_kl": (
        refusal(kl_coef=0.25), {"advantage_fn": "discounted_returns"}, "",
        {"advantage_fn": "discounted_returns", "forbids_reward_side_kl": True},
        "--advantage-estimator probe and --kl-coef 0.25",
    ),
    "requires_global_token_loss": (
        refusal(), {}, "",
        {"requires_global_token_loss": True}, "--advantage-estimator probe and --calculate-per-token-loss (off)",
    ),
    "requires_on_policy_updates": (
        refusal(max_staleness=1), {}, "",
        {"requires_on_policy_updates": True}, "--advantage-estimator probe and --max-staleness 1",
    ),
    "disabled_reason": (
        refusal(), {}, "",
        {"disabled_reason": "its critic moves"}, "--advantage-estimator probe is disabled: its critic moves",
    ),
}  # fmt: skip


FIELDS = sorted({field.name for field in dataclasses.fields(AlgorithmSpec)} - {"name", "advantage_normalization"})


class TestEveryFieldIsObeyed:
    def run(self, monkeypatch: pytest.MonkeyPatch, fields: Mapping[str, Any], what: Run) -> Any:
        probe = dataclasses.replace(plain(), **fields)
        monkeypatch.setitem(ALGORITHM_SPECS, "probe", probe)
        return what(probe)

    @pytest.mark.parametrize(
        "field",
        FIELDS,
    )
    def test_field(self, field: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two specs that differ in this field alone make its consumer do two different things, both as documented."""
        what, first, first_result, second, second_result = PROOFS[field]
        assert self.run(monkeypatch, first, what) == first_result
        assert self.run(monkeypatch, second, what) == second_result

    def test_advantage_normalization(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whitening takes the unbiased variance and moves masked tokens too; token_global the population's, masked."""
        whitened = self.run(monkeypatch, {}, normalized_of)
        token_global = self.run(monkeypatch, {"advantage_normalization": "token_global"}, normalized_of)
        # Values 1 and 3: variance 2 unbiased, 1 of the population; the masked third is the mean itself. The 1e-8 in
        # the root and the rounding of rsqrt stay below 1e-6 of the result.
        assert whitened == pytest.approx([-(2**-0.5), 2**-0.5, 0.0], abs=1e-6)
        assert token_global == pytest.approx([-1.0, 1.0, 0.0], abs=1e-6)

    def test_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The name is what the command line accepts and what it refuses by."""
        monkeypatch.setitem(ALGORITHM_SPECS, "probe", plain(disabled_reason="closed"))
        assert list_algorithm_names()[-1] == "probe"
        assert "--advantage-estimator probe" in refusal()(plain())

    def test_missing_implementation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An identifier that no table holds is an error of the command line, naming algorithm, field and table."""
        monkeypatch.setitem(ALGORITHM_SPECS, "probe", plain(reward_normalizer="group_mean"))
        assert refusal()(plain()) == ""
        monkeypatch.delitem(REWARD_NORMALIZERS, "group_mean")
        assert outcome(lambda: validate_algorithm_args(arguments())) == (
            "--advantage-estimator probe: its reward_normalizer 'group_mean' has no implementation: "
            "add it to relax.algorithms.rewards.REWARD_NORMALIZERS or choose another algorithm"
        )
