"""The judge of rank cases on planted ends of ranks: an honest run agrees, each falsified part of it differs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from verification.cases import find
from verification.cases.normalization import normalize_case
from verification.judges.comparison import Comparison
from verification.ranks.bounds import BOUNDS, REDUCED, WHITEN, bound_of
from verification.ranks.cases import RankCase
from verification.ranks.findings import CONTRACT, EVERY_RANK, FROZEN, ONE_RANK, OTHER_RANKS, Judged
from verification.ranks.judge import farthest, judge_run
from verification.ranks.layout import Layout
from verification.ranks.reference import reference
from verification.ranks.results import Failure, Hung, RankResult, RankRun

GRPO = "advantage.estimate/grpo/mixed"
REFUSED = "advantage.estimate/gdpo/plan-too-small"


def on(identity: str, layout: str, program: str = "advantages", *words: str) -> RankCase:
    """A case of the corpus on a layout."""
    return RankCase(find(identity), program, Layout.parse(layout), words)


def run_of(rank_case: RankCase, *results: RankResult) -> RankRun:
    """One task with these ends."""
    return RankRun("planted", rank_case.layout, results)


def honest(rank_case: RankCase) -> list[dict[str, Any]]:
    """What each rank gives where all is well: its part of one rank's arrays; the frozen copy's beside them."""
    plan, values = rank_case.plan, []
    arrays = {name: whole.split(plan.response_lengths) for name, whole in reference(rank_case).arrays.items()}
    for rank in range(rank_case.layout.world):
        _, cp, dp, pp = rank_case.layout.coordinates(rank)
        own: dict[str, torch.Tensor] = {}
        if pp == rank_case.layout.pp - 1:
            samples = plan.samples(dp)
            own = {
                name: torch.cat([torch.zeros(0), *(parts[sample][plan.own(sample, cp)] for sample in samples)])
                for name, parts in arrays.items()
            }
        if rank_case.program == "normalization":
            own.update({f"frozen.{name}": tensor.clone() for name, tensor in own.items()})
        values.append({"arrays": own, "mutated": ()})
    return values


def judged(rank_case: RankCase, values: list[dict[str, Any]]) -> Judged:
    """The findings on ranks that all returned."""
    results = [RankResult(rank, value) for rank, value in enumerate(values)]
    return judge_run(rank_case, run_of(rank_case, *results), lambda: reference(rank_case))


def differences(found: Judged) -> list[tuple[str, str]]:
    """What each difference was found against, and what differs."""
    return [(one.against, one.what) for one in found.comparisons if not one.agrees]


def a_bit(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with the last bit of its first element turned."""
    bits = tensor.view(torch.int32).clone()
    bits[0] ^= 1
    return bits.view(torch.float32)


@pytest.mark.parametrize("layout", ["one", "dp2", "dp3", "cp2", "tp2", "pp2", "tp2-cp2", "dp2-cp2"])
def test_an_honest_run_agrees(layout: str) -> None:
    """The parts of one rank's arrays are the batch: comparisons with one rank, none of them a difference."""
    rank_case = on(GRPO, layout)
    found = judged(rank_case, honest(rank_case))
    assert differences(found) == []
    assert sum(one.against == ONE_RANK for one in found.comparisons) == 3
    assert {rank_case.id} == {one.case for one in found.comparisons}


def test_a_bit_of_one_rank_is_a_difference() -> None:
    """Where bits are demanded, one bit in one token of one rank is found, under its response's place in the batch."""
    rank_case = on(GRPO, "dp2")
    values = honest(rank_case)
    values[1]["arrays"]["advantages"] = a_bit(values[1]["arrays"]["advantages"])
    found = judged(rank_case, values)
    assert differences(found) == [(ONE_RANK, "advantages")]
    (detail,) = (one.detail for one in found.comparisons if not one.agrees)
    assert detail.startswith("1 of 22 differ, first at [")
    assert detail.endswith(f" (response {rank_case.plan.samples(1)[0]}, token 0)")


def test_a_peer_that_differs_is_a_difference() -> None:
    """Tensor-parallel ranks hold the same tokens: a bit of the second is found against the first."""
    rank_case = on(GRPO, "tp2")
    values = honest(rank_case)
    values[1]["arrays"]["returns"] = a_bit(values[1]["arrays"]["returns"])
    assert differences(judged(rank_case, values)) == [(OTHER_RANKS, "returns")]


def test_an_early_stage_that_writes_is_a_difference() -> None:
    """A pipeline stage before the last gives nothing."""
    rank_case = on(GRPO, "pp2")
    values = honest(rank_case)
    values[0]["arrays"]["kl"] = torch.zeros(1)
    assert differences(judged(rank_case, values)) == [(OTHER_RANKS, "stages before the last")]


