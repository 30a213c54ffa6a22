"""The colocated advantage path on real ranks: one rank's numbers for every layout, and one end for every rank."""

from __future__ import annotations

import itertools

import pytest
import torch

from relax.algorithms.spec import ALGORITHM_SPECS
from tests.distributed import megatron_tasks
from tests.distributed.rollouts import Rollout, arguments, rollout, shard, whole_columns
from verification.judges.bits import first_difference
from verification.judges.ulps import ulp
from verification.ranks.faults import Fault
from verification.ranks.layout import Layout

pytestmark = pytest.mark.usefixtures("megatron")

TASKS = "tests.distributed.megatron_tasks"
NAMES = ("dp2", "tp2", "cp2", "cp2+padded", "pp2", "tp2-cp2+padded", "dp2-cp2")
PLACES = [(Layout.parse(name.removesuffix("+padded")), name.endswith("+padded")) for name in NAMES]
LAYOUTS = pytest.mark.parametrize(("layout", "padded"), PLACES, ids=NAMES)
ALGORITHMS = pytest.mark.parametrize("algorithm", sorted(ALGORITHM_SPECS))
WRITTEN = ("kl", "advantages", "returns")
OPTIONS = {"kl_coef": 0.125, "kl_loss_type": "k2", "gamma": 0.98, "lambd": 0.9}
MINI_BATCHES = (1, 0, 4, 1)  # with two data-parallel ranks three of them are empty on one rank or on both


def run_on(pool, layout: Layout, batch: Rollout, args, task: str = "advantages", change=None, **how):
    """The task on every rank's shard; ``change(rank, columns)`` spoils one first."""
    shards = [shard(batch, layout, rank, MINI_BATCHES) for rank in range(layout.world)]
    for rank, columns in enumerate(shards):
        if change is not None:
            change(rank, columns)
    return pool.run(f"{TASKS}:{task}", [(args, columns) for columns in shards], layout=layout, megatron=True, **how)


def holders(layout: Layout) -> list[list[int]]:
    """Ranks of the last pipeline stage, by tensor-parallel rank: each list holds every token once."""
    last = [rank for rank in range(layout.world) if layout.coordinates(rank)[3] == layout.pp - 1]
    return [[rank for rank in last if layout.coordinates(rank)[0] == tp] for tp in range(layout.tp)]


def one_rank(batch: Rollout, algorithm: str, **options) -> dict[str, list[torch.Tensor]]:
    return megatron_tasks.advantages(
        (arguments(Layout(), algorithm, **options), shard(batch, Layout(), 0, MINI_BATCHES))
    )


@ALGORITHMS
@LAYOUTS
def test_every_layout_has_the_numbers_of_one_rank(pool, layout, padded, algorithm):
    """KL, advantages and returns of every token, on every tensor-parallel rank, have the bits of one rank.

    But for GAE under data parallelism, whose matrix product has fewer rows there. Earlier pipeline stages write nothing
    and meet nobody.
    """
    batch = rollout(f"advantages {algorithm}", padded=padded)
    expected = one_rank(batch, algorithm, **OPTIONS)
    run = run_on(pool, layout, batch, arguments(layout, algorithm, **OPTIONS))
    values = run.values()
    for ranks, name in itertools.product(holders(layout), WRITTEN):
        whole = whole_columns(batch, layout, [value.get(name) for value in values], ranks)
        for got, one in zip(whole, expected[name], strict=True):
            if ALGORITHM_SPECS[algorithm].advantage_fn == "gae" and layout.dp > 1 and name != "kl":
                # reason: the same products, at most 17 a token, summed in another order: half an ulp each, on sums
                # that are no larger than the response's largest advantage times two.
                assert float((got - one).abs().max()) <= len(one) * ulp(float(one.abs().max()), torch.float32)
            else:
                assert first_difference(got, one) is None, name
    for rank in set(range(layout.world)) - set(itertools.chain(*holders(layout))):
        assert values[rank] == {}
        assert run.ranks[rank].collectives == ()


NORMALIZED = sorted(name for name, spec in ALGORITHM_SPECS.items() if not spec.forbids_normalize_advantages)


