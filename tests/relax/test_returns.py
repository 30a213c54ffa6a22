"""Discounted returns, batched over responses, against one response at a time in numpy's float32."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relax.algorithms.formulas.reinforce import discounted_returns
from verification.cases.integers import Integers
from verification.judges.bits import first_difference


def token_by_token(reward: float, kl: np.ndarray, mask: np.ndarray, kl_coef: float, gamma: float) -> np.ndarray:
    """One response, one token after another; every numpy float32 operation is one rounding."""
    token_rewards = np.float32(-kl_coef) * (kl * mask)
    token_rewards[np.flatnonzero(mask)[-1]] += np.float32(reward)
    result, running = np.zeros_like(kl), np.float32(0.0)
    for j in range(len(kl) - 1, -1, -1):
        running = token_rewards[j] + np.float32(gamma) * running
        result[j] = running
    return result * mask


def batch(stream: Integers, lengths: list[int]) -> tuple[list[float], list[torch.Tensor], list[torch.Tensor]]:
    rewards, kl, masks = [], [], []
    for length in lengths:
        mask = stream.array(length, 0, 1, 0)
        mask[stream.below(length)] = 1.0
        rewards.append(stream.between(-1000, 1000) / 3)
        kl.append(torch.from_numpy(stream.array(length, -(1 << 20), 1 << 20, 18)))
        masks.append(torch.from_numpy(mask))
    return rewards, kl, masks


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=9),
    name=st.integers(0, 2**32),
    gamma=st.sampled_from([0.0, 0.3, 0.95, 0.999, 1.0]),
    kl_coef=st.sampled_from([0.0, 0.01, 1.0]),
)
def test_batched_returns_have_the_bits_of_single_ones(lengths, name, gamma, kl_coef):
    """Whatever the lengths and masks, each response comes out as if it were alone and scanned token by token."""
    rewards, kl, masks = batch(Integers(f"returns {name}"), lengths)
    _, returns = discounted_returns(rewards, kl, masks, kl_coef=kl_coef, gamma=gamma)
    for got, reward, tokens, mask in zip(returns, rewards, kl, masks, strict=True):
        expected = token_by_token(reward, tokens.numpy(), mask.numpy(), kl_coef, gamma)
        assert first_difference(got, torch.from_numpy(expected)) is None


def test_by_hand():
    """Reward 8 at the last unmasked token, halved at each step back; masked tokens discount too, and come out 0."""
    kl = [torch.tensor([1.0, 2.0, 100.0, 4.0, 5.0])]
    masks = [torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0])]
    advantages, returns = discounted_returns([8.0], kl, masks, kl_coef=0.25, gamma=0.5)
    assert returns[0].tolist() == [0.375, 1.25, 0.0, 7.0, 0.0]
    assert advantages[0] is returns[0]
    assert advantages is not returns


def test_multiply_and_add_round_separately():
    """gamma * running is rounded before the addition: a fused multiply-add would leave 2**-26 here, not 0."""
    gamma = 1 - 2**-13  # its square, 1 - 2**-12 + 2**-26, rounds to 1 - 2**-12
    _, returns = discounted_returns([gamma], [torch.tensor([1 - 2**-12, 0.0])], None, kl_coef=1.0, gamma=gamma)
    assert returns[0].tolist() == [0.0, gamma]


def test_signs_of_zero_survive_the_padding():
    """A response's zeros have the same signs in a batch with a longer one as alone."""
    short = ([0.0], [torch.tensor([0.0, -0.0, 1.0])], [torch.tensor([1.0, 1.0, 0.0])])
    _, alone = discounted_returns(*short, kl_coef=0.5, gamma=1.0)
    longer = ([1.0], [torch.ones(9)], [torch.ones(9)])
    rewards, kl, masks = ([*part, *more] for part, more in zip(short, longer, strict=True))
    _, together = discounted_returns(rewards, kl, masks, kl_coef=0.5, gamma=1.0)
    assert first_difference(together[0], alone[0]) is None
    expected = token_by_token(0.0, short[1][0].numpy(), short[2][0].numpy(), 0.5, 1.0)
    assert first_difference(alone[0], torch.from_numpy(expected)) is None


