"""Log-probs and entropy on one rank and with the vocabulary spread over virtual ranks, with gradients."""

from __future__ import annotations

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relax.algorithms.collective import LocalCollective, LostPeer
from relax.algorithms.formulas.log_probs import log_probs_and_entropy, vocab_parallel_log_probs
from relax.algorithms.simulated import SimulatedWorld
from verification.cases.arguments import namespace
from verification.cases.integers import Integers
from verification.judges.bits import first_difference
from verification.judges.ulps import ulp_distance

ARGS = namespace("grpo")
ONE = LocalCollective()


def drawn(name: str, count: int, vocabulary: int, dtype: torch.dtype = torch.float32):
    """Logits ``[count, vocabulary]`` between -8 and 8 and as many token ids."""
    stream = Integers(name)
    numbers = stream.quotients(count * vocabulary, -(8 << 10), 8 << 10, 10)
    logits = torch.tensor(numbers, dtype=dtype).reshape(count, vocabulary)
    return logits, torch.tensor([stream.below(vocabulary) for _ in range(count)], dtype=torch.int64)


def plain(logits: torch.Tensor, tokens: torch.Tensor):
    """The same by torch's log_softmax; an entry without probability adds nothing to the entropy."""
    log_p = torch.log_softmax(logits, dim=1)
    entropy = -torch.where(log_p == -math.inf, 0.0, log_p.exp() * log_p.clamp(min=-1e6)).sum(dim=1)
    return log_p.gather(1, tokens[:, None])[:, 0], entropy


def ours(tokens: torch.Tensor):
    """The function of the logits alone, on one rank."""
    return lambda logits: vocab_parallel_log_probs(logits, tokens, ONE)


def gradient(function, logits: torch.Tensor, of_log_probs: torch.Tensor, of_entropy: torch.Tensor) -> torch.Tensor:
    """What flows back to the logits where these flow into the two results."""
    leaf = logits.clone().requires_grad_()
    log_probs, entropy = function(leaf)
    return torch.autograd.grad((log_probs * of_log_probs).sum() + (entropy * of_entropy).sum(), leaf)[0]


def on_ranks(size: int, logits: torch.Tensor, tokens: torch.Tensor, of_log_probs=None, of_entropy=None):
    """What each rank gives, its part of the vocabulary before it: (log_probs, entropy, gradient of its logits)."""
    flows = [
        torch.ones(len(tokens), dtype=torch.float64) if flow is None else flow for flow in (of_log_probs, of_entropy)
    ]

    def one(collective, shard):
        leaf = shard.clone().requires_grad_()
        log_probs, entropy = vocab_parallel_log_probs(leaf, tokens, collective)
        before = list(world.exchanges)
        total = (log_probs * flows[0]).sum() + (entropy * flows[1]).sum()
        (found,) = torch.autograd.grad(total, leaf)
        assert before[collective.rank] == world.exchanges[collective.rank]
        return log_probs.detach(), entropy.detach(), found

    world = SimulatedWorld(size)
    results = world.run(one, logits.chunk(size, dim=1))
    failed = [result for result in results if isinstance(result, Exception)]
    if failed:
        raise failed[0]
    assert [2] * size == world.exchanges
    return results


