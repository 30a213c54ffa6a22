"""From logits to loss, metrics and gradients: one rank's numbers for every layout of ranks and of sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest
import torch

from relax.algorithms.formulas.log_probs import log_probs_and_entropy
from relax.algorithms.formulas.reducers import reduce_loss
from relax.algorithms.spec import ALGORITHM_SPECS
from relax.backends.megatron.loss import get_responses, get_values, policy_loss_function
from tests.distributed import megatron_tasks
from tests.distributed.rollouts import LENGTHS, Rollout, arguments, held, rollout, samples_of, shard, whole_columns
from verification.judges.bits import first_difference
from verification.judges.ulps import ulp
from verification.ranks.layout import Layout

TASKS = "tests.distributed.megatron_tasks"
BSHD = {"qkv_format": "bshd"}
PLACES: dict[str, tuple[Layout, dict[str, Any]]] = {
    "dp2": (Layout(dp=2), {}),
    "tp2": (Layout(tp=2), {}),
    "tp2-bshd": (Layout(tp=2), BSHD),
    "cp2": (Layout(cp=2), {}),
    "cp2-padded": (Layout(cp=2), {"padded": True}),
    "cp2-bshd": (Layout(cp=2), BSHD),
    "tp2-cp2": (Layout(tp=2, cp=2), {}),
    "dp2-cp2-padded": (Layout(dp=2, cp=2), {"padded": True}),
    "dp2-cp2-bshd-padded": (Layout(dp=2, cp=2), {**BSHD, "padded": True}),
}
LAYOUTS = pytest.mark.parametrize(("layout", "sequences"), PLACES.values(), ids=PLACES)
ALL = {
    "use_tis": True, "tis_clip": 1.25, "tis_clip_low": 0.5, "use_opsm": True, "opsm_delta": 0.02,
    "use_kl_loss": True, "kl_loss_coef": 0.25, "kl_loss_type": "k3",
}  # fmt: skip
VARIANTS = {"plain": {}, "all": ALL, "token-sum": {**ALL, "tis_mode": "icepop", "calculate_per_token_loss": True}}
# Every algorithm in every place, and each of them with every variant somewhere.
COMBINATIONS = [
    (place, algorithm, list(VARIANTS)[(row + column) % len(VARIANTS)])
    for row, place in enumerate(PLACES)
    for column, algorithm in enumerate(sorted(ALGORITHM_SPECS))
]
METRICS = {"loss", "pg_loss", "pg_clipfrac", "ppo_kl", "entropy", "train_rollout_log_prob_difference"}
METRICS_OF_ALL = METRICS | {"kl_loss", "opsm_dropped", "tis_weight", "tis_clipfrac"}


def run_on(pool, layout: Layout, batch: Rollout, task: str, algorithm: str = "grpo", **options):
    args = arguments(layout, algorithm, qkv_format=batch.qkv_format, **options)
    shards = [(args, shard(batch, layout, rank)) for rank in range(layout.world)]
    return pool.run(f"{TASKS}:{task}", shards, layout=layout, megatron=True)


def one_rank(name: str, task: str, algorithm: str = "grpo", **options) -> dict[str, Any]:
    args = arguments(Layout(), algorithm, **options)
    return getattr(megatron_tasks, task)((args, shard(rollout(name), Layout(), 0)))


def of_each_tensor_rank(layout: Layout) -> list[list[int]]:
    return [[rank for rank in range(layout.world) if layout.coordinates(rank)[0] == tp] for tp in range(layout.tp)]


def whole_gradient(batch: Rollout, layout: Layout, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The gradients of every rank's packed logits as those of whole sequences; padding must have none."""
    sequences = [torch.full_like(rows, float("nan")) for rows in batch.logits]
    for rank, packed in enumerate(parts):
        tp, cp, dp, _ = layout.coordinates(rank)
        columns = slice(tp * packed.shape[-1], (tp + 1) * packed.shape[-1])
        start = 0
        for row, sample in enumerate(samples_of(batch, layout.dp, dp)):
            positions = held(batch, sample, layout.cp, cp)
            rows = packed[row] if batch.qkv_format == "bshd" else packed[0, start : start + len(positions)]
            start += len(positions)
            inside = [at for at, position in enumerate(positions) if position < len(sequences[sample])]
            sequences[sample][[positions[at] for at in inside], columns] = rows[inside]
            assert not rows[[at for at in range(len(positions)) if at not in inside]].any()
    return sequences


def one_gradient(packed: torch.Tensor) -> Sequence[torch.Tensor]:
    return packed[0].split([sum(pair) for pair in LENGTHS])


