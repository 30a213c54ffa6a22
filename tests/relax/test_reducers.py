"""The two reducers: numbers by hand, bits, gradients, context-parallel parts, refusals."""

from __future__ import annotations

import re

import pytest
import torch

from relax.algorithms.formulas.reducers import reduce_loss
from verification.cases.arguments import namespace
from verification.cases.integers import Integers
from verification.judges.bits import first_difference

PER_RESPONSE = namespace("grpo")
PER_TOKEN = namespace("grpo", calculate_per_token_loss=True)


def values() -> list[torch.Tensor]:
    return [torch.tensor([1.0, 2.0, 100.0, 6.0]), torch.tensor([8.0]), torch.tensor([50.0, -7.0])]


def masks() -> list[torch.Tensor]:
    return [torch.tensor([1.0, 1.0, 0.0, 1.0]), torch.tensor([1.0]), torch.zeros(2)]


def test_sample_mean_weighs_responses_alike():
    """(1 + 2 + 6) / 3 and 8 / 1 add up to 11; a response masked throughout adds 0."""
    assert first_difference(reduce_loss(PER_RESPONSE, values=values(), loss_masks=masks()), torch.tensor(11.0)) is None


def test_token_sum_weighs_tokens_alike():
    """1 + 2 + 6 + 8 is 17."""
    assert first_difference(reduce_loss(PER_TOKEN, values=values(), loss_masks=masks()), torch.tensor(17.0)) is None


def test_without_masks_every_token_counts():
    """loss_masks None: 109 / 4 + 8 + 43 / 2, and 160."""
    assert reduce_loss(PER_RESPONSE, values=values(), loss_masks=None).item() == 56.75
    assert reduce_loss(PER_TOKEN, values=values(), loss_masks=None).item() == 160.0


@pytest.mark.parametrize("args", [PER_RESPONSE, PER_TOKEN], ids=["sample", "token"])
def test_bits_of_the_straight_line(args):
    """Long ragged responses: the sums are taken response by response, and added in their order."""
    stream = Integers("reducers")
    lengths = [1, 700, 33, 2048]
    x = [torch.tensor(stream.quotients(n, -(1 << 22), 1 << 22, 20), dtype=torch.float32) for n in lengths]
    m = [torch.tensor(stream.quotients(n, 0, 1, 0), dtype=torch.float32) for n in lengths]
    expected = 0
    for tokens, mask in zip(x, m, strict=True):
        total = (tokens * mask).sum()
        expected = expected + (total if args is PER_TOKEN else total / mask.sum().clamp(min=1))
    assert first_difference(reduce_loss(args, values=x, loss_masks=m), expected) is None


def test_gradients():
    """Each unmasked token gets 1 over its response's count, or 1; masked ones get 0."""
    for args, expected in ((PER_RESPONSE, [[0.25, 0.25, 0.0, 0.25, 0.25], [1.0]]), (PER_TOKEN, [[1, 1, 0, 1, 1], [1]])):
        x = [torch.arange(5.0).requires_grad_(), torch.ones(1, requires_grad=True)]
        m = [torch.tensor([1, 1, 0, 1, 1]), torch.tensor([True])]
        reduce_loss(args, values=x, loss_masks=m).backward()
        assert [tokens.grad.tolist() for tokens in x] == expected


def test_parts_of_a_response_add_up():
    """Context-parallel parts divide by the full mask's count, so that their losses add up to the whole one."""
    whole = reduce_loss(PER_RESPONSE, values=[values()[0]], loss_masks=[masks()[0]])
    parts = [
        reduce_loss(PER_RESPONSE, values=[x], loss_masks=[m], full_loss_masks=[masks()[0]])
        for x, m in zip(values()[0].split([3, 1]), masks()[0].split([3, 1]), strict=True)
    ]
    assert [part.item() for part in parts] == [1.0, 2.0]
    assert sum(parts).item() == whole.item() == 3.0


def test_the_token_sum_does_not_read_full_masks():
    """A token sum has no denominator."""
    full = [torch.full((9,), 5.0)] * 3
    assert reduce_loss(PER_TOKEN, values=values(), loss_masks=masks(), full_loss_masks=full).item() == 17.0


@pytest.mark.parametrize("args", [PER_RESPONSE, PER_TOKEN], ids=["sample", "token"])
def test_nothing_reduces_to_zero(args):
    """No response, and an empty response, give the float32 scalar 0."""
    for x in ([], [torch.zeros(0)]):
        assert first_difference(reduce_loss(args, values=x, loss_masks=None), torch.tensor(0.0)) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"loss_masks": [torch.ones(4)]}, "values holds 3 loss_masks holds 1"),
        ({"loss_masks": [torch.ones(4), torch.ones(1), torch.ones(1)]}, "response 2 (2,) (1,)"),
        ({"full_loss_masks": [torch.ones(4)]}, "values holds 3 full_loss_masks holds 1"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change, words):
    """Lists of another length and masks of another shape name both."""
    with pytest.raises(ValueError, match=".*".join(re.escape(word) for word in words.split())):
        reduce_loss(PER_RESPONSE, **{"values": values(), "loss_masks": masks(), **change})


def test_inputs_stay_as_they_were():
    """Neither values nor masks are changed."""
    x, m = values(), masks()
    reduce_loss(PER_RESPONSE, values=x, loss_masks=m)
    for now, then in zip((*x, *m), (*values(), *masks()), strict=True):
        assert first_difference(now, then) is None


def test_masks_are_counted_beyond_what_half_precision_holds():
    """A mean over 70,000 float16 tokens, and one over 257 bfloat16 tokens, divides by the true count."""
    for dtype, count in ((torch.float16, 70_000), (torch.bfloat16, 257)):
        ones = torch.ones(count, dtype=dtype)
        loss = reduce_loss(PER_RESPONSE, values=[ones], loss_masks=[ones], full_loss_masks=[ones])
        assert loss.item() == 1.0
        assert loss.dtype == torch.float32