def test_a_frozen_copy_that_differs_is_a_difference() -> None:
    """Each rank's own arrays have the bits of the frozen copy on that rank, whatever one rank gives."""
    rank_case = on("advantage.normalize/grpo/tokens-full", "dp2", "normalization")
    values = honest(rank_case)
    assert differences(judged(rank_case, values)) == []
    values[0]["arrays"]["advantages"] = a_bit(values[0]["arrays"]["advantages"])
    assert differences(judged(rank_case, values)) == [(FROZEN, "advantages")]


def test_a_bound_is_held_to_its_ulps() -> None:
    """Half a bound away agrees and is measured; one and a half bounds away differs, and says where."""
    rank_case = on("advantage.normalize/grpo/tokens-full", "dp2", "normalization")
    values = honest(rank_case)
    sample = rank_case.plan.samples(0)[0]
    scale = reference(rank_case).scales["advantages"][sum(rank_case.plan.response_lengths[:sample])]
    step = math.ldexp(1.0, math.frexp(scale)[1] - 24)
    for bounds_away, agrees in ((0.5, True), (1.5, False)):
        moved = values[0]["arrays"]["advantages"].clone()
        moved[0] += bounds_away * WHITEN.ulps * step
        arrays = {"advantages": moved, "frozen.advantages": moved}
        found = judged(rank_case, [{**values[0], "arrays": arrays}, *values[1:]])
        assert differences(found) == ([] if agrees else [(ONE_RANK, "advantages")])
        (measured,) = found.measured
        assert round(measured.ulps) == bounds_away * WHITEN.ulps  # the moved value is itself rounded to a float32
        assert (measured.formula, measured.bound) == (WHITEN.formula, WHITEN.ulps)
    assert f"(response {sample}, token 0): got" in next(one.detail for one in found.comparisons if not one.agrees)


@pytest.mark.parametrize(
    ("plant", "names"),
    [
        (lambda arrays: arrays.pop("returns"), {"parts"}),
        (lambda arrays: arrays.update(returns=arrays["returns"][:-1]), {"parts"}),
        (lambda arrays: arrays.update(returns=torch.zeros(())), {"parts"}),
        (lambda arrays: arrays.update(returns=arrays["returns"].double()), {"parts"}),
        (lambda arrays: arrays.update(surplus=arrays["returns"]), {"parts"}),
        (lambda arrays: arrays.update(returns=arrays["returns"] * math.nan), {"returns"}),
    ],
    ids=["missing", "short", "no vector", "another dtype", "surplus", "not a number"],
)
@pytest.mark.parametrize("layout", ["dp2", "cp2"])
def test_a_part_that_does_not_fit_is_a_difference(
    layout: str, plant: Callable[[dict[str, torch.Tensor]], Any], names: set[str]
) -> None:
    """An array that one rank alone lacks, has, or has in another shape or kind differs from one rank's."""
    rank_case = on(GRPO, layout)
    values = honest(rank_case)
    plant(values[1]["arrays"])
    assert set(differences(judged(rank_case, values))) == {(ONE_RANK, name) for name in names}


@pytest.mark.parametrize("name", ["returns", "surplus"])
def test_an_array_that_all_ranks_have_too_many_or_too_few_differs(name: str) -> None:
    """Names that the ranks have and one rank has not, or the reverse, are differences of their own."""
    rank_case = on(GRPO, "dp2")
    values = honest(rank_case)
    for value in values:
        value["arrays"][name] = value["arrays"].pop("kl")
    assert (ONE_RANK, "kl") in differences(judged(rank_case, values))
    assert (ONE_RANK, name) in differences(judged(rank_case, values))


def test_a_changed_input_is_a_difference() -> None:
    """A program that changed what it was given is found, with the rank and the input's name."""
    rank_case = on(GRPO, "dp2")
    values = honest(rank_case)
    values[1]["mutated"] = ("rewards[0]",)
    found = judged(rank_case, values)
    assert differences(found) == [(EVERY_RANK, "mutated inputs")]
    assert [one.detail for one in found.comparisons if not one.agrees] == ["rank 1 changed rewards[0]"]


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (RankResult(1, died="SIGKILL"), "rank 1 died (SIGKILL)"),
        (RankResult(1, hung=Hung("frames", "all_gather int64[6]")), "rank 1 hung in all_gather int64[6]"),
        (RankResult(1, skipped=True), "rank 1 left the call"),
        (RankResult(1, failure=Failure("ZeroDivisionError", "by zero", "")), "failed with ZeroDivisionError: by zero"),
    ],
    ids=["died", "hung", "left", "failed"],
)
def test_a_rank_that_does_not_return_is_a_difference(end: RankResult, words: str) -> None:
    """Whatever the others gave, the rank's end is the difference, with its report."""
    rank_case = on(GRPO, "dp2")
    results = (RankResult(0, honest(rank_case)[0]), end)
    found = judge_run(rank_case, run_of(rank_case, *results), lambda: reference(rank_case))
    assert differences(found) == [(EVERY_RANK, "rank 1")]
    assert words in found.comparisons[0].detail


