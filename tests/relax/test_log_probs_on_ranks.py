"""Log-probs and entropies over a cut vocabulary, and of the responses of a batch."""

from __future__ import annotations

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relax.algorithms.collective import LostPeer
from relax.algorithms.formulas.log_probs import log_probs_and_entropy, vocab_parallel_log_probs
from relax.algorithms.simulated import SimulatedWorld
from tests.relax.log_prob_cases import ARGS, ONE, drawn, gradient, on_ranks, ours, plain
from verification.cases.integers import Integers
from verification.judges.bits import first_difference
from verification.judges.ulps import ulp_distance


class TestRanks:
    """The vocabulary spread over ranks."""

    @pytest.mark.parametrize("size", [2, 3, 4, 8])
    def test_shards_agree_with_one_rank(self, size):
        """Every rank has the same bits, near those of one rank; the shards' gradients are the parts of the whole."""
        logits, tokens = drawn(f"shards-{size}", 11, 24 * size)
        flows = [torch.tensor(Integers(name).quotients(11, -8, 8, 2), dtype=torch.float32) for name in "ab"]
        ranks = on_ranks(size, logits, tokens, *flows)
        for result in ranks[1:]:
            assert first_difference(result[0], ranks[0][0]) is None
            assert first_difference(result[1], ranks[0][1]) is None
        one = vocab_parallel_log_probs(logits, tokens, ONE)
        for got, expected in zip(ranks[0][:2], one, strict=True):
            # reason: one more addition a rank inside the logarithm of the sum, and results above 1 in magnitude.
            assert torch.allclose(got, expected, rtol=2**-21, atol=0)
        whole = gradient(ours(tokens), logits, *flows)
        parts = torch.cat([result[2] for result in ranks], dim=1)
        # reason: the flows are at most 2 and the gradients at most 2 (3 + 16): a few roundings of 2**-24 of that.
        assert torch.allclose(parts, whole, rtol=0, atol=2**-18)
        assert whole.abs().max() > 1

    @given(
        ranks=st.integers(1, 5),
        width=st.integers(1, 5),
        count=st.integers(0, 4),
        data=st.data(),
    )
    def test_any_shards_of_doubles(self, ranks, width, count, data):
        """Values and gradients in float64 agree with log_softmax for every cut, shards without a possible entry too."""
        size = ranks * width
        numbers = st.sampled_from([-math.inf, *(k / 4 for k in range(-40, 41))])
        rows = data.draw(st.lists(st.lists(numbers, min_size=size, max_size=size), min_size=count, max_size=count))
        ids = data.draw(st.lists(st.integers(0, size - 1), min_size=count, max_size=count))
        logits = torch.tensor(rows, dtype=torch.float64).reshape(count, size)
        tokens = torch.tensor(ids, dtype=torch.int64)
        logits[torch.arange(count), tokens] = logits[torch.arange(count), tokens].clamp(min=-10)
        expected = plain(logits, tokens)
        ones = torch.ones(count, dtype=torch.float64)
        results = on_ranks(ranks, logits, tokens)
        for log_probs, entropy, _ in results:
            # reason: at most 25 terms: a few roundings of 2**-53 next to 20.
            assert torch.allclose(log_probs, expected[0], rtol=0, atol=1e-13)
            assert torch.allclose(entropy, expected[1], rtol=0, atol=1e-13)  # reason: the same
        whole = gradient(ours(tokens), logits, ones, ones)
        # reason: the same.
        assert torch.allclose(torch.cat([result[2] for result in results], dim=1), whole, rtol=0, atol=1e-13)

    def test_the_shard_of_the_token_decides(self):
        """A token's own logit counts where its shard lies, at the first and the last entry of each."""
        logits = torch.zeros(6, 6)
        tokens = torch.arange(6)
        logits[torch.arange(6), tokens] = math.log(5)  # 5 of 10
        for log_probs, entropy, back in on_ranks(3, logits, tokens):
            # reason: log(5) is rounded, and so are exp, log and a difference: four roundings next to 1.6.
            assert log_probs.tolist() == pytest.approx([-math.log(2)] * 6, abs=2**-21)
            expected = math.log(2) / 2 + math.log(10) / 2
            assert entropy.tolist() == pytest.approx([expected] * 6, abs=2**-21)  # reason: the same
            assert back.shape == (6, 2)

    @pytest.mark.parametrize("size", [1, 4])
    def test_no_token_joins_the_collectives(self, size):
        """Zero tokens on every rank give empty results and gradients after the same two collectives."""
        for log_probs, entropy, back in on_ranks(size, torch.zeros(0, 2 * size), torch.zeros(0, dtype=torch.int64)):
            assert (log_probs.shape, entropy.shape, back.shape) == ((0,), (0,), (0, 2))

    def test_a_wrong_id_is_the_same_error_on_every_rank(self):
        """No rank waits in a collective for one that has raised; ids of another rank's shard are no error."""
        world = SimulatedWorld(3)
        tokens = torch.tensor([5, 0, 6])

        def one(collective, shard):
            return vocab_parallel_log_probs(shard, tokens, collective)

        results = world.run(one, torch.zeros(3, 6).chunk(3, dim=1))
        assert len({str(error) for error in results}) == 1
        assert all(isinstance(error, ValueError) and not isinstance(error, LostPeer) for error in results)
        assert "token 6 at position 2 is no entry of the vocabulary of 6" in str(results[0])
        assert world.exchanges == [0, 0, 0]

    def test_a_maximum_on_another_rank_does_not_overflow(self):
        """Logits of 1e4 on one shard and -1e4 on the other: probability 1 and 0, no infinity but the log-prob's own."""
        logits = torch.tensor([[-1e4, 1e4], [1e4, -1e4]])
        for log_probs, entropy, back in on_ranks(2, logits, torch.tensor([0, 0])):
            assert log_probs.tolist() == [-2e4, 0.0]
            assert entropy.tolist() == [0.0, 0.0]
            assert back.isfinite().all()


