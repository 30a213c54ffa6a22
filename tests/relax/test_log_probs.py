"""Log-probs and entropy on one rank and with the vocabulary spread over virtual ranks, with gradients."""

from __future__ import annotations

import math

import pytest
import torch

from relax.algorithms.formulas.log_probs import vocab_parallel_log_probs
from tests.relax.log_prob_cases import ONE, drawn, gradient, ours, plain
from verification.cases.integers import Integers
from verification.judges.bits import first_difference


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