def refusal(rank_case: RankCase, *failures: Failure | None) -> list[Comparison]:
    """The comparisons of a malformed case on which the ranks ended so; None returned a value."""
    results = [
        RankResult(rank, {"arrays": {}, "mutated": ()}) if failure is None else RankResult(rank, failure=failure)
        for rank, failure in enumerate(failures)
    ]
    return judge_run(rank_case, run_of(rank_case, *results), lambda: reference(rank_case)).comparisons


def test_a_refusal_on_every_rank_agrees() -> None:
    """The same documented error on every rank, with the case's words and the rank that brought it, is right."""
    rank_case = on(REFUSED, "dp2")
    text = f"whitening over the optimizer batch: rank {rank_case.culprit}: mini_batch_sizes sum to 5, but it holds 6"
    for told in (text, f"before a statistic over 2 ranks: rank 0: ValueError: {text}; rank 1: ValueError: {text}"):
        failure = Failure("ValueError", told, "")
        assert all(one.agrees for one in refusal(rank_case, failure, failure)), told
    assert {CONTRACT} == {one.against for one in refusal(rank_case, failure, failure)}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda good: None, "rank 1"),
        (lambda good: replace(good, kind="RuntimeError"), "rank 1 kind"),
        (lambda good: replace(good, message=good.message.replace("sizes", "size")), "rank 1 message"),
        (lambda good: replace(good, message=good.message + "; rank 7: value 3"), "rank 1 ranks named"),
        (lambda good: replace(good, message=good.message.replace("rank", "process")), "rank 1 ranks named"),
        (lambda good: replace(good, message=good.message + "."), "rank 1 as the first"),
    ],
    ids=["a result", "another kind", "a word missing", "an innocent named", "nobody named", "other words"],
)
def test_a_refusal_that_is_not_the_same_everywhere_differs(
    change: Callable[[Failure], Failure | None], what: str
) -> None:
    """One rank with a result, another kind, other words, or other ranks named."""
    rank_case = on(REFUSED, "dp2")
    told = f"whitening over the optimizer batch: rank {rank_case.culprit}: mini_batch_sizes sum to 5, but it holds 6"
    good = Failure("ValueError", told, "")
    assert what in [one.what for one in refusal(rank_case, good, change(good)) if not one.agrees]


def test_an_early_stage_refuses_nothing() -> None:
    """With two pipeline stages the first returns and the last fails; the other way round both differ."""
    rank_case = on(REFUSED, "pp2")
    told = Failure("ValueError", "whitening over the optimizer batch: rank 0: mini_batch_sizes sum to 5, not 6", "")
    assert all(one.agrees for one in refusal(rank_case, None, told))
    assert [one.what for one in refusal(rank_case, told, None) if not one.agrees] == ["rank 0", "rank 1"]


def test_distances_by_hand() -> None:
    """Ulps of the scale, not of the value; a NaN on both sides is none, on one side it is infinitely far."""
    one = torch.tensor([1.0, 0.0, math.nan, 5.0])
    assert farthest(one, one.clone(), [1.0, 1.0, 1.0, 1.0]) == (0.0, None)
    other = torch.tensor([1.0, 2.0**-23, math.nan, 6.0])
    assert farthest(other, one, [1.0, 1.0, 1.0, math.inf]) == (1.0, 1)
    assert farthest(other, one, [2.0, 2.0, 2.0, math.inf]) == (0.5, 1)
    assert farthest(torch.tensor([math.nan]), torch.tensor([1.0]), [math.inf]) == (math.inf, 0)
    assert farthest(torch.tensor([math.inf]), torch.tensor([3.0]), [math.inf]) == (math.inf, 0)
    assert farthest(torch.zeros(2), torch.zeros(3), [1.0] * 3) == (math.inf, None)
    assert farthest(torch.zeros(1), torch.zeros(1, dtype=torch.float64), [1.0]) == (math.inf, None)


def test_bits_are_demanded_wherever_no_sum_is_split() -> None:
    """GDPO has no bound on any layout; one rank and tensor or pipeline peers have none before the logits."""
    for layout in ("dp2", "dp3", "dp4", "cp2", "dp2-cp2", "tp2-cp2"):
        assert bound_of(on(REFUSED, layout), "advantages") is None
    normalization = "advantage.normalize/grpo/tokens-full"
    for layout, bound in (("one", None), ("tp2", None), ("dp2", WHITEN), ("cp2", WHITEN), ("tp2-cp2", WHITEN)):
        assert bound == bound_of(on(normalization, layout, "normalization"), "advantages"), layout
    off = normalize_case("grpo", "off", [], [], on=False)
    assert bound_of(RankCase(off, "normalization", Layout(dp=2)), "advantages") is None
    reduction = on("loss.reduce/grpo/mean-holes", "cp2", "reduction")
    assert (bound_of(reduction, "loss"), bound_of(reduction, "grad.values")) == (REDUCED, None)


def test_bounds_are_not_vacuous() -> None:
    """Each bound has a reason, room for what was seen, and not much more."""
    for bound in BOUNDS:
        assert bound.reason
        assert 0 < bound.seen <= bound.ulps <= 4 * bound.seen + 2, bound.formula
