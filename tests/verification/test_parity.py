"""Dispatch parity holds, covers what it claims to cover, and notices each kind of rewiring."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch

from relax.algorithms import advantages, policy, rewards, spec
from relax.algorithms.formulas import reducers
from verification.judges.comparison import Comparison
from verification.parity import run_parity
from verification.parity.compare import compare_dispatch, compare_routing, recorded_subjects
from verification.parity.inputs import make_case
from verification.parity.kernels import FROZEN_KERNELS
from verification.parity.routing import MISSING_FROM_THE_OLD_TABLE, OLD_ALGORITHMS, OLD_ROLE_SETS, OLD_ROUTES, old_roles
from verification.parity.switches import STAGE_SWITCHES, combinations
from verification.subjects.frozen import frozen_subject
from verification.subjects.live import live_subject


@pytest.fixture(scope="module")
def whole() -> list[Comparison]:
    """One run of everything."""
    return run_parity()


def test_the_registry_routes_as_before(whole: list[Comparison]) -> None:
    """No combination of switches takes another route, other arguments or another result than the frozen dispatch."""
    assert [one for one in whole if not one.agrees] == []


def test_every_stage_of_every_algorithm_is_compared(whole: list[Comparison]) -> None:
    """Each stage of each old algorithm contributes comparisons of outcomes, kernels and arguments; ids are unique."""
    counted = Counter((one.stage, one.algorithm) for one in whole if one.against == "frozen dispatch")
    assert set(counted) == set(itertools.product(STAGE_SWITCHES, OLD_ALGORITHMS))
    assert {one.judge for one in whole} == {"parity"}
    described = Counter(
        (one.case, one.against, one.what) for one in whole if not one.what.startswith(("arg", "res", "entry"))
    )
    assert max(described.values()) == 1


def test_every_kernel_is_reached(whole: list[Comparison]) -> None:
    """Each frozen kernel ran, and its result was compared with the live one's."""
    compared = {one.what.removeprefix("result of ") for one in whole if one.what.startswith("result of ")}
    expected = {f"{kernel.entry} -> {kernel.formula}" if kernel.entry else kernel.formula for kernel in FROZEN_KERNELS}
    assert compared == expected


def test_every_algorithm_is_asked(whole: list[Comparison]) -> None:
    """The whole run holds these comparisons."""
    assert {one.algorithm for one in whole if one.against == "corpus"} == set(spec.list_algorithm_names())


def test_values_are_no_accident(whole: list[Comparison]) -> None:
    """Failures are the rarer outcome at every stage: most combinations compare numbers."""
    cases = {one.case: one.stage for one in whole if one.against == "frozen dispatch"}
    failed = Counter(one.stage for one in whole if one.what == "failure")
    assert all(failed[stage] <= count / 4 for stage, count in Counter(cases.values()).items())
    assert {"reward.normalize", "kl.estimate", "advantage.estimate", "advantage.normalize", "policy.loss"} == set(
        failed
    )


def differences(stage: str, algorithm: str) -> list[Comparison]:
    """What parity finds at one stage of one algorithm."""
    with recorded_subjects(live_subject(), frozen_subject()) as (live, frozen):
        return [
            one
            for number, combination in enumerate(combinations(stage))
            for one in compare_dispatch(make_case(stage, algorithm, number, combination), live, frozen)
            if not one.agrees
        ]


def rewired(algorithm: str, **fields: Any) -> Any:
    """The registry with some fields of one algorithm replaced."""
    return mock.patch.dict(
        spec.ALGORITHM_SPECS, {algorithm: dataclasses.replace(spec.ALGORITHM_SPECS[algorithm], **fields)}
    )


WRONG_IDENTIFIERS = [
    ("reward.normalize", "grpo", {"reward_normalizer": "group_mean"}),
    ("reward.normalize", "reinforce_plus_plus", {"reward_normalizer": "group_mean"}),
    ("reward.normalize", "cispo", {"reward_normalizer": "none"}),
    ("advantage.estimate", "gspo", {"advantage_fn": "masked_broadcast"}),
    ("advantage.estimate", "reinforce_plus_plus", {"advantage_fn": "broadcast"}),
    ("advantage.estimate", "ppo", {"advantage_fn": "discounted_returns"}),
    ("advantage.normalize", "sapo", {"advantage_normalization": "token_global"}),
    ("advantage.normalize", "reinforce_plus_plus_baseline", {"advantage_normalization": "whiten"}),
    ("policy.loss", "sapo", {"policy_loss_fn": "ppo_clip"}),
    ("policy.loss", "cispo", {"policy_loss_fn": "reinforce"}),
    ("policy.loss", "gspo", {"kl_level": "token"}),
    ("policy.loss", "grpo", {"kl_level": "sequence"}),
    ("roles.resolve", "grpo", {"needs_critic": True}),
    ("roles.resolve", "ppo", {"needs_critic": False}),
]


@pytest.mark.parametrize(("stage", "algorithm", "fields"), WRONG_IDENTIFIERS)
def test_a_wrong_identifier_is_noticed(stage: str, algorithm: str, fields: dict[str, Any]) -> None:
    """Another identifier in the registry shows in the dispatch that runs, and in the routing data."""
    with rewired(algorithm, **fields):
        found = differences(stage, algorithm)
        routing = [one for one in compare_routing() if not one.agrees]
    kinds = {one.what for one in found}
    assert ("text roles" if stage == "roles.resolve" else "kernels") in kinds
    assert {one.algorithm for one in routing} == {algorithm}
    assert f"spec.{next(iter(fields))}" in {one.what for one in routing}


