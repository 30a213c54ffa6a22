"""The two advantage paths: the same bits on the same rollout, and the three differences that are kept on purpose."""

from __future__ import annotations

import copy

import pytest
import torch

from relax.algorithms.spec import ALGORITHM_SPECS
from relax.backends.megatron.loss import compute_advantages_and_returns
from relax.components.advantages import advantages_of_batch
from tests.distributed.rollouts import Rollout, arguments, rollout, shard, whole_columns
from verification.judges.bits import first_difference
from verification.ranks.layout import Layout

TASKS = "tests.distributed.megatron_tasks"
OPTIONS = {"kl_coef": 0.125, "kl_loss_type": "k3", "gamma": 0.98, "lambd": 0.9}
COLUMNS = ("kl", "advantages", "returns")
SHAPING = ("log_probs", "rollout_log_probs", "values")  # each tells the shape of every response
ALGORITHMS = pytest.mark.parametrize("algorithm", sorted(ALGORITHM_SPECS))


def whole(batch: Rollout) -> dict:
    """The rollout as the service has it: whole responses, and no advantages yet."""
    columns = shard(batch, Layout(), 0)
    del columns["advantages"]
    return columns


def colocated(args, columns: dict) -> dict:
    """The columns that the Megatron side wrote, on one rank."""
    written = copy.copy(columns)
    compute_advantages_and_returns(args, written)
    return {name: written[name] for name in COLUMNS if name in written}


def same_bits(got: dict, expected: dict) -> bool:
    return set(got) == set(expected) and all(
        first_difference(one, other) is None
        for name in got
        for one, other in zip(got[name], expected[name], strict=True)
    )


class TestSameBits:
    """One formula, in two places."""

    @ALGORITHMS
    @pytest.mark.parametrize(
        "missing", [(), ("log_probs",), ("log_probs", "rollout_log_probs")], ids=["all", "rollout", "values"]
    )
    def test_on_one_rank(self, algorithm, missing):
        """KL, advantages and returns of every token, whichever column tells the shapes."""
        columns = {name: column for name, column in whole(rollout("paths")).items() if name not in missing}
        args = arguments(Layout(), algorithm, **OPTIONS)
        expected = colocated(args, columns)
        assert set(expected) == set(COLUMNS)
        assert same_bits(advantages_of_batch(args, columns), expected)

    @ALGORITHMS
    @pytest.mark.usefixtures("megatron")
    def test_on_ranks_of_every_kind(self, pool, algorithm):
        """The actor's ranks, which hold parts of padded responses, against the service, which holds them whole.

        GAE runs on the rows of a data-parallel rank, and a product of fewer rows may have other bits: one rank there.
        """
        layout = Layout(cp=2, dp=1 if ALGORITHM_SPECS[algorithm].advantage_fn == "gae" else 2)
        batch, args = rollout("paths on ranks", padded=True), arguments(layout, algorithm, **OPTIONS)
        shards = [(args, shard(batch, layout, rank)) for rank in range(layout.world)]
        values = pool.run(f"{TASKS}:advantages", shards, layout=layout).values()
        got = {
            name: whole_columns(batch, layout, [value[name] for value in values], range(layout.world))
            for name in COLUMNS
        }
        assert same_bits(advantages_of_batch(args, whole(batch)), got)

    @pytest.mark.parametrize("sizes", [(6,), (4, 2), (1, 3, 2)])
    def test_the_service_whitens_one_optimizer_batch_after_the_other(self, sizes):
        """Given each optimizer batch whole, it has the bits that the segments of the colocated path have."""
        columns, args = whole(rollout("segments")), arguments(Layout(), "gdpo", **OPTIONS)
        expected = colocated(args, {**columns, "mini_batch_sizes": list(sizes)})
        start, got = 0, {name: [] for name in COLUMNS}
        for size in sizes:
            part = {name: columns[name][start : start + size] for name in ("rewards", "log_probs", "ref_log_probs")}
            for name, tensors in advantages_of_batch(args, part).items():
                got[name] += tensors
            start += size
        assert same_bits(got, expected)

    @ALGORITHMS
    def test_the_service_changes_nothing_that_it_was_given(self, algorithm):
        """A pure function: no column, tensor or option is another afterwards."""
        columns, args = whole(rollout("pure")), arguments(Layout(cp=2), algorithm, **OPTIONS)
        tensors = [tensor.clone() for name in SHAPING for tensor in columns[name]]
        before, options = copy.copy(columns), copy.copy(vars(args))
        advantages_of_batch(args, columns)
        assert all(columns[name] is column for name, column in before.items())
        assert set(columns) == set(before)
        assert vars(args) == options
        now = [tensor for name in SHAPING for tensor in columns[name]]
        assert all(first_difference(one, other) is None for one, other in zip(now, tensors, strict=True))


