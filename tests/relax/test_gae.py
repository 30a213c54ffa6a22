"""Generalised advantage estimation: baseline bits, exact values, chunk borders and refusals."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
import torch

from relax.algorithms.formulas.gae import discounted_scan, gae
from verification.cases.integers import Integers
from verification.judges.bits import first_difference

U = 2**-24


def batch(name: str, lengths: list[int]) -> tuple[list[float], list[torch.Tensor], list[torch.Tensor], list[int]]:
    stream = Integers(name)
    rewards = [stream.between(-64, 64) / 64 for _ in lengths]
    kl = [torch.from_numpy(stream.array(length, -(1 << 16), 1 << 16, 18)) for length in lengths]
    values = [torch.from_numpy(stream.array(length, -(1 << 19), 1 << 19, 18)) for length in lengths]
    return rewards, kl, values, lengths


def straight_line(rewards, kl, values, lengths, kl_coef, gamma, lambd):
    """The padded rows and the chunked scan written out; gives padded advantages and returns."""
    longest, decay = max(lengths), gamma * lambd
    r, v = torch.zeros(len(lengths), longest), torch.zeros(len(lengths), longest)
    for i, length in enumerate(lengths):
        row = kl[i] * (-kl_coef)
        row[-1] += rewards[i]
        r[i, :length], v[i, :length] = row, values[i]
    v_next = torch.zeros_like(v)
    v_next[:, :-1] = v[:, 1:]
    delta = r + gamma * v_next - v
    steps = -(-longest // 128)
    reversed_rows = torch.zeros(len(lengths), steps * 128)
    reversed_rows[:, :longest] = delta.flip(1)
    matrix = torch.zeros(128, 128)
    upper = torch.ones(128, 128, dtype=torch.bool).triu()
    positions = torch.arange(128)
    distance = (positions[None, :] - positions[:, None])[upper].float()
    matrix[upper] = decay**distance if decay else (distance == 0).float()
    carry = decay ** (positions + 1).float()
    last, scanned = torch.zeros(len(lengths)), []
    for step in range(steps):
        local = reversed_rows[:, step * 128 : step * 128 + 128].contiguous() @ matrix
        if decay and step:
            local = local + last[:, None] * carry[None, :]
        last = local[:, -1]
        scanned.append(local)
    advantages = torch.cat(scanned, 1)[:, :longest].flip(1)
    return advantages, advantages + v


def exactly(reward, kl, values, kl_coef, gamma, lambd):
    """The recursion in rationals, and the sum of the magnitudes that it adds up: two lists of Fraction."""
    f32 = lambda number: Fraction(torch.tensor(number, dtype=torch.float32).item())  # noqa: E731
    decay, gamma = f32(gamma * lambd), f32(gamma)
    v = [Fraction(x) for x in values.tolist()] + [Fraction(0)]
    r = [f32(-kl_coef) * Fraction(x) for x in kl.tolist()]
    r[-1] += f32(reward)
    advantage, magnitude, found, scale = Fraction(0), Fraction(0), [], []
    for j in range(len(r) - 1, -1, -1):
        advantage = r[j] + gamma * v[j + 1] - v[j] + decay * advantage
        magnitude = abs(r[j]) + gamma * abs(v[j + 1]) + abs(v[j]) + decay * magnitude
        found.append(advantage)
        scale.append(magnitude)
    return found[::-1], scale[::-1]


SWITCHES = [(1.0, 1.0), (0.99, 0.95), (0.9, 0.0), (0.0, 1.0), (1.0, 0.5)]
LENGTHS = [[1], [127], [128], [129], [3, 1, 200], [300, 256, 17, 128, 385]]


@pytest.mark.parametrize(("gamma", "lambd"), SWITCHES)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_bits_of_the_straight_line(lengths, gamma, lambd):
    """Advantages and returns equal the written-out baseline to the bit, over chunk borders and ragged rows."""
    rewards, kl, values, _ = batch(f"gae {lengths}", lengths)
    advantages, returns = gae(rewards, kl, values, lengths, kl_coef=0.1, gamma=gamma, lambd=lambd)
    expected = straight_line(rewards, kl, values, lengths, 0.1, gamma, lambd)
    for i, length in enumerate(lengths):
        assert first_difference(advantages[i], expected[0][i, :length]) is None
        assert first_difference(returns[i], expected[1][i, :length]) is None


@pytest.mark.parametrize(("gamma", "lambd"), SWITCHES)
def test_values_of_the_recursion(gamma, lambd):
    """Every advantage lies within 200 half-ulps of the summed magnitudes of the exact recursion.

    A sum over a chunk rounds at most 128 times, a delta 4 times, powers and carries twice in each of 3 chunks.
    """
    rewards, kl, values, lengths = batch("exact", [300, 40])
    advantages, returns = gae(rewards, kl, values, lengths, kl_coef=0.1, gamma=gamma, lambd=lambd)
    for i in range(2):
        exact, scale = exactly(rewards[i], kl[i], values[i], 0.1, gamma, lambd)
        for j, got in enumerate(advantages[i].tolist()):
            assert abs(Fraction(got) - exact[j]) <= 200 * Fraction(U) * scale[j]
        assert first_difference(returns[i], advantages[i] + values[i]) is None


def test_by_hand():
    """Two tokens: delta_1 = 1 - 2 at the end, delta_0 = 0.5 * 2 - 4, and A_0 = delta_0 + 0.25 * delta_1."""
    kl, values = [torch.tensor([8.0, 0.0])], [torch.tensor([4.0, 2.0])]
    advantages, returns = gae([1.0], kl, values, [2], kl_coef=0.0, gamma=0.5, lambd=0.5)
    assert advantages[0].tolist() == [-3.25, -1.0]
    assert returns[0].tolist() == [0.75, 1.0]
    advantages, _ = gae([1.0], kl, values, [2], kl_coef=0.5, gamma=0.5, lambd=0.5)
    assert advantages[0].tolist() == [-7.25, -1.0]


def test_without_decay_nothing_crosses_a_chunk():
    """With lambda 0 an infinite delta stays in its chunk of 128: nothing is carried, not even 0 times infinity."""
    rows = torch.ones(1, 300)
    rows[0, 5] = float("inf")
    got = discounted_scan(rows, 0.0)
    assert got[0, 128:].tolist() == [1.0] * 172
    assert got[0, 5].item() == float("inf")


def test_a_scan_sums_across_chunks():
    """With decay 1 a row of ones counts its positions, exactly, across three chunks."""
    assert discounted_scan(torch.ones(2, 300), 1.0)[1].tolist() == [float(n) for n in range(1, 301)]


def test_the_dtype_is_that_of_the_values():
    """float64 values give float64 results from a float32 kl."""
    advantages, returns = gae(
        [1.0],
        [torch.zeros(2)],
        [torch.tensor([0.0, 1 / 3], dtype=torch.float64)],
        [2],
        kl_coef=0.0,
        gamma=1.0,
        lambd=1.0,
    )
    assert advantages[0].dtype == returns[0].dtype == torch.float64
    assert advantages[0][1].item() == 1 - 1 / 3


def test_results_stand_alone_and_inputs_stay():
    """No result shares memory with another or with an input; inputs keep their bits."""
    rewards, kl, values, lengths = batch("alone", [3, 130])
    before = [tensor.clone() for tensor in (*kl, *values)]
    advantages, returns = gae(rewards, kl, values, lengths, kl_coef=0.1, gamma=0.9, lambd=0.9)
    tensors = (*advantages, *returns, *kl, *values)
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == 8
    assert all(first_difference(now, then) is None for now, then in zip((*kl, *values), before, strict=True))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kl": [torch.zeros(2), torch.zeros(0)], "values": [torch.zeros(2), torch.zeros(0)], "lengths": [2, 0]},
         "response 1 empty"),
        ({"values": [torch.zeros(2), torch.zeros(2)]}, "response 1 kl (3,) values (2,)"),
        ({"lengths": [2, 4]}, "response 1 (3,) 4"),
        ({"rewards": [1.0]}, "rewards 1 kl 2"),
        ({"lengths": [2]}, "rewards 2 response_lengths 1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(change, words):
    """An empty response and any disagreement of counts or shapes name the response and the numbers."""
    inputs = {
        "rewards": [1.0, 2.0],
        "kl": [torch.zeros(2), torch.zeros(3)],
        "values": [torch.zeros(2), torch.zeros(3)],
        "lengths": [2, 3],
        **change,
    }
    with pytest.raises(ValueError, match=".*".join(re.escape(word) for word in words.split())):
        gae(*inputs.values(), kl_coef=0.0, gamma=1.0, lambd=1.0)


def test_no_response_at_all_gives_empty_lists():
    """A rank without samples gets two empty lists."""
    assert gae([], [], [], [], kl_coef=0.0, gamma=1.0, lambd=1.0) == ([], [])