def agree(got: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], ulps: int = 0) -> bool:
    """The same bits; with ``ulps`` no further apart than so many of the largest number of the response."""
    for one, other in zip(got, expected, strict=True):
        if ulps and other.numel():
            if not float((one - other).abs().max()) <= ulps * ulp(float(other.abs().max()), torch.float32):
                return False
        elif first_difference(one, other) is not None:
            return False
    return True


def magnitudes(name: str, algorithm: str, **options) -> dict[str, torch.Tensor]:
    """The metrics of one rank with every token's number taken without its sign: what rounding is relative to."""

    def of_magnitudes(args, *, values, **masks):
        return reduce_loss(args, values=[tokens.abs() for tokens in values], **masks)

    with mock.patch("relax.backends.megatron.loss.reduce_loss", of_magnitudes):
        return one_rank(name, "policy_loss", algorithm, **options)["metrics"]


@pytest.mark.usefixtures("megatron")
class TestOnRanks:
    """Every layout against one rank with sequences end to end."""

    @LAYOUTS
    def test_log_probs_entropy_and_values(self, pool, layout, sequences):
        """Each token has its numbers, and each row of logits its gradients, wherever row and vocabulary lie.

        They have the bits of one rank where a rank has whole rows.
        """
        batch = rollout("logits", **sequences)
        expected = one_rank("logits", "of_logits")
        values = run_on(pool, layout, batch, "of_logits").values()
        # reason: over parts of the vocabulary two sums of 8 numbers are made of parts, an ulp each, and what is made
        # of them by a logarithm, a quotient, a difference and two products is off by half an ulp more a step.
        ulps = 4 if layout.tp > 1 else 0
        for tp, ranks in enumerate(of_each_tensor_rank(layout)):
            for name in ("log_probs", "entropy"):
                whole = whole_columns(batch, layout, [value[name] for value in values], ranks)
                assert agree(whole, expected[name], ulps), name
            if tp == 0:  # entry 0 of the vocabulary stands for the critic's head
                assert agree(
                    whole_columns(batch, layout, [value["values"] for value in values], ranks), expected["values"]
                )
        for of in (0, 1):
            whole = whole_gradient(batch, layout, [value["gradients"][of] for value in values])
            assert agree(whole, one_gradient(expected["gradients"][of]), ulps)

    @pytest.mark.parametrize(("place", "algorithm", "variant"), COMBINATIONS)
    def test_loss_metrics_and_gradients(self, pool, place, algorithm, variant):
        """Losses and metrics of the ranks sum to those of one rank, and each row of logits has its gradient.

        Tensor-parallel peers have the same bits. So has a gradient that one rank alone decides.
        """
        (layout, sequences), options, spec = PLACES[place], VARIANTS[variant], ALGORITHM_SPECS[algorithm]
        name = f"loss {algorithm}"
        expected = one_rank(name, "policy_loss", algorithm, **options)
        scales = magnitudes(name, algorithm, **options)
        batch = rollout(name, **sequences)
        values = run_on(pool, layout, batch, "policy_loss", algorithm, **options).values()
        assert set(expected["metrics"]) == (METRICS_OF_ALL if options else METRICS)
        for metric, one in expected["metrics"].items():
            parts = [[values[rank]["metrics"][metric] for rank in ranks] for ranks in of_each_tensor_rank(layout)]
            assert agree(parts[-1], parts[0])
            total = sum(part.double() for part in parts[0])
            # reason: the sum of 40 numbers in two orders, at most half an ulp a number relative to their magnitudes;
            # with parts of a vocabulary the numbers differ by an ulp too. The largest that was seen is 4.2.
            assert float((total - one).abs()) <= 6 * 2.0**-24 * float(scales[metric]), metric
        # reason: parts of a vocabulary as above, and the ratio's exponential and products behind them; a sigmoid that
        # torch rounds differently at a tensor's end; a sequence's ratio, whose gradient is a sum over its tokens.
        ulps = 8 if layout.tp > 1 else 4 if spec.policy_loss_fn == "soft_gate" or spec.kl_level == "sequence" else 0
        gradient = whole_gradient(batch, layout, [value["gradient"] for value in values])
        assert agree(gradient, one_gradient(expected["gradient"]), ulps)

    @pytest.mark.parametrize("algorithm", ["grpo", "gspo"])
    @pytest.mark.parametrize("lengths", [[(40, 3)], [(9, 0)], []], ids=["on-one-rank", "no-token", "nothing"])
    def test_a_rank_without_a_token_has_a_gradient_of_zeros(self, pool, lengths, algorithm):
        """Its loss is 0 and depends on its logits all the same, so that no peer waits for it in the backward pass."""
        layout, batch = Layout(cp=2), rollout("empty", lengths=lengths)
        args = arguments(layout, algorithm)
        shards = [(args, shard(batch, layout, rank)) for rank in range(2)]
        for _, columns in shards:
            if not lengths:
                columns["logits"] = torch.ones(1, 4, 8)
        run = pool.run(f"{TASKS}:policy_loss", shards, layout=layout)
        for rank, value in enumerate(run.values()):
            assert value["gradient"].shape == shards[rank][1]["logits"].shape
            holds_all = bool(lengths) and lengths[0][1] == 3 and rank == 0
            assert bool(value["gradient"].any()) == holds_all
            assert bool(value["loss"] != 0) == holds_all
        assert run.ranks[0].collectives == run.ranks[1].collectives