class TestEarlyReturn:
    """The first difference: when a path has nothing to do."""

    @pytest.mark.parametrize("column", SHAPING)
    def test_the_service_works_as_soon_as_one_column_tells_the_shapes(self, column):
        """Without log-probs, rollout log-probs and values it gives no column; with any of them all three."""
        columns = whole(rollout("early"))
        args = arguments(Layout(), **OPTIONS)
        rest = {name: value for name, value in columns.items() if name not in SHAPING}
        assert advantages_of_batch(args, rest) == {}
        assert set(advantages_of_batch(args, {**rest, column: columns[column]})) == set(COLUMNS)

    def test_the_last_stage_does_not_return_early(self):
        """Where the service would give nothing, the colocated path has been called too soon: an error that says so."""
        columns = {name: value for name, value in whole(rollout("early")).items() if name not in SHAPING}
        with pytest.raises(ValueError, match="holds 6 responses and neither log_probs, rollout_log_probs nor values"):
            compute_advantages_and_returns(arguments(Layout()), columns)

    @pytest.mark.usefixtures("megatron")
    def test_an_earlier_stage_returns_at_once(self, pool):
        """It writes nothing and meets nobody, although it was given every column; the last stage writes."""
        layout, batch = Layout(pp=2), rollout("early")
        args = arguments(layout, "ppo", **OPTIONS, normalize_advantages=True)
        run = pool.run(f"{TASKS}:advantages", [(args, shard(batch, layout, rank)) for rank in range(2)], layout=layout)
        first, last = run.values()
        assert first == {}
        assert set(last) == set(COLUMNS)
        assert run.ranks[0].collectives == ()


class TestPaddedLengths:
    """The second difference: padded lengths, which say where context parallelism cuts."""

    @pytest.mark.usefixtures("megatron")
    @pytest.mark.parametrize("algorithm", ["ppo", "reinforce_plus_plus", "reinforce_plus_plus_baseline"])
    def test_the_colocated_path_cuts_at_padded_lengths(self, pool, algorithm):
        """With them each rank's tokens are right; without them the parts are not those of unpadded sequences."""
        layout, batch = Layout(cp=2), rollout("padded", padded=True)
        args = arguments(layout, algorithm, **OPTIONS)
        shards = [shard(batch, layout, rank) for rank in range(2)]
        values = pool.run(f"{TASKS}:advantages", [(args, columns) for columns in shards], layout=layout).values()
        got = {name: whole_columns(batch, layout, [value[name] for value in values], range(2)) for name in COLUMNS}
        assert same_bits(got, colocated(arguments(Layout(), algorithm, **OPTIONS), whole(batch)))
        for columns in shards:
            del columns["padded_total_lengths"]
        run = pool.run(f"{TASKS}:advantages", [(args, columns) for columns in shards], layout=layout)
        assert {result.failure.kind for result in run.ranks} == {"RankFailure"}

    @ALGORITHMS
    def test_the_service_knows_of_no_cut(self, algorithm):
        """Neither the actor's context parallelism nor padded lengths, right or wrong, change a bit."""
        columns = whole(rollout("no cut"))
        expected = advantages_of_batch(arguments(Layout(), algorithm, **OPTIONS), columns)
        padded = {**columns, "padded_total_lengths": [64] * 6}
        assert same_bits(advantages_of_batch(arguments(Layout(cp=2), algorithm, **OPTIONS), padded), expected)
        del padded["total_lengths"]
        assert same_bits(advantages_of_batch(arguments(Layout(cp=4), algorithm, **OPTIONS), padded), expected)


NORMALIZED = sorted(name for name, spec in ALGORITHM_SPECS.items() if not spec.forbids_normalize_advantages)


class TestTokenNormalization:
    """The third difference: advantages normalised over tokens."""

    @pytest.mark.parametrize("algorithm", NORMALIZED)
    def test_the_colocated_path_normalises_and_the_service_does_not(self, algorithm):
        """The option changes the advantages of the one and no bit of the other; returns are never normalised."""
        columns = whole(rollout("normalised"))
        plain = arguments(Layout(), algorithm, **OPTIONS)
        asked = arguments(Layout(), algorithm, **OPTIONS, normalize_advantages=True)
        assert same_bits(advantages_of_batch(asked, columns), advantages_of_batch(plain, columns))
        before, after = colocated(plain, columns), colocated(asked, columns)
        assert not same_bits({"advantages": after["advantages"]}, {"advantages": before["advantages"]})
        assert same_bits({"returns": after["returns"]}, {"returns": before["returns"]})

    @pytest.mark.usefixtures("megatron")
    def test_masks_are_cut_to_the_ranks_own_tokens(self, pool):
        """Advantages [1, 1 | 2, 2 | 3, 3], the last two masked, one of each pair on either rank.

        Mean 1.5 and unbiased variance 1/3 over the four that count, on both ranks: each alone would have 1/2.
        """
        layout, batch = Layout(cp=2), rollout("mask", lengths=[(1, 2), (1, 2), (12, 2)])
        shards = [(arguments(layout, normalize_advantages=True), shard(batch, layout, rank)) for rank in range(2)]
        for _, columns in shards:
            columns["rewards"] = [1.0, 2.0, 3.0]
            columns["loss_masks"] = [torch.ones(2), torch.ones(2), torch.zeros(2)]
        values = pool.run(f"{TASKS}:advantages", shards, layout=layout).values()
        for value in values:
            got = [tokens.tolist() for tokens in value["advantages"]]
            # reason: float32 of a root with three roundings before it
            assert got == [[pytest.approx((level - 1.5) * 3**0.5, abs=1e-6)] for level in (1, 2, 3)]
