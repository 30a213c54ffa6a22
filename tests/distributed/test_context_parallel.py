"""Context parallelism on megatron's own groups: what a rank reads of them, gathered parts, means over a response."""

from __future__ import annotations

import pytest
import torch

from tests.distributed import megatron_tasks
from tests.distributed.rollouts import arguments, own_tokens, rollout, shard, whole_columns
from verification.cases.integers import Integers
from verification.judges.bits import first_difference
from verification.judges.ulps import ulp_distance
from verification.ranks.faults import Fault
from verification.ranks.layout import Layout

pytestmark = pytest.mark.usefixtures("megatron")

TASKS = "tests.distributed.megatron_tasks"
LAYOUTS = pytest.mark.parametrize(
    "layout", [Layout(cp=2), Layout(tp=2, cp=2), Layout(cp=2, dp=2)], ids=lambda one: one.name
)


@pytest.mark.parametrize("name", ["one", "tp2", "cp2", "pp2", "tp2-cp2", "dp2-cp2", "dp2-pp2"])
def test_the_groups_are_megatrons(pool, name):
    """Each rank finds itself in its groups at the place that megatron's order of ranks gives it."""
    layout = Layout.parse(name)
    run = pool.run(f"{TASKS}:groups", [None] * layout.world, layout=layout, megatron=True)
    for rank, found in enumerate(run.values()):
        tp, cp, dp, pp = layout.coordinates(rank)
        assert found == {
            "tensor": (layout.tp, tp),
            "context": (layout.cp, cp),
            "data": (layout.dp, dp),
            "data_and_context": (layout.dp * layout.cp, dp * layout.cp + cp),
            "stage": (layout.world // layout.pp, rank % (layout.world // layout.pp)),
            "is_last_pipeline_stage": pp == layout.pp - 1,
        }


def test_without_megatrons_groups_it_is_an_error_that_says_so(pool):
    """torch.distributed without initialize_model_parallel is no single process."""
    run = pool.run(f"{TASKS}:groups", [None] * 2, layout=Layout(dp=2))
    for result in run.ranks:
        assert result.failure.kind == "RuntimeError"
        assert "initialize_model_parallel" in result.failure.message


def test_another_size_than_megatrons_is_refused(pool):
    """The command line's size and the group's are both named, on every rank, before any collective."""
    layout = Layout(cp=2)
    args = arguments(Layout(cp=4))
    run = pool.run(f"{TASKS}:round_trip", [(args, {"total_lengths": [9], "response_lengths": [4]})] * 2, layout=layout)
    for result in run.ranks:
        assert result.failure.kind == "ValueError"
        assert "context_parallel_size is 4" in result.failure.message
        assert "2 rank(s)" in result.failure.message
        assert result.collectives == ()


def special(stream: Integers, length: int, dtype: torch.dtype) -> torch.Tensor:
    """Any bits of 64 or 16 are a number to someone: NaNs with payloads, -0, infinities among them."""
    width = {torch.float64: torch.int64, torch.bfloat16: torch.int16}[dtype]
    info = torch.iinfo(width)
    return torch.tensor([stream.between(info.min, info.max) for _ in range(length)], dtype=width).view(dtype)


@pytest.mark.parametrize("padded", [False, True])
@LAYOUTS
def test_parts_come_together_to_the_bit_in_one_collective(pool, layout, padded):
    """Three lists of three dtypes, one exchange; backwards one all_reduce, which sums what each rank's loss says."""
    batch, stream = rollout("gather", padded=padded), Integers("gather special")
    responses = batch.columns["response_lengths"]
    lists = [
        [torch.from_numpy(stream.array(length, -9, 9, 0)) for length in responses],
        [special(stream, length, torch.float64) for length in responses],
        [special(stream, length, torch.bfloat16) for length in responses],
    ]
    one_data_rank = Layout(tp=layout.tp, cp=layout.cp)  # every data-parallel rank is given the whole batch here
    columns = shard(batch, one_data_rank, 0)
    given = {name: columns[name] for name in megatron_tasks.LENGTHS if name in columns}
    argument = (arguments(layout), {**given, "lists": lists})
    run = pool.run(f"{TASKS}:round_trip", [argument] * layout.world, layout=layout)
    for rank, (gathered, gradients) in enumerate(run.values()):
        for got, expected in zip(gathered, lists, strict=True):
            assert all(first_difference(one, other) is None for one, other in zip(got, expected, strict=True))
        cp = layout.coordinates(rank)[1]
        sizes = [len(own_tokens(batch, sample, layout.cp, cp)) for sample in range(len(responses))]
        assert [gradient.tolist() for gradient in gradients] == [[3.0] * size for size in sizes]
        assert [call.split()[0] for call in run.ranks[rank].collectives] == ["all_to_all_single", "all_reduce"]


@pytest.mark.parametrize(
    "lengths", [[(40, 3), (50, 1)], [(9, 0), (1, 0)], []], ids=["one-sided", "no-token", "nothing"]
)
def test_ranks_without_a_token_join_and_nothing_hangs(pool, lengths):
    """Responses of one rank alone, without tokens, and none at all: both ranks enter the same collectives."""
    layout = Layout(cp=2)
    columns = {
        "total_lengths": [sum(pair) for pair in lengths],
        "response_lengths": [response for _, response in lengths],
        "lists": [[torch.arange(response, dtype=torch.float32) for _, response in lengths]],
    }
    run = pool.run(f"{TASKS}:gathered", [(arguments(layout), columns)] * 2, layout=layout)
    for gathered in run.values():
        assert [tokens.tolist() for tokens in gathered] == [tokens.tolist() for tokens in columns["lists"][0]]
    assert [len(result.collectives) for result in run.ranks] == [1 if lengths else 0] * 2


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    ("algorithm", "options"),
    [("grpo", {}), ("gspo", {}), ("gspo", {"use_opsm": True}), ("cispo", {"use_opsm": True})],
    ids=["token", "sequence", "sequence-opsm", "opsm"],
)
@LAYOUTS
def test_means_over_a_response_are_those_of_one_rank(pool, layout, padded, algorithm, options):
    """Every token's loss, clip fraction and KL has the bits of one rank, though the response lies on two.

    So has its gradient where its ratio is its own; that of a sequence's ratio is a sum over ranks.
    """
    batch = rollout(f"objective {algorithm}", padded=padded)
    options = {"opsm_delta": 0.02, **options}
    expected = megatron_tasks.objective((arguments(Layout(), algorithm, **options), shard(batch, Layout(), 0)))
    args = arguments(layout, algorithm, **options)
    shards = [(args, shard(batch, layout, rank)) for rank in range(layout.world)]
    run = pool.run(f"{TASKS}:objective", shards, layout=layout)
    by_response = algorithm == "gspo"
    for ranks in ranks_of_each_part(layout):
        for name in ("loss", "clipfrac", "ppo_kl", "gradient"):
            whole = whole_columns(batch, layout, [value[name] for value in run.values()], ranks)
            for one, other in zip(whole, expected[name], strict=True):
                if by_response and name == "gradient" and len(one):
                    # reason: a sum of the response's equal numbers, at most 17, by one rank or by two: half an ulp for
                    # each but the first, and three products.
                    assert float(ulp_distance(one, other).max()) <= 12
                else:
                    assert first_difference(one, other) is None
    forwards, backwards = (1, 1) if by_response else (1, 0) if options.get("use_opsm") else (0, 0)
    for result in run.ranks:
        calls = [call.split()[0] for call in result.collectives]
        assert calls == ["all_to_all_single"] * forwards + ["all_reduce"] * backwards


def ranks_of_each_part(layout: Layout) -> list[list[int]]:
    """For each tensor-parallel rank those of the last stage that hold the batch among them."""
    places = [layout.coordinates(rank) for rank in range(layout.world)]
    return [
        [rank for rank, (of, _, _, pp) in enumerate(places) if of == tp and pp == layout.pp - 1]
        for tp in range(layout.tp)
    ]


def test_a_peer_that_dies_in_the_gather_is_an_error_on_the_other(pool):
    """The survivor's error names the collective, within the time-out."""
    layout, batch = Layout(cp=2), rollout("dies")
    args = arguments(layout, "gspo")
    shards = [(args, shard(batch, layout, rank)) for rank in range(2)]
    run = pool.run(
        f"{TASKS}:objective",
        shards,
        layout=layout,
        fault=Fault("kill-before", rank=1, at=1),
        timeout=2.0,
        deadline=10.0,
    )
    assert run.fault_fired == 1
    assert run.ended == ("failure", "died")
    assert run.ranks[0].failure.kind == "LostPeer"
    assert "all_to_all_single" in run.ranks[0].failure.message
