"""Dispatch parity holds, covers what it claims to cover, and notices each kind of rewiring."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relax.algorithms import advantages, policy, rewards, spec
from relax.algorithms.formulas import reducers
from verification.cases.case import Case
from verification.judges.comparison import Comparison
from verification.parity import coverage, run_parity
from verification.parity.compare import compare_dispatch, compare_routing, recorded_subjects
from verification.parity.inputs import make_case
from verification.parity.kernels import FROZEN_KERNELS, LIVE_KERNELS, Kernel, masks_as_numbers
from verification.parity.recorders import recording
from verification.parity.routing import MISSING_FROM_THE_OLD_TABLE, OLD_ALGORITHMS, OLD_ROLE_SETS, OLD_ROUTES, old_roles
from verification.parity.snapshots import difference, snapshot
from verification.parity.switches import STAGE_SWITCHES, Switches, combinations, pairwise
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


def pairs_of(rows: list[tuple[int, ...]]) -> set[tuple[int, int, int, int]]:
    return {(a, row[a], b, row[b]) for row in rows for a, b in itertools.combinations(range(len(row)), 2)}


class TestSwitches:
    @given(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    def test_every_two_values_meet(self, sizes: list[int]) -> None:
        """Pairwise cover is complete and repeats no row."""
        values: list[tuple[Any, ...]] = [tuple(range(size)) for size in sizes]
        rows = pairwise(values, [])
        assert pairs_of(rows) == pairs_of(list(itertools.product(*values)))
        assert len(set(rows)) == len(rows)

    @given(st.integers(1, 3), st.integers(2, 3))
    def test_rows_already_chosen_are_not_repeated(self, first: int, second: int) -> None:
        """What the given rows cover is not covered again."""
        values: list[tuple[Any, ...]] = [tuple(range(first)), tuple(range(second))]
        assert pairwise(values, list(itertools.product(*values))) == []

    def test_full_product_and_faults(self) -> None:
        """Interacting switches are run in full; a fault is laid over sound rows, one at a time."""
        switches = Switches({"a": (0, 1), "b": (0, 1, 2)}, {"c": (0, 1), "d": (0, 1)}, {"a": ("bad",), "d": ("worse",)})
        rows = list(switches.combinations())
        sound = [row for row in rows if "bad" not in row.values() and "worse" not in row.values()]
        assert {(row["a"], row["b"]) for row in sound if row["c"] == row["d"] == 0} == set(
            itertools.product((0, 1), (0, 1, 2))
        )
        assert pairs_of([tuple(row[name] for name in "abcd") for row in sound]) == pairs_of(
            list(itertools.product((0, 1), (0, 1, 2), (0, 1), (0, 1)))
        )
        assert sum(row["a"] == "bad" for row in rows) == sum(row["d"] == "worse" for row in rows) == 2
        assert not any(row["a"] == "bad" and row["d"] == "worse" for row in rows)

    @pytest.mark.parametrize("stage", STAGE_SWITCHES)
    def test_combinations_differ(self, stage: str) -> None:
        """No combination is run twice."""
        rows = [tuple(row.items()) for row in combinations(stage)]
        assert len(set(rows)) == len(rows)


class TestMasksAsNumbers:
    def test_dtypes_without_a_difference(self) -> None:
        """Integers and booleans read as the float32 that they count as, in both kinds of mask; nothing is changed."""
        numbers = [torch.tensor([1.0, 0.0])]
        for dtype in (torch.int64, torch.bool, torch.float32):
            given = {"loss_masks": [numbers[0].to(dtype)], "full_loss_masks": [numbers[0].to(dtype)], "kl_coef": 0.1}
            before = snapshot(given["loss_masks"])
            read = masks_as_numbers(given)
            assert snapshot(read["loss_masks"]) == snapshot(read["full_loss_masks"]) == snapshot(numbers)
            assert read["kl_coef"] == 0.1
            assert snapshot(given["loss_masks"]) == before

    def test_what_stays_a_difference(self) -> None:
        """Another mask, masks of double precision, and a mask that is missing where there is no KL still show."""
        ones = snapshot([torch.ones(2)])
        assert snapshot(masks_as_numbers({"loss_masks": [torch.tensor([1, 0])]})["loss_masks"]) != ones
        double = masks_as_numbers({"loss_masks": [torch.ones(2, dtype=torch.float64)]})
        assert snapshot(double["loss_masks"]) != ones
        assert masks_as_numbers({"loss_masks": None})["loss_masks"] is None
        assert snapshot(masks_as_numbers({"loss_masks": None, "kl": [torch.zeros(2)]})["loss_masks"]) == ones


NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]

UNEQUAL: list[tuple[Any, Any, str]] = [
    (torch.tensor([1.0, 0.0]), torch.tensor([1.0, -0.0]), "element 1: got 0 .*expected -0 "),
    (torch.tensor([1.0]), torch.tensor([1.0 + 2**-23]), "element 0"),
    (torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64), "float32.*float64"),
    (torch.tensor([1.0]), torch.tensor([[1.0]]), r"\[1\].*\[1, 1\]"),
    (torch.tensor([math.nan]).view(torch.int32), torch.tensor([math.nan]).view(torch.int32) + 1, "element 0"),
    ([1.0, [2.0, 3.0]], [1.0, [2.0, 4.0]], r"\[1\]\[1\] got 3.0, expected 4.0"),
    ([1.0], [1.0, 2.0], "list of 1.*list of 2"),
    (1, 1.0, "got 1, expected 1.0"),
    (0.0, -0.0, "got 0.0, expected -0.0"),
    (math.nan, NAN, "nan"),
    (True, 1, "True"),
    (None, 0, "None"),
    ("k1", "k2", "k1"),
]


class TestSnapshots:
    @pytest.mark.parametrize(("got", "expected", "words"), UNEQUAL)
    def test_differences_are_told(self, got: Any, expected: Any, words: str) -> None:
        """Type, shape, dtype and each bit count, and the first difference is named."""
        assert snapshot(got) != snapshot(expected)
        assert re.search(words, difference(snapshot(got), snapshot(expected)))

    def test_equal_values(self) -> None:
        """A value equals its own copy, NaN included, and a list equals a tuple of the same items."""
        value = [torch.tensor([math.nan, -0.0]), 0.1, None, "k1", (1, True)]
        copy = (torch.tensor([math.nan, -0.0]), 0.1, None, "k1", [1, True])
        assert difference(snapshot(value), snapshot(copy)) == ""

    def test_a_snapshot_does_not_follow_its_value(self) -> None:
        """What is changed later was recorded before."""
        value = torch.tensor([1.0])
        before = snapshot(value)
        value += 1
        assert before != snapshot(value)


class TestRecorders:
    def test_a_kernel_that_is_gone_is_an_error(self) -> None:
        """A recorder that cannot be placed is an error, not silence."""
        gone = Kernel("relax.algorithms.policy:no_such_formula", "", "no_such_formula")
        with pytest.raises(AttributeError, match="no_such_formula"), recording((gone,)):
            pass
        line = Kernel("relax.algorithms.policy:POLICY_LOSS_FNS[no_such_line]", "", None)
        with pytest.raises(KeyError, match="no_such_line"), recording((line,)):
            pass

    def test_recorders_leave_no_trace(self) -> None:
        """Tables and modules are as before once the block ends, also after an exception."""
        before = [dict(policy.POLICY_LOSS_FNS), policy.ppo_clip]

        def fail_while_recording() -> None:
            with recording(LIVE_KERNELS):
                assert policy.ppo_clip is not before[1]
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail_while_recording()
        assert [dict(policy.POLICY_LOSS_FNS), policy.ppo_clip] == before


@pytest.fixture
def corpus() -> list[Case]:
    """The corpus of the algorithms that parity does not know."""
    from verification.cases import corpus as whole_corpus

    return [case for case in whole_corpus() if case.algorithm in ("gdpo", "rloo")]


class TestCoverage:
    def covered(self, corpus: list[Case]) -> list[Comparison]:
        old = {kernel.entry for kernel in FROZEN_KERNELS}
        with recorded_subjects(live_subject(), frozen_subject()) as (live, _):
            return coverage.compare_coverage(old, live, corpus)

    def test_every_line_is_reached(self, corpus: list[Case]) -> None:
        """Parity and the corpus together reach every line of every table."""
        found = self.covered(corpus)
        assert [one.detail for one in found if not one.agrees] == []
        assert {"REWARD_NORMALIZERS/component_groups", "POLICY_LOSS_FNS/reinforce"} <= {one.what for one in found}

    def test_a_line_that_no_case_reaches_is_found(self) -> None:
        """Without cases of the new algorithms exactly their lines are unreached."""
        unreached = {one.what for one in self.covered([]) if not one.agrees}
        assert unreached == {
            "REWARD_NORMALIZERS/leave_one_out",
            "REWARD_NORMALIZERS/component_groups",
            "ADVANTAGE_FNS/whitened_broadcast",
            "POLICY_LOSS_FNS/reinforce",
        }

    def test_a_line_without_recorder_is_found(self, corpus: list[Case]) -> None:
        """A line that was added to a table and not to the recorders is named with the remedy."""
        with mock.patch.dict(policy.POLICY_LOSS_FNS, added=swapped_clips):
            (found,) = [one for one in self.covered(corpus) if not one.agrees]
        assert found.what == "POLICY_LOSS_FNS/added"
        assert "LIVE_KERNELS" in found.detail


class TestRegistered:
    def test_every_algorithm_is_asked(self) -> None:
        """Each registered algorithm has a valid case of every stage that it may run."""
        found = coverage.compare_registered()
        assert [one.detail for one in found if not one.agrees] == []
        assert {one.algorithm for one in found} == set(spec.list_algorithm_names())

    def test_an_algorithm_that_no_case_asks_is_found(self) -> None:
        """One more registry entry, though made of lines that exist, fails at every stage, with the remedy."""
        added = dataclasses.replace(spec.ALGORITHM_SPECS["grpo"], name="added")
        with mock.patch.dict(spec.ALGORITHM_SPECS, added=added):
            found = [one for one in coverage.compare_registered() if not one.agrees]
        assert [one.what for one in found] == list(coverage.ROUTED_STAGES)
        assert all("no valid case of" in one.detail and "asks added" in one.detail for one in found)

    def test_a_stage_that_no_case_asks_is_found(self, corpus: list[Case]) -> None:
        """Without its objective's cases, or with refused ones alone, an algorithm is told with the stage."""
        kept = [
            dataclasses.replace(case, error=("x",)) if case.stage == "policy.loss" else case
            for case in corpus
            if case.algorithm == "gdpo"
        ]
        found = [one for one in coverage.compare_registered(kept) if not one.agrees and one.algorithm == "gdpo"]
        assert [one.what for one in found] == ["policy.loss"]

    def test_run_parity_asks(self, whole: list[Comparison]) -> None:
        """The whole run holds these comparisons."""
        assert {one.algorithm for one in whole if one.against == "corpus"} == set(spec.list_algorithm_names())