@pytest.mark.parametrize("algorithm", NORMALIZED)
@LAYOUTS
def test_normalised_tokens_are_those_of_one_rank(pool, layout, padded, algorithm):
    """Each token counts once, whichever rank holds it: mean and variance are the whole batch's, but for rounding."""
    batch = rollout(f"normalised {algorithm}", padded=padded)
    options = {**OPTIONS, "normalize_advantages": True}
    expected = one_rank(batch, algorithm, **options)["advantages"]
    values = run_on(pool, layout, batch, arguments(layout, algorithm, **options)).values()
    for ranks in holders(layout):
        whole = whole_columns(batch, layout, [value.get("advantages") for value in values], ranks)
        for got, one in zip(whole, expected, strict=True):
            assert float((got - one).abs().max()) <= rounding(batch, algorithm, expected)


def rounding(batch: Rollout, algorithm: str, normalised: list[torch.Tensor]) -> float:
    """How far the normalised advantages may be apart where their sums were made of other parts.

    Sums of 40 numbers in two orders are 40 halves of an ulp apart at most, relative to the sum of magnitudes. The
    variance is a difference of two, which grows that by what the square's mean exceeds it; the root halves it.
    """
    before = torch.cat(one_rank(batch, algorithm, **OPTIONS)["advantages"]).double()
    mask = torch.cat(batch.columns["loss_masks"]).double()
    mean = (before * mask).sum() / mask.sum()
    square = (before * before * mask).sum() / mask.sum()
    growth = float(square / (square - mean * mean))
    largest = max(float(tokens.abs().max()) for tokens in normalised)
    return 40 * 2.0**-24 * growth * (1 + largest)


STATISTICS = {
    "gdpo": ["all_to_all_single", "all_to_all_single"],  # header and values, for any number of optimizer batches
    "grpo": ["all_reduce"],
    "ppo": ["all_reduce"],
    "reinforce_plus_plus": ["all_reduce", "all_reduce"],
}


@pytest.mark.parametrize("algorithm", STATISTICS)
@LAYOUTS
def test_ranks_meet_a_fixed_number_of_times(pool, layout, padded, algorithm):
    """To agree on how each fared, before and behind the formula, and for the statistic; once more to gather responses.

    The last only under context parallelism and for what runs along a response. A rank alone in a group meets nobody.
    """
    batch, spec = rollout("meetings", padded=padded), ALGORITHM_SPECS[algorithm]
    args = arguments(layout, algorithm, **OPTIONS, normalize_advantages=not spec.forbids_normalize_advantages)
    run = run_on(pool, layout, batch, args)
    run.values()
    agreement = ["all_to_all_single"] * (layout.world > layout.pp)
    gathered = ["all_to_all_single"] * (layout.cp > 1 and spec.advantage_fn in ("gae", "discounted_returns"))
    # Rewards are whitened among data-parallel ranks, tokens normalised among those that share them too.
    inside = STATISTICS[algorithm] if algorithm == "gdpo" and layout.dp > 1 else []
    behind = STATISTICS[algorithm] if algorithm != "gdpo" and layout.dp * layout.cp > 1 else []
    expected = [*agreement, *gathered, *inside, *agreement, *behind]
    for rank in itertools.chain(*holders(layout)):
        assert [call.split()[0] for call in run.ranks[rank].collectives] == expected


# Each kind of fault: what spoils the culprit's columns, the algorithm that meets it, and what every rank is told.
FAULTS = {
    "no-rewards": ("gdpo", lambda columns: columns.pop("rewards"), "KeyError: 'rewards'"),
    "no-reference": ("grpo", lambda columns: columns.pop("ref_log_probs"), "ValueError: kl_coef is 0.125"),
    "no-shape": (
        "grpo",
        lambda columns: [columns.pop(name) for name in ("log_probs", "rollout_log_probs", "values")],
        "ValueError: rollout_data holds",
    ),
    "no-values": ("ppo", lambda columns: columns.pop("values"), "ValueError: ppo needs the critic's values"),
    "masked-throughout": (
        "reinforce_plus_plus",
        lambda columns: columns.update(loss_masks=[mask * 0 for mask in columns["loss_masks"]]),
        "ValueError: response 0 is masked throughout",
    ),
    "mask-of-another-shape": (
        "grpo",
        lambda columns: columns.update(loss_masks=[torch.ones(99) for _ in columns["loss_masks"]]),
        "ValueError: response 0: ",
    ),
    "nan-reward": (
        "gdpo",
        lambda columns: columns["rewards"].__setitem__(0, float("nan")),
        "value 0 is not finite",
    ),
    "no-sizes": ("gdpo", lambda columns: columns.pop("mini_batch_sizes"), "mini_batch_sizes is None"),
    "wrong-sizes": ("gdpo", lambda columns: columns.update(mini_batch_sizes=[99]), "mini_batch_sizes sum to 99"),
}