def test_a_nan_stays_in_its_response():
    """A NaN of one response reaches no other."""
    kl = [torch.tensor([0.0, float("nan"), 0.0]), torch.ones(5)]
    _, returns = discounted_returns([1.0, 2.0], kl, None, kl_coef=0.5, gamma=0.5)
    assert returns[0].isnan().tolist() == [True, True, False]
    assert returns[0][2].item() == 1.0
    assert not returns[1].isnan().any()


def test_an_empty_response_gives_an_empty_tensor():
    """Length 0 writes nothing at index -1 of anything, wherever it stands."""
    kl = [torch.zeros(0), torch.ones(2), torch.zeros(0)]
    _, returns = discounted_returns([5.0, 1.0, 7.0], kl, None, kl_coef=0.0, gamma=0.5)
    assert [result.tolist() for result in returns] == [[], [0.5, 1.0], []]
    assert discounted_returns([], [], [], kl_coef=0.0, gamma=0.5) == ([], [])


def test_half_precision_becomes_float32():
    """Responses of several dtypes share a batch: float64 stays, the rest is float32, and a mask's dtype is nothing."""
    kl = [torch.ones(3, dtype=torch.float64), torch.ones(2), torch.ones(4, dtype=torch.bfloat16)]
    masks = [torch.ones(3, dtype=torch.bool), torch.ones(2, dtype=torch.float64), torch.ones(4, dtype=torch.int64)]
    _, returns = discounted_returns([1.0, 2.0, 3.0], kl, masks, kl_coef=1.0, gamma=0.5)
    assert [result.dtype for result in returns] == [torch.float64, torch.float32, torch.float32]
    assert [result.tolist() for result in returns] == [[-1.5, -1.0, 0.0], [-0.5, 1.0], [-1.5, -1.0, 0.0, 2.0]]


def test_results_stand_alone_and_inputs_stay():
    """No two results share memory with each other or with an input, and inputs keep their bits."""
    rewards, kl, masks = batch(Integers("alone"), [5, 9])
    before = [tensor.clone() for tensor in (*kl, *masks)]
    _, returns = discounted_returns(rewards, kl, masks, kl_coef=0.1, gamma=0.9)
    storages = {tensor.untyped_storage().data_ptr() for tensor in (*returns, *kl, *masks)}
    assert len(storages) == 6
    assert all(first_difference(now, then) is None for now, then in zip((*kl, *masks), before, strict=True))
    assert [result.untyped_storage().nbytes() for result in returns] == [20, 36]


def test_the_gradient_reaches_the_kl():
    """d return_j / d kl_i is -kl_coef * gamma**(i - j) for i >= j, through both masks."""
    kl = torch.zeros(3, requires_grad=True)
    _, returns = discounted_returns([1.0], [kl], [torch.tensor([1.0, 0.0, 1.0])], kl_coef=0.5, gamma=0.5)
    returns[0][0].backward()
    assert kl.grad.tolist() == [-0.5, -0.0, -0.125]


@pytest.mark.parametrize(
    ("masks", "words"),
    [
        ([torch.ones(2), torch.zeros(3)], "response 1 masked throughout 3 tokens"),
        ([torch.ones(2), torch.ones(1)], "response 1 (3,) (1,)"),
        ([torch.ones(2)], "kl 2 loss_masks 1"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(masks, words):
    """A response masked throughout, a mask of another shape and a missing mask name position and numbers."""
    with pytest.raises(ValueError, match=".*".join(re.escape(word) for word in words.split())):
        discounted_returns([1.0, 2.0], [torch.zeros(2), torch.zeros(3)], masks, kl_coef=0.0, gamma=1.0)


def test_rewards_of_another_number_are_refused():
    """One reward for two responses names both counts."""
    with pytest.raises(ValueError, match=r"rewards holds 1 .* kl holds 2"):
        discounted_returns([1.0], [torch.zeros(2), torch.zeros(3)], None, kl_coef=0.0, gamma=1.0)