class TestAlone:
    """One process without ranks."""

    @pytest.mark.parametrize(
        "sequences", [{"padded": True}, BSHD, {**BSHD, "padded": True}], ids=["padded", "bshd", "both"]
    )
    def test_the_layout_of_sequences_changes_no_bit(self, sequences):
        """Rows end to end, padded (with NaN) or one sequence a row: the same losses, and gradients in their places."""
        batch = rollout("layout of sequences", **sequences)
        args = arguments(Layout(), qkv_format=batch.qkv_format, **ALL)
        got = megatron_tasks.policy_loss((args, shard(batch, Layout(), 0)))
        expected = one_rank("layout of sequences", "policy_loss", **ALL)
        assert agree(list(got["metrics"].values()), list(expected["metrics"].values()))
        assert agree(whole_gradient(batch, Layout(), [got["gradient"]]), one_gradient(expected["gradient"]))

    def test_log_probs_are_those_of_each_responses_rows(self):
        """The log-prob of a token is that of the row before it, response by response."""
        batch = rollout("rows")
        expected = one_rank("rows", "of_logits")
        totals, responses, tokens = (batch.columns[name] for name in ("total_lengths", "response_lengths", "tokens"))
        places = list(zip(totals, responses, strict=True))
        log_probs, entropy = log_probs_and_entropy(
            arguments(Layout()),
            logits=[rows[total - n - 1 : total - 1] for rows, (total, n) in zip(batch.logits, places, strict=True)],
            tokens=[ids[total - n :] for ids, (total, n) in zip(tokens, places, strict=True)],
        )
        assert agree(expected["log_probs"], log_probs)
        assert agree(expected["entropy"], entropy)

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_metrics_by_their_definition(self, variant):
        """Each metric is the reduced number of its tokens; all are detached float32 scalars."""
        options, columns = VARIANTS[variant], shard(rollout("metrics"), Layout(), 0)
        got = one_rank("metrics", "policy_loss", **options)["metrics"]
        reference = one_rank("metrics", "of_logits")
        new, old, rollouts = reference["log_probs"], columns["log_probs"], columns["rollout_log_probs"]

        def reduced(of):
            tokens = [of(*parts) for parts in zip(new, old, rollouts, columns["ref_log_probs"], strict=True)]
            return reduce_loss(arguments(Layout(), **options), values=tokens, loss_masks=columns["loss_masks"])

        assert all(
            value.dtype == torch.float32 and value.shape == () and not value.requires_grad for value in got.values()
        )
        assert first_difference(got["ppo_kl"], reduced(lambda p, q, r, s: q - p)) is None
        difference = reduced(lambda p, q, r, s: (q - r).abs())
        assert first_difference(got["train_rollout_log_prob_difference"], difference) is None
        entropy = reduce_loss(
            arguments(Layout(), **options), values=reference["entropy"], loss_masks=columns["loss_masks"]
        )
        assert first_difference(got["entropy"], entropy) is None
        if options:
            low, high = options["tis_clip_low"], options["tis_clip"]
            outside = reduced(lambda p, q, r, s: (((q - r).exp() < low) | ((q - r).exp() > high)).float())
            assert first_difference(got["tis_clipfrac"], outside) is None
            assert first_difference(got["tis_weight"], reduced(lambda p, q, r, s: (q - r).exp())) is None
            assert first_difference(got["kl_loss"], reduced(lambda p, q, r, s: (s - p).exp() - 1 - (s - p))) is None
            assert first_difference(got["loss"], got["pg_loss"] + 0.25 * got["kl_loss"]) is None
            assert float(got["opsm_dropped"]) > 0
        else:
            assert first_difference(got["loss"], got["pg_loss"]) is None

    def test_no_mask_is_every_token(self):
        """Without loss masks, as with masks of ones."""
        columns = shard(rollout("no mask"), Layout(), 0)
        ones = {**columns, "loss_masks": [torch.ones(length) for length in columns["response_lengths"]]}
        none = {name: column for name, column in columns.items() if name != "loss_masks"}
        args = arguments(Layout(), **ALL)
        expected, got = (policy_loss_function(args, batch, columns["logits"])[1] for batch in (ones, none))
        assert agree(list(got.values()), list(expected.values()))

    def test_values_are_the_heads_number_before_each_token(self):
        """In float32, whatever the head computes in, and differentiable."""
        columns = shard(rollout("values", lengths=[(2, 3), (1, 0), (1, 1)]), Layout(), 0)
        logits = torch.arange(8, dtype=torch.bfloat16).reshape(1, 8, 1).requires_grad_()
        lengths = {name: columns[name] for name in ("tokens", "total_lengths", "response_lengths")}
        values = get_values(arguments(Layout()), logits, **lengths)
        assert [tokens.tolist() for tokens in values] == [[1.0, 2.0, 3.0], [], [6.0]]
        assert {tokens.dtype for tokens in values} == {torch.float32}
        torch.cat(values).sum().backward()
        assert logits.grad.flatten().tolist() == [0, 1, 1, 1, 0, 0, 1, 0]

    @pytest.mark.parametrize(
        ("shape", "qkv_format", "change", "words"),
        [
            ((1, 11, 8), "thd", {}, r"\(1, 11, 8\).* \[1, 12 or more"),
            ((2, 12, 8), "thd", {}, r"\(2, 12, 8\).* \[1, 12 or more"),
            ((12, 8), "thd", {}, r"\(12, 8\).* \[1, 12 or more"),
            ((1, 12, 8), "thd", {"padded_total_lengths": [8, 8]}, r"\(1, 12, 8\).* \[1, 16 or more"),
            ((2, 6, 8), "bshd", {}, r"\(2, 6, 8\).* \[2, 7 or more"),
            ((3, 7, 8), "bshd", {}, r"\(3, 7, 8\).* \[2, 7 or more"),
            (
                (1, 12, 8),
                "thd",
                {"tokens": [torch.zeros(7, dtype=torch.int64)]},
                "response_lengths holds 2 .* tokens holds 1",
            ),
            ((1, 12, 8), "thd", {"response_lengths": [4, 5]}, "response 1: response_length is 5 in a sequence of 5"),
        ],
    )
    def test_logits_without_room_for_the_sequences_are_refused(self, shape, qkv_format, change, words):
        """The error says which shape there is and which is needed."""
        given = {
            "tokens": [torch.zeros(7, dtype=torch.int64), torch.zeros(5, dtype=torch.int64)],
            "total_lengths": [7, 5],
            "response_lengths": [4, 2],
            **change,
        }
        with pytest.raises(ValueError, match=words):
            get_responses(torch.zeros(shape), args=arguments(Layout(), qkv_format=qkv_format), **given)

    def test_rows_that_are_cut_otherwise_than_the_lengths_say_are_refused(self):
        """In bshd under context parallelism a row is cut at its own length, which padded_total_lengths must be."""
        args = arguments(Layout(cp=2), qkv_format="bshd")
        lengths = {"total_lengths": [7, 5], "response_lengths": [4, 2]}
        tokens = [torch.arange(7), torch.arange(5)]
        groups = mock.Mock(context=mock.Mock(size=2, rank=1))
        with mock.patch("relax.backends.megatron.context_parallel.parallel", return_value=groups):
            with pytest.raises(ValueError, match="sequences of 16: padded_total_lengths"):
                get_responses(torch.zeros(2, 8, 1), args=args, tokens=tokens, **lengths)
            fits = get_responses(
                torch.arange(16.0).reshape(2, 8, 1), args=args, tokens=tokens, **lengths, padded_total_lengths=[16, 16]
            )
        # Rank 1 holds positions 4 to 11: logits 4 and 5 of the first, none of the second, whose last is at 3.
        assert [(rows.flatten().tolist(), ids.tolist()) for rows, ids in fits] == [([0.0, 1.0], [5, 6]), ([], [])]

    def test_a_critic_with_a_vocabulary_is_refused(self):
        """Logits of 8 entries are no values."""
        columns = shard(rollout("refused"), Layout(), 0)
        lengths = {name: columns[name] for name in ("tokens", "total_lengths", "response_lengths")}
        with pytest.raises(ValueError, match="one number a position, and this one 8"):
            get_values(arguments(Layout()), columns["logits"], **lengths)

    def test_a_kl_loss_without_its_reference_is_refused(self):
        """The option and the missing column are named."""
        columns = shard(rollout("refused"), Layout(), 0)
        del columns["ref_log_probs"]
        with pytest.raises(ValueError, match="use_kl_loss is set and ref_log_probs is missing"):
            policy_loss_function(arguments(Layout(), **ALL), columns, columns["logits"])
