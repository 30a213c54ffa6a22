"""Rank cases on real ranks, falsified one at a time: an input of one rank, a rank that dies, stays away or hangs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from verification.cases import find
from verification.cases.case import Case
from verification.ranks.cases import RankCase
from verification.ranks.faults import Fault
from verification.ranks.findings import EVERY_RANK, FROZEN, ONE_RANK, OTHER_RANKS, Judged
from verification.ranks.judge import judge_run
from verification.ranks.layout import Layout
from verification.ranks.on_logits import logit_case
from verification.ranks.pool import RankPool
from verification.ranks.reference import reference
from verification.ranks.shards import shards

pytestmark = pytest.mark.usefixtures("megatron")

CASES: dict[str, Case] = {
    "advantages": find("advantage.estimate/reinforce_plus_plus/mask-holes-gamma0.9-kl0.1"),
    "normalization": find("advantage.normalize/grpo/tokens-holes"),
    "objective": find("policy.loss/gspo/mask-holes"),
    "reduction": find("loss.reduce/grpo/mean-holes"),
    "log_probs": find("logprob.entropy/grpo/mixed"),
    "policy_loss": logit_case("gspo", "opsm-tis-kl", use_opsm=True, opsm_delta=0.02, use_tis=True, use_kl_loss=True,
                              kl_loss_coef=0.25, kl_loss_type="k3"),
}  # fmt: skip


def on(program: str, layout: str, *words: str) -> RankCase:
    """The program's case on a layout."""
    return RankCase(CASES[program], program, Layout.parse(layout), words)


def run(pool: RankPool, rank_case: RankCase, parts: list[Case], **more: Any) -> Judged:
    """What the judge says where the ranks are given ``parts``."""
    function = f"verification.ranks.programs:{rank_case.program}"
    ended = pool.run(function, parts, layout=rank_case.layout, megatron=True, **more)
    return judge_run(rank_case, ended, lambda: reference(rank_case))


def against(found: Judged) -> set[str]:
    """With what the differences were found."""
    return {one.against for one in found.comparisons if not one.agrees}


def falsified(parts: list[Case], rank: int, name: str) -> list[Case]:
    """The parts with one input of one rank changed: each number x is 1 - x, and masks are turned round."""
    value = parts[rank].inputs[name]
    changed = 1 - value if isinstance(value, np.ndarray) else [1 - entry for entry in value]
    inputs = {**parts[rank].inputs, name: changed}
    return [replace(part, inputs=inputs) if place == rank else part for place, part in enumerate(parts)]


@pytest.mark.parametrize(
    ("program", "layout", "words", "name", "judges"),
    [
        ("advantages", "dp2", (), "rewards", {ONE_RANK}),
        ("advantages", "cp2", ("padded",), "log_probs", {ONE_RANK}),
        ("advantages", "tp2", (), "rewards", {OTHER_RANKS}),
        ("normalization", "dp2-cp2", (), "advantages", {ONE_RANK}),
        ("objective", "cp2", (), "log_probs", {ONE_RANK}),
        ("objective", "dp2-cp2", ("padded",), "loss_masks", {ONE_RANK}),
        ("reduction", "cp2", (), "full_loss_masks", {ONE_RANK}),
        ("log_probs", "tp2", (), "logits", {ONE_RANK}),
        ("log_probs", "tp2-cp2", ("padded",), "logits", {ONE_RANK}),
        ("policy_loss", "dp2-cp2", ("bshd",), "advantages", {ONE_RANK}),
        ("policy_loss", "tp2", (), "log_probs", {OTHER_RANKS}),
    ],
)
def test_one_input_of_one_rank_turns_the_verdict(
    pool: RankPool, program: str, layout: str, words: tuple[str, ...], name: str, judges: set[str]
) -> None:
    """The case holds; with one input of its last rank changed it differs, where it should be seen."""
    rank_case = on(program, layout, *words)
    parts = shards(rank_case)
    assert against(run(pool, rank_case, parts)) == set()
    found = against(run(pool, rank_case, falsified(parts, rank_case.layout.world - 1, name)))
    assert judges <= found


def test_an_early_stage_does_nothing(pool: RankPool) -> None:
    """The rank of the first stage returns without an array and enters no collective."""
    rank_case = on("advantages", "pp2")
    ended = pool.run("verification.ranks.programs:advantages", shards(rank_case), layout=Layout(pp=2), megatron=True)
    first, last = ended.values()
    assert (first["arrays"], first["mutated"], ended.ranks[0].collectives) == ({}, (), ())
    assert {name.partition("[")[0] for name in last["arrays"]} == {"kl", "advantages", "returns"}


def test_the_frozen_copy_runs_beside(pool: RankPool) -> None:
    """The baseline's normalisation is run by the same ranks, and compared rank by rank; other algorithms have none."""
    found = run(pool, on("normalization", "dp2"), shards(on("normalization", "dp2")))
    assert sum(one.against == FROZEN for one in found.comparisons) == 2
    without = RankCase(find("advantage.normalize/rloo/tokens-holes"), "normalization", Layout(dp=2))
    found = run(pool, without, shards(without))
    assert sum(one.against == FROZEN for one in found.comparisons) == 0
    assert against(found) == set()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("kill-before", "died (SIGKILL)"),
        ("skip", "left the call"),
        ("raise", "InjectedFault"),
        ("hang", "hung outside"),
    ],
)
def test_a_fault_is_a_difference_with_its_report(pool: RankPool, kind: str, words: str) -> None:
    """A rank that dies, leaves, raises or hangs at its first collective is a difference that says so."""
    rank_case = on("advantages", "dp2")
    found = run(pool, rank_case, shards(rank_case), fault=Fault(kind, rank=1), timeout=1.0, deadline=4.0)
    assert against(found) == {EVERY_RANK}
    assert any(words in one.detail for one in found.comparisons if one.what == "rank 1")