def swapped_clips(args: Any, **tensors: torch.Tensor) -> Any:
    return policy.ppo_clip(
        tensors["ppo_kl"],
        tensors["advantages"],
        eps_clip=args.eps_clip_high,
        eps_clip_high=args.eps_clip,
        eps_clip_c=args.eps_clip_c,
    )


@functools.wraps(policy.opsm_mask)
def keeps_everything(*positional: Any) -> Any:
    return torch.ones_like(opsm_mask(*positional))


@functools.wraps(advantages.masked_broadcast)
def two_lists(*positional: Any) -> Any:
    found, _ = advantages_masked_broadcast(*positional)
    return found, list(found)


@functools.wraps(policy.soft_gate)
def one_ulp_off(*positional: Any, **keywords: Any) -> Any:
    loss, clipfrac = soft_gate(*positional, **keywords)
    return torch.nextafter(loss, torch.full_like(loss, math.inf)), clipfrac


@functools.wraps(advantages.TOKEN_NORMALIZATIONS["whiten"])
def another_exception(*positional: Any, **keywords: Any) -> Any:
    try:
        return whiten(*positional, **keywords)
    except ValueError as error:
        raise RuntimeError(str(error)) from error


@functools.wraps(reducers.token_sum)
def changes_its_input(values: Any, loss_masks: Any) -> Any:
    with torch.no_grad():
        values[0][0] += 1
    return token_sum(values, loss_masks)


advantages_masked_broadcast = advantages.masked_broadcast
opsm_mask = policy.opsm_mask
soft_gate = policy.soft_gate
whiten = advantages.TOKEN_NORMALIZATIONS["whiten"]
token_sum = reducers.token_sum

REWIRINGS: list[tuple[str, str, Callable[[], Any], str]] = [
    (
        "policy.loss",
        "sapo",
        lambda: mock.patch.dict(policy.POLICY_LOSS_FNS, soft_gate=policy.POLICY_LOSS_FNS["ppo_clip"]),
        "kernels",
    ),
    (
        "policy.loss",
        "grpo",
        lambda: mock.patch.dict(policy.POLICY_LOSS_FNS, ppo_clip=swapped_clips),
        "argument eps_clip of POLICY_LOSS_FNS/ppo_clip -> ppo_clip",
    ),
    (
        "policy.loss",
        "ppo",
        lambda: mock.patch.object(policy, "opsm_mask", keeps_everything),
        "loss",
    ),
    (
        "policy.loss",
        "sapo",
        lambda: mock.patch.object(policy, "soft_gate", one_ulp_off),
        "result of POLICY_LOSS_FNS/soft_gate -> soft_gate",
    ),
    (
        "policy.loss",
        "cispo",
        lambda: mock.patch.dict(
            policy.OFF_POLICY_WEIGHTS,
            truncate=policy.OFF_POLICY_WEIGHTS["icepop"],
            icepop=policy.OFF_POLICY_WEIGHTS["truncate"],
        ),
        "result of OFF_POLICY_WEIGHTS/truncate -> truncate",
    ),
    (
        "advantage.estimate",
        "reinforce_plus_plus_baseline",
        lambda: mock.patch.object(advantages, "masked_broadcast", two_lists),
        "aliases",
    ),
    (
        "advantage.normalize",
        "ppo",
        lambda: mock.patch.dict(advantages.TOKEN_NORMALIZATIONS, whiten=another_exception),
        "failure",
    ),
    ("loss.reduce", "grpo", lambda: mock.patch.object(reducers, "token_sum", changes_its_input), "mutated inputs"),
    (
        "reward.normalize",
        "grpo",
        lambda: mock.patch.dict(rewards.REWARD_NORMALIZERS, group_mean_std=rewards.REWARD_NORMALIZERS["group_mean"]),
        "result of REWARD_NORMALIZERS/group_mean_std -> group_mean_std",
    ),
]


@pytest.mark.parametrize(("stage", "algorithm", "rewire", "what"), REWIRINGS)
def test_a_rewiring_is_noticed(stage: str, algorithm: str, rewire: Callable[[], Any], what: str) -> None:
    """Each kind of difference is noticed where it arises: kernel, argument, result, alias, exception, changed input."""
    with rewire():
        assert what in {one.what for one in differences(stage, algorithm)}


class TestRouting:
    def test_spec_agrees_with_the_old_table(self) -> None:
        """The registry's fields, role tables and started roles are those written down from the baseline."""
        found = list(compare_routing())
        assert [one for one in found if not one.agrees] == []
        assert len(found) == len(OLD_ALGORITHMS) * (8 + 1 + len(OLD_ROLE_SETS) + 1)

    def test_every_switch_of_needs(self) -> None:
        """What an algorithm needs is as the baseline says."""
        assert {name for name, route in OLD_ROUTES.items() if route.needs_critic} == {"ppo"}
        assert {name for name, route in OLD_ROUTES.items() if route.needs_full_log_probs} == {"gspo"}
        needing = {name for name, route in OLD_ROUTES.items() if route.requires_normalize_advantages}
        assert needing == {"reinforce_plus_plus", "reinforce_plus_plus_baseline"}
        assert needing > MISSING_FROM_THE_OLD_TABLE

    def test_roles_come_in_the_order_of_their_set(self) -> None:
        """Order is part of the route."""
        assert list(old_roles("ppo", "colocate")) == ["actor", "critic", "rollout"]
        assert list(old_roles("grpo", "fully_async")) == ["actor", "rollout", "advantages", "reference", "actor_fwd"]