class TestOneRank:
    """The formula where one rank holds the whole vocabulary."""

    def test_values_by_hand(self):
        """Weights 1, 2, 4 and 1 of 8: probabilities 1/8, 1/4, 1/2, 1/8, an entropy of 1.75 bits."""
        weights = torch.tensor([1.0, 2.0, 4.0, 1.0], dtype=torch.float64)
        logits = (weights.log() + 5).repeat(4, 1)
        log_probs, entropy = vocab_parallel_log_probs(logits, torch.arange(4), ONE)
        expected = [-3 * math.log(2), -2 * math.log(2), -math.log(2), -3 * math.log(2)]
        # reason: the logarithms of the weights are rounded next to 5, an ulp of which is 2**-50.
        assert log_probs.tolist() == pytest.approx(expected, abs=2**-48)
        assert entropy.tolist() == pytest.approx([1.75 * math.log(2)] * 4, abs=2**-48)  # reason: the same

    @pytest.mark.parametrize("vocabulary", [1, 2, 7, 128, 1000])
    def test_float64_agrees_with_log_softmax(self, vocabulary):
        """Values and gradients in float64 are those of torch's own log_softmax, any flow into either result."""
        logits, tokens = drawn(f"softmax-{vocabulary}", 9, vocabulary, torch.float64)
        flows = [torch.tensor(Integers(name).quotients(9, -8, 8, 2), dtype=torch.float64) for name in "ab"]
        log_probs, entropy = vocab_parallel_log_probs(logits, tokens, ONE)
        expected = plain(logits, tokens)
        # reason: sums of up to 1000 terms in another order: about ten roundings of 2**-53 next to 16.
        assert torch.allclose(log_probs, expected[0], rtol=0, atol=1e-14)
        assert torch.allclose(entropy, expected[1], rtol=0, atol=2e-14)  # reason: the same
        got = gradient(ours(tokens), logits, *flows)
        wanted = gradient(lambda leaf: plain(leaf, tokens), logits, *flows)
        # reason: differences of numbers below 8 that are each off by a few roundings.
        assert torch.allclose(got, wanted, rtol=0, atol=2e-14)
        assert (got.abs().sum() > 0.1) == (vocabulary > 1)

    def test_gradients_agree_with_differences(self):
        """Finite differences in float64 give the same Jacobian, of both results."""
        logits, tokens = drawn("gradcheck", 4, 6, torch.float64)
        logits = (logits / 4).requires_grad_()
        # reason: gradcheck's own step of 1e-6 and tolerance of 1e-5 are for doubles.
        assert torch.autograd.gradcheck(ours(tokens), (logits,))

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_half_precision_is_widened(self, dtype):
        """Half precision has the bits of its float32 copy, and its gradient is that gradient rounded once."""
        narrow, tokens = drawn("half", 6, 300, dtype)
        wide = narrow.float()
        for got, expected in zip(
            vocab_parallel_log_probs(narrow, tokens, ONE), vocab_parallel_log_probs(wide, tokens, ONE), strict=True
        ):
            assert first_difference(got, expected) is None
        ones = torch.ones(6)
        got = gradient(ours(tokens), narrow, ones, ones)
        expected = gradient(ours(tokens), wide, ones, ones)
        assert first_difference(got, expected.to(dtype)) is None

    def test_masked_entries_have_no_part(self):
        """Entries of -inf leave the values of the rest as if they were not there, and get a gradient of 0."""
        logits, _ = drawn("masked", 5, 8, torch.float64)
        hidden = torch.tensor([True, False, False, True, False, True, False, True])
        kept, tokens = logits[:, ~hidden], torch.tensor([0, 1, 2, 3, 0])
        masked = logits.masked_fill(hidden, -math.inf)
        names = torch.arange(8)[~hidden][tokens]
        ones = torch.ones(5, dtype=torch.float64)
        got, expected = (
            (*vocab_parallel_log_probs(x, t, ONE), gradient(ours(t), x, ones, ones))
            for x, t in ((masked, names), (kept, tokens))
        )
        for one, other in zip(got[:2], expected[:2], strict=True):
            # reason: sums of the same four terms, in another order: an ulp of 16 is 4e-15.
            assert torch.allclose(one, other, rtol=0, atol=1e-14)
        assert torch.allclose(got[2][:, ~hidden], expected[2], rtol=0, atol=1e-14)  # reason: the same
        assert not got[2][:, hidden].any()

    def test_a_certain_token(self):
        """One possible entry: log-prob, entropy and every gradient are exactly 0, far from zero too."""
        for logits in (torch.tensor([[7.5]]), torch.tensor([[-math.inf, -3e38, -math.inf]])):
            tokens = torch.tensor([logits[0].argmax()])
            log_probs, entropy = vocab_parallel_log_probs(logits, tokens, ONE)
            assert (log_probs.tolist(), entropy.tolist()) == ([0.0], [0.0])
            ones = torch.ones(1)
            assert not gradient(ours(tokens), logits, ones, ones).any()

    def test_an_impossible_token(self):
        """Its log-prob is -inf; its gradient is 1, as log_softmax has it, and the rest loses the probabilities."""
        logits, tokens = torch.tensor([[1.0, -math.inf, 1.0]]), torch.tensor([1])
        log_probs, entropy = vocab_parallel_log_probs(logits, tokens, ONE)
        assert log_probs.tolist() == [-math.inf]
        assert entropy.item() == pytest.approx(math.log(2), rel=2**-23)  # reason: one logarithm, within an ulp
        got = gradient(ours(tokens), logits, torch.ones(1), torch.zeros(1))
        assert got.tolist() == [[-0.5, 1.0, -0.5]]

    @pytest.mark.parametrize("row", [[math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf]])
    def test_what_is_no_distribution_is_nan_and_alone(self, row):
        """The row is NaN in values and gradient; the row beside it has the bits that it has without."""
        logits, tokens = torch.tensor([row, [0.25, -1.0]]), torch.tensor([1, 0])
        whole = vocab_parallel_log_probs(logits, tokens, ONE)
        alone = vocab_parallel_log_probs(logits[1:], tokens[1:], ONE)
        for got, expected in zip(whole, alone, strict=True):
            assert got[0].isnan()
            assert first_difference(got[1:], expected) is None
        back = gradient(ours(tokens), logits, torch.ones(2), torch.ones(2))
        assert back[0].isnan().all()
        assert back[1].isfinite().all()

    def test_rows_do_not_see_each_other(self):
        """Each row of a batch has the bits that it has alone, and a flow into one row reaches no other."""
        logits, tokens = drawn("rows", 7, 129)
        whole = vocab_parallel_log_probs(logits, tokens, ONE)
        for position in range(7):
            alone = vocab_parallel_log_probs(logits[position : position + 1], tokens[position : position + 1], ONE)
            for got, expected in zip(whole, alone, strict=True):
                assert first_difference(got[position : position + 1], expected) is None
        flow = torch.zeros(7)
        flow[3] = 2.0
        back = gradient(ours(tokens), logits, flow, flow)
        assert back.abs().sum(dim=1).nonzero().flatten().tolist() == [3]

    def test_the_layout_in_memory_does_not_count(self):
        """A transposed and a strided view have the bits of their contiguous copy."""
        logits, tokens = drawn("layout", 6, 200)
        expected = vocab_parallel_log_probs(logits, tokens, ONE)
        for view in (logits.t().contiguous().t(), torch.stack([logits, -logits], dim=2)[:, :, 0]):
            assert not view.is_contiguous()
            for got, wanted in zip(vocab_parallel_log_probs(view, tokens, ONE), expected, strict=True):
                assert first_difference(got, wanted) is None

    def test_nothing_is_kept_but_the_logits(self):
        """Of what the backward pass needs only the logits themselves have the size of the vocabulary."""
        logits, tokens = drawn("memory", 3, 50, torch.bfloat16)
        kept: list[torch.Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor
        ):
            vocab_parallel_log_probs(logits.requires_grad_(), tokens, ONE)
        large = [tensor for tensor in kept if tensor.numel() > 3]
        assert [logits.data_ptr()] == [tensor.data_ptr() for tensor in large]
        assert len(kept) == 6

    def test_logits_changed_before_the_backward_pass_are_noticed(self):
        """Autograd refuses to differentiate with logits that were overwritten in between."""
        logits, tokens = drawn("changed", 3, 5)
        leaf = logits.clone().requires_grad_()
        product = leaf * 1
        log_probs, _ = vocab_parallel_log_probs(product, tokens, ONE)
        product.detach().mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            log_probs.sum().backward()

    def test_inputs_stay_as_they_were(self):
        """Neither logits nor tokens are changed by either pass, and no result shares their memory."""
        logits, tokens = drawn("inputs", 3, 5)
        before = logits.clone(), tokens.clone()
        leaf = logits.requires_grad_()
        results = vocab_parallel_log_probs(leaf, tokens, ONE)
        sum(results).sum().backward()
        assert first_difference(leaf, before[0]) is None
        assert first_difference(tokens, before[1]) is None
        assert len({tensor.untyped_storage().data_ptr() for tensor in (leaf, leaf.grad, *results)}) == 4


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
