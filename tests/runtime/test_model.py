"""The model: its size, what a token may depend on, and that its bits do not depend on the batch."""

from __future__ import annotations

import random
from argparse import Namespace

import pytest
import torch

from relax.backends.megatron.forward import FEWEST_TOKENS, last_output, model_output
from relax.backends.megatron.loss import policy_loss_function
from relax.backends.megatron.model import ModelShape, critic_model, policy_model
from relax.backends.megatron.responses import get_values
from relax.backends.megatron.weights import load_weights, weights_of

pytestmark = pytest.mark.usefixtures("alone")

SHAPE = ModelShape(19, 32, layers=2, hidden=64, heads=4, feed_forward=256)
LENGTHS = (9, 1, 32, 2, 17, 8, 24, 3, 31, 12, 16, 5)
FORMATS = ("thd", "bshd")


def sequences(name: str = "sequences") -> list[torch.Tensor]:
    """One sequence of each length."""
    stream = random.Random(name)
    return [torch.tensor([stream.randrange(SHAPE.vocabulary) for _ in range(length)]) for length in LENGTHS]


def rows(model: torch.nn.Module, qkv_format: str, tokens: list[torch.Tensor]) -> list[torch.Tensor]:
    """The output for each sequence, ``[total_i, V]``."""
    output = model_output(model, qkv_format=qkv_format, tokens=tokens)
    lengths = [len(ids) for ids in tokens]
    of_each = output[0, : sum(lengths)].split(lengths) if qkv_format == "thd" else output
    return [row[:length].detach() for row, length in zip(of_each, lengths, strict=True)]


def critic_with_values() -> torch.nn.Module:
    """A critic whose head is not 0."""
    critic = critic_model(SHAPE, seed=3)
    stream = random.Random("head")
    weights = weights_of(critic)
    weights["output_layer.weight"] = torch.tensor([stream.uniform(-1, 1) for _ in range(SHAPE.hidden)])
    load_weights(critic, weights)
    return critic


def test_size() -> None:
    """The parameters are those of two layers, two embeddings, a norm and a head: 104,960 of them."""
    h, f = 64, 256
    of_a_layer = 3 * h * h + 3 * h + h * h + h + h * f + f + f * h + h + 4 * h
    expected = 19 * h + 32 * h + 2 * of_a_layer + 2 * h + 19 * h
    assert expected == sum(one.numel() for one in policy_model(SHAPE, seed=0).parameters())


def test_largest_of_the_example() -> None:
    """Four layers of 128 stay under a million parameters."""
    model = policy_model(ModelShape(32, 64, layers=4, hidden=128, heads=4, feed_forward=512), seed=0)
    assert 500_000 < sum(one.numel() for one in model.parameters()) < 1_000_000