class TestResponses:
    """The call of the stage: lists of responses."""

    def test_each_response_is_its_rows(self):
        """Responses have the bits of one call on all rows, an empty one included, in float32."""
        logits, tokens = drawn("responses", 9, 33)
        lengths = [4, 0, 5]
        got = log_probs_and_entropy(ARGS, logits=logits.split(lengths), tokens=tokens.split(lengths))
        for results, whole in zip(got, vocab_parallel_log_probs(logits, tokens, ONE), strict=True):
            assert lengths == [len(result) for result in results]
            assert first_difference(torch.cat(results), whole) is None
            assert whole.dtype == torch.float32

    def test_integer_types_are_ids(self):
        """int32 ids give the bits of int64 ids."""
        logits, tokens = drawn("int32", 5, 9)
        for got, expected in zip(
            log_probs_and_entropy(ARGS, logits=[logits], tokens=[tokens.int()]),
            log_probs_and_entropy(ARGS, logits=[logits], tokens=[tokens]),
            strict=True,
        ):
            assert first_difference(got[0], expected[0]) is None

    def test_the_sum_of_the_probabilities_is_one(self):
        """Every entry of one row as its token: the exponentials of the log-probs add up to 1, within an ulp or two."""
        logits, _ = drawn("sum", 1, 50)
        ids = torch.arange(50)
        (log_probs,), _ = log_probs_and_entropy(ARGS, logits=[logits.expand(50, 50)], tokens=[ids])
        total = log_probs.double().exp().sum().float()
        assert ulp_distance(total, torch.tensor(1.0)) <= 4  # the largest log-probs are off by an ulp of their sum's log

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"tokens": [torch.tensor([0, 2]), torch.tensor([1, 0, 3])]}, "response 1 token 3 position 2 vocabulary 3"),
            ({"tokens": [torch.tensor([0, -1]), torch.tensor([1, 0, 2])]}, "response 0 token -1 position 1"),
            ({"tokens": [torch.tensor([0, 1])]}, "logits holds 2 tokens holds 1"),
            ({"tokens": [torch.tensor([0, 1]), torch.tensor([1, 0])]}, r"response 1 (3, 3) (2,)"),
            ({"tokens": [torch.tensor([0.0, 1.0]), torch.tensor([1, 0, 2])]}, "response 0 torch.float32 integers"),
            ({"tokens": [torch.tensor([True, True]), torch.tensor([1, 0, 2])]}, "response 0 torch.bool integers"),
            ({"logits": [torch.ones(2, 3).long(), torch.ones(3, 3)]}, "response 0 torch.int64 floats"),
            ({"logits": [torch.ones(2, 0), torch.ones(3, 3)]}, "response 0 (2, 0)"),
            ({"logits": [torch.ones(2), torch.ones(3, 3)]}, "response 0 (2,)"),
        ],
    )
    def test_what_does_not_fit_is_refused_by_name(self, change, words):
        """The message names the response, the place and both shapes or types."""
        inputs = {
            "logits": [torch.ones(2, 3), torch.ones(3, 3)],
            "tokens": [torch.tensor([0, 1]), torch.tensor([1, 0, 2])],
        }
        pattern = ".*".join(re.escape(word) for word in words.split())
        with pytest.raises(ValueError, match=pattern):
            log_probs_and_entropy(ARGS, **{**inputs, **change})