WHITENING = "whitening over the optimizer batch: "


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("name", ["dp2", "tp2", "cp2", "tp2-cp2", "dp2-cp2", "dp3"])
def test_what_is_wrong_on_one_rank_fails_all_of_them(pool, name, kind):
    """Every rank fails, names the culprit and its complaint, and writes nothing; the world is still in step."""
    algorithm, spoil, complaint = FAULTS[kind]
    layout, batch = Layout.parse(name), rollout("faults")
    culprit = layout.world - 1
    named = (f"rank {culprit}: ", f"{WHITENING}rank {layout.coordinates(culprit)[2]}: ")  # which counts data ranks

    def change(rank, columns):
        if rank == culprit:
            spoil(columns)

    normalize = not ALGORITHM_SPECS[algorithm].forbids_normalize_advantages
    args = arguments(layout, algorithm, **OPTIONS, normalize_advantages=normalize)
    run = run_on(pool, layout, batch, args, "advantages_and_what_is_left", change, deadline=10.0)
    for rank, (failure, columns) in enumerate(run.values()):
        assert failure.startswith(("RankFailure: ", f"ValueError: {WHITENING}"))
        assert any(name in failure for name in named)
        assert complaint in failure
        assert not {"kl", "returns"} & set(columns), rank
    again = run_on(pool, layout, batch, args)
    assert all(set(value) == set(WRITTEN) for value in again.values())


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_peer_that_dies_is_an_error_on_the_others(pool, at):
    """Whichever collective it does not reach, the survivors raise that a peer is lost, within the time-out."""
    layout, batch = Layout(dp=2), rollout("dies")
    args = arguments(layout, "gdpo")
    fault = Fault("kill-before", rank=1, at=at)
    run = run_on(pool, layout, batch, args, fault=fault, timeout=2.0, deadline=10.0)
    assert run.fault_fired == 1
    assert run.ended == ("failure", "died")
    assert run.ranks[0].failure.kind == "LostPeer"


@pytest.mark.parametrize(("algorithm", "normalize"), [("gdpo", False), ("reinforce_plus_plus", True), ("ppo", True)])
@pytest.mark.parametrize("name", ["dp2", "dp2-cp2"])
def test_a_rank_with_nothing_to_do_joins(pool, name, algorithm, normalize):
    """A data-parallel rank without samples, for which no log-prob was computed, writes empty columns like the rest."""
    layout, batch = Layout.parse(name), rollout("one sample", lengths=[(4, 3)])
    args = arguments(layout, algorithm, **OPTIONS, normalize_advantages=normalize)

    def change(rank, columns):
        columns["mini_batch_sizes"] = [len(columns["rewards"])]
        if not columns["rewards"]:
            for name in ("log_probs", "rollout_log_probs", "ref_log_probs", "values"):
                del columns[name]

    values = run_on(pool, layout, batch, args, change=change).values()
    assert [len(value["advantages"]) for value in values] == [1] * layout.cp + [0] * layout.cp
    whole = whole_columns(batch, layout, [value["advantages"] for value in values], range(layout.world))
    assert all(bool(tokens.isfinite().all()) for tokens in whole)


def test_an_empty_slice_joins(pool):
    """A response that lies on one context-parallel rank leaves the other an empty part and the same collectives."""
    layout, batch = Layout(cp=2), rollout("late", lengths=[(40, 3)])
    args = arguments(layout, "ppo", **OPTIONS, normalize_advantages=True)
    run = run_on(pool, layout, batch, args, change=lambda rank, columns: columns.update(mini_batch_sizes=[1]))
    assert [len(value["advantages"][0]) for value in run.values()] == [3, 0]
    assert run.ranks[0].collectives == run.ranks[1].collectives
