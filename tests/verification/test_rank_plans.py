"""Rank cases without ranks: who holds what, what each rank is given, and how parts become the batch again."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verification.cases import find
from verification.cases.families import ALL
from verification.cases.field import RANK_CASES
from verification.ranks.assemble import Misfit, assemble
from verification.ranks.cases import RankCase, rank_cases
from verification.ranks.layout import Layout
from verification.ranks.packing import FILL, pack, unpack
from verification.ranks.plans import Plan, held, plan_for, spread
from verification.ranks.shards import shards

LAYOUTS = ("one", "dp2", "dp3", "dp4", "tp2", "cp2", "pp2", "tp2-cp2", "dp2-cp2")


def advantages_of(identity: str, layout: str) -> RankCase:
    """A case of the corpus on a layout."""
    return RankCase(find(identity), "advantages", Layout.parse(layout))


def test_there_are_enough_rank_cases_on_every_layout() -> None:
    """At least 2,000 in all, at least 100 on each layout, each with an id of its own."""
    cases = rank_cases()
    assert len(cases) >= 2000
    assert len({case.id for case in cases}) == len(cases)
    by_layout = {name: sum(case.layout.name == name for case in cases) for name in LAYOUTS}
    assert all(count >= 100 for count in by_layout.values()), by_layout
    assert {case.layout.name for case in cases} == set(LAYOUTS)


def test_every_algorithm_is_on_every_layout_of_its_programs() -> None:
    """Each program runs each algorithm on each of its layouts."""
    seen: dict[str, dict[str, set[str]]] = {}
    for case in rank_cases():
        seen.setdefault(case.program, {}).setdefault(case.case.algorithm, set()).add(case.layout.name)
    split = {"dp2", "dp3", "dp4", "cp2", "dp2-cp2"}
    for algorithm in ALL:
        assert seen["advantages"][algorithm] >= split, algorithm
        assert seen["objective"][algorithm] >= split, algorithm
        assert seen["policy_loss"][algorithm] >= {"one", "dp2", "dp3", "tp2", "cp2", "tp2-cp2", "dp2-cp2"}, algorithm
        if algorithm != "gdpo":
            assert seen["normalization"][algorithm] >= split, algorithm


def test_every_id_names_its_case_its_layout_and_its_words() -> None:
    """An id is that of the whole batch, an @, the layout, and a + before each word."""
    for case in rank_cases():
        assert re.fullmatch(r"[a-z.]+/[a-z_]+/[a-z0-9.+-]+@[a-z0-9-]+(\+(padded|bshd|normalized))*", case.id)
        assert case.id == "+".join((f"{case.case.id}@{case.layout.name}", *case.words))


@pytest.mark.parametrize("fault", RANK_CASES)
def test_every_fault_of_ranks_has_its_cases(fault: str) -> None:
    """A fault that only ranks can show has rank cases on layouts of more than one rank."""
    found = [case for case in rank_cases() if f"/field-{fault}" in case.id]
    assert {case.layout.world > 1 for case in found} >= {True}


def test_an_empty_slice_is_empty() -> None:
    """In the cases of that name one context-parallel rank holds no token of any response."""
    found = [case for case in rank_cases() if "field-empty-slice@cp2" in case.id]
    assert len(found) >= 5
    for case in found:
        tokens = [sum(len(case.plan.own(sample, cp)) for sample in range(3)) for cp in range(2)]
        assert sorted(tokens) == [0, 4]


def test_an_early_return_would_have_a_reason() -> None:
    """In the cases of that name one data-parallel rank holds no sample, and the others two that differ in reward."""
    found = [case for case in rank_cases() if "field-early-return@dp" in case.id]
    assert len(found) >= 5
    for case in found:
        assert 0 in [len(case.plan.samples(dp)) for dp in range(case.layout.dp)]
        assert len(set(case.case.inputs["rewards"])) == 2


def test_plans_hold_every_kind_of_share() -> None:
    """Among the cases: ranks without samples, optimizer batches that a rank has nothing of, empty and parted slices."""
    seen = set()
    for case in rank_cases():
        plan, sizes = case.plan, case.case.inputs.get("mini_batch_sizes")
        for dp in range(case.layout.dp):
            if not plan.samples(dp):
                seen.add("no sample")
            elif case.case.error is None and sizes is not None and 0 in plan.sizes(dp, sizes) and 0 not in sizes:
                seen.add("no sample of a batch")
        if case.layout.cp > 1:
            parts = [[len(plan.own(i, cp)) for cp in range(2)] for i in range(len(plan.holders))]
            seen |= {"empty slice" for part in parts if sorted(part)[0] == 0 < sum(part)}
            seen |= {"parted" for part in parts if min(part) > 0}
            gaps = [np.diff(plan.own(i, cp)) for i in range(len(plan.holders)) for cp in range(2)]
            seen |= {"in two chunks" for gap in gaps if (gap > 1).any()}
    assert {"no sample", "no sample of a batch", "empty slice", "parted", "in two chunks"} == seen


def test_spreads_by_hand() -> None:
    """Ten samples in blocks, dealt out, and dealt out past one rank; two samples over three ranks."""
    assert spread("contiguous", 10, 3, 0) == (0, 0, 0, 0, 1, 1, 1, 2, 2, 2)
    assert spread("interleaved", 10, 3, 0) == (0, 1, 2, 0, 1, 2, 0, 1, 2, 0)
    assert spread("one-empty", 5, 3, 4) == (0, 2, 0, 2, 0)
    assert spread("contiguous", 2, 3, 0) == (0, 1)
    assert spread("one-empty", 2, 1, 0) == (0, 0)
    with pytest.raises(ValueError, match="'random' is not one of contiguous, interleaved, one-empty"):
        spread("random", 2, 2, 0)


def test_a_cut_by_hand() -> None:
    """Sixteen positions over two ranks: chunks 0 and 3 to the first, 1 and 2 to the second; counted from ``first``."""
    assert held(0, 16, 16, 2, 0).tolist() == [0, 1, 2, 3, 12, 13, 14, 15]
    assert held(0, 16, 16, 2, 1).tolist() == [4, 5, 6, 7, 8, 9, 10, 11]
    # Three ranks, chunks of two: 0 and 5, 1 and 4, 2 and 3.
    assert [held(0, 12, 12, 3, rank).tolist() for rank in range(3)] == [[0, 1, 10, 11], [2, 3, 8, 9], [4, 5, 6, 7]]
    # A response of 6 whose first logit stands at position 9: the last of it at 14.
    assert held(9, 15, 16, 2, 0).tolist() == [3, 4, 5]


@given(total=st.integers(1, 60), more=st.integers(0, 5), cp=st.integers(1, 4), share=st.integers(0, 59))
def test_each_token_has_one_owner(total: int, more: int, cp: int, share: int) -> None:
    """The ranks' parts of a response are disjoint, together they are all of it."""
    padded = 2 * cp * (-(-total // (2 * cp)) + more)
    length = min(share, total - 1)
    plan = Plan(Layout(cp=cp), (0,), (length,), (total,), (padded,), True)
    parts = [plan.own(0, rank).tolist() for rank in range(cp)]
    assert list(range(length)) == sorted(token for part in parts for token in part)
    assert [padded // cp] * cp == [len(plan.positions(0, rank)) for rank in range(cp)]


def test_sizes_count_each_batch() -> None:
    """A rank's counts of the optimizer batches follow from its samples, empty batches included."""
    plan = Plan(Layout(dp=2), (0, 1, 1, 0, 1), (1,) * 5, (2,) * 5, (2,) * 5, False)
    assert plan.sizes(0, [2, 0, 3]) == [1, 0, 1]
    assert plan.sizes(1, [2, 0, 3]) == [1, 0, 2]


@pytest.mark.parametrize("name", ["one", "dp2", "tp2", "cp2", "tp2-cp2", "dp2-cp2"])
@pytest.mark.parametrize(("words", "qkv_format"), [((), "thd"), (("padded",), "thd"), (("bshd", "padded"), "bshd")])
def test_what_is_packed_is_unpacked(name: str, words: tuple[str, ...], qkv_format: str) -> None:
    """Rows laid out over all ranks come back as they were, and what is not a response's is counted."""
    layout, lengths = Layout.parse(name), (4, 0, 7, 1, 2)
    plan = plan_for(name, layout, lengths, padded="padded" in words, alike=qkv_format == "bshd")
    rows = [np.arange(1, 1 + total * 3, dtype=np.float32).reshape(total, 3) * (k + 1)
            for k, total in enumerate(plan.total_lengths)]  # fmt: skip
    parts = {}
    for rank in range(layout.world):
        tp, cp, dp, _ = layout.coordinates(rank)
        parts[tp, cp, dp] = torch.from_numpy(pack(rows, plan, qkv_format, (tp, cp, dp)))
    found = unpack(parts, plan, qkv_format, 3)
    ends = [total - 1 for total in plan.total_lengths]
    responses = np.concatenate([part[end - n : end] for part, end, n in zip(rows, ends, lengths, strict=True)])
    assert found[""].tolist() == responses.tolist()
    left = sum(float(np.abs(part).sum()) for part in rows) - float(responses.sum())
    padding = 3 * FILL * (sum(plan.sequence_lengths) - sum(plan.total_lengths))
    # With two tensor-parallel ranks an entry that is never drawn, at minus infinity, pads the vocabulary of three.
    assert float(found[".elsewhere"]) == (left + padding if layout.tp == 1 else math.inf)


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_cut_is_assembled(name: str) -> None:
    """A vector's parts and a sum's addends, as the ranks hold them, give the batch again."""
    case = advantages_of("advantage.estimate/grpo/mixed", name)
    layout, plan = case.layout, case.plan
    whole = [torch.arange(1.0, 1 + length) + 100 * k for k, length in enumerate(plan.response_lengths)]
    ranks = []
    for rank in range(layout.world):
        _, cp, dp, _ = layout.coordinates(rank)
        own = torch.cat([torch.zeros(0), *(whole[sample][plan.own(sample, cp)] for sample in plan.samples(dp))])
        ranks.append({"advantages": own, "count": torch.tensor(float(len(own)))})
    found = assemble(case, ranks)
    assert found["advantages"].tolist() == torch.cat(whole).tolist()
    assert found["count"].tolist() == sum(plan.response_lengths)
    assert found["count"].dtype == torch.float64


def test_a_part_of_another_length_is_a_misfit() -> None:
    """A token too many in one rank's part, and an array that one rank lacks, are errors that name it."""
    case = advantages_of("advantage.estimate/grpo/mixed", "dp2")
    held = [sum(case.plan.response_lengths[sample] for sample in case.plan.samples(dp)) for dp in range(2)]
    with pytest.raises(Misfit, match=rf"kl has shape \[{held[1] + 1}\] on cp 0, dp 1, which hold {held[1]} tokens"):
        assemble(case, [{"kl": torch.zeros(held[0])}, {"kl": torch.zeros(held[1] + 1)}])
    with pytest.raises(Misfit, match="kl came from 1 ranks"):
        assemble(case, [{"kl": torch.zeros(held[0])}, {}])


def test_malformed_input_is_on_one_rank_alone() -> None:
    """The other data-parallel ranks hold one good sample, and a plan that counts it."""
    case = advantages_of("advantage.estimate/gdpo/plan-too-small", "dp3")
    given = {rank: shard.inputs["mini_batch_sizes"] for rank, shard in enumerate(shards(case))}
    assert given == {rank: [3, 2] if rank == case.culprit else [1] for rank in range(3)}
    assert len(shards(case)[case.culprit].inputs["rewards"]) == 6


def test_a_shard_tells_the_sizes_of_its_world() -> None:
    """The options of a rank's case are those of the batch, and its layout."""
    case = advantages_of("advantage.estimate/ppo/masked", "dp2-cp2")
    options = {name: shards(case)[0].options[name] for name in ("context_parallel_size", "tensor_model_parallel_size")}
    assert options == {"context_parallel_size": 2, "tensor_model_parallel_size": 1}
    assert shards(case)[3].options["lambd"] == 0.95