def test_seed_decides() -> None:
    """One seed gives the same weights twice, another seed others, and torch's own stream goes on undisturbed."""
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, again, other = (weights_of(policy_model(SHAPE, seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(expected, torch.rand(3))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["output_layer.weight"], other["output_layer.weight"])


@pytest.mark.parametrize("qkv_format", FORMATS)
def test_causal(qkv_format: str) -> None:
    """Another token changes the output at its own place and after it, and no bit before it."""
    model = policy_model(SHAPE, seed=1)
    tokens = sequences()
    before = rows(model, qkv_format, tokens)
    changed = [ids.clone() for ids in tokens]
    changed[4][6] = (changed[4][6] + 1) % SHAPE.vocabulary
    after = rows(model, qkv_format, changed)
    differs = [(one != other).any(dim=1) for one, other in zip(before, after, strict=True)]
    assert [place < 6 for place in range(17)] == [not bool(moved) for moved in differs[4]]
    assert not any(bool(moved.any()) for position, moved in enumerate(differs) if position != 4)


@pytest.mark.parametrize("qkv_format", FORMATS)
@pytest.mark.parametrize("make", [lambda: policy_model(SHAPE, seed=1), critic_with_values], ids=["policy", "critic"])
def test_batch_invariant(make, qkv_format: str) -> None:
    """A sequence alone, in the batch, and in the batch in another order has the same bits, in either layout."""
    model = make()
    tokens = sequences()
    alone = [rows(model, "bshd", [ids])[0] for ids in tokens]
    together = rows(model, qkv_format, tokens)
    reversed_ = rows(model, qkv_format, tokens[::-1])[::-1]
    for position, (one, two, three) in enumerate(zip(alone, together, reversed_, strict=True)):
        assert bool(one.isfinite().all())
        assert len(one.unique()) == one.numel() > 0
        assert torch.equal(one, two), f"sequence {position} alone and in the batch"
        assert torch.equal(one, three), f"sequence {position} in another order"


@pytest.mark.parametrize("make", [lambda: policy_model(SHAPE, seed=1), critic_with_values], ids=["policy", "critic"])
def test_last_output(make) -> None:
    """The row at each sequence's last token, however many sequences there are; the model is left as it was."""
    model, tokens = make(), sequences()
    expected = torch.stack([row[-1] for row in rows(model, "thd", tokens)])
    for count in (1, 2, len(tokens)):
        assert torch.equal(expected[:count], last_output(model, tokens[:count]))
    assert torch.equal(expected, torch.stack([row[-1] for row in rows(model, "thd", tokens)]))


def test_padding_is_not_seen() -> None:
    """Padded lengths move sequences apart and change no bit."""
    model = policy_model(SHAPE, seed=1)
    tokens = sequences()[:3]
    padded = [12, 4, 32]
    output = model_output(model, qkv_format="thd", tokens=tokens, padded_total_lengths=padded)
    assert (1, sum(padded), SHAPE.vocabulary) == tuple(output.shape)
    for row, expected in zip(output[0].split(padded), rows(model, "thd", tokens), strict=True):
        assert torch.equal(expected, row[: len(expected)])


def test_gradient_of_the_layouts() -> None:
    """Packed and padded batches give gradients that agree to rounding."""
    gradients = []
    for qkv_format in FORMATS:
        model = policy_model(SHAPE, seed=1)
        tokens = [ids for ids in sequences() if len(ids) > 4]
        args = Namespace(
            advantage_estimator="grpo", qkv_format=qkv_format, context_parallel_size=1, use_kl_loss=False,
            use_opsm=False, use_tis=False, calculate_per_token_loss=False, eps_clip=0.2, eps_clip_high=0.2,
            eps_clip_c=None,
        )  # fmt: skip
        responses = [len(ids) - 3 for ids in tokens]
        batch = {
            "tokens": tokens,
            "total_lengths": [len(ids) for ids in tokens],
            "response_lengths": responses,
            "log_probs": [torch.full((length,), -3.0) for length in responses],
            "advantages": [torch.full((length,), float(sign)) for sign, length in enumerate(responses, start=-4)],
        }
        output = model_output(model, qkv_format=qkv_format, tokens=tokens)
        loss, _ = policy_loss_function(args, batch, output)
        parts = torch.autograd.grad(loss, list(model.parameters()))
        gradients.append(torch.cat([part.flatten() for part in parts]).double())
    distance = float((gradients[0] - gradients[1]).norm() / gradients[0].norm())
    assert float(gradients[0].norm()) > 1e-3
    assert distance < 1e-5  # reason: weight gradients sum some 200 float32 products in another order


def test_short_batches_are_filled_up() -> None:
    """A batch of one token is computed with as many rows as the kernel needs."""
    model = policy_model(SHAPE, seed=1)
    for qkv_format in FORMATS:
        output = model_output(model, qkv_format=qkv_format, tokens=[torch.tensor([3])])
        assert (1, FEWEST_TOKENS, SHAPE.vocabulary) == tuple(output.shape)


def test_too_long() -> None:
    """A sequence that the model cannot read is refused by its place and both lengths."""
    model = policy_model(SHAPE, seed=1)
    with pytest.raises(ValueError, match=r"sequence 1 has 33 tokens.*reads 32: raise"):
        model_output(model, qkv_format="thd", tokens=[torch.zeros(3).long(), torch.zeros(33).long()])


def test_values() -> None:
    """A new critic says 0 everywhere, one that has learned does not, and each response has one value a token."""
    tokens = sequences()[4:6]
    args = Namespace(qkv_format="thd", context_parallel_size=1)
    lengths = {"total_lengths": [17, 8], "response_lengths": [10, 0]}
    for make, flat in ((lambda: critic_model(SHAPE, seed=3), True), (critic_with_values, False)):
        output = model_output(make(), qkv_format="thd", tokens=tokens).detach()
        values = get_values(args, output, tokens=tokens, **lengths)
        assert [len(one) for one in values] == [10, 0]
        assert flat == (float(values[0].abs().max()) == 0)


def test_foreign_weights() -> None:
    """Weights of another shape are refused by name, and the model keeps its own."""
    model = policy_model(SHAPE, seed=1)
    before = weights_of(model)
    foreign = weights_of(policy_model(ModelShape(20, 32, hidden=64, feed_forward=256), seed=2))
    with pytest.raises(ValueError, match=r"'embedding.word_embeddings.weight' is .*\(20, 64\).*\(19, 64\)"):
        load_weights(model, foreign)
    assert all(torch.equal(before[name], now) for name, now in weights_of(model).items())


@pytest.mark.parametrize(("change", "said"), [({"heads": 3}, "64 is no multiple of 3"), ({"layers": 0}, "layers is 0")])
def test_shapes_refused(change: dict[str, int], said: str) -> None:
    """Sizes that make no model are named."""
    with pytest.raises(ValueError, match=said):
        ModelShape(**{**vars(SHAPE), **change})
