"""Qwen3: its logits and gradients are those of the model in the files, and its bits do not depend on the batch."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from relax.backends.megatron.forward import last_output, model_output
from relax.backends.megatron.model import with_value_head
from relax.backends.megatron.qwen3 import qwen3_model
from relax.backends.megatron.qwen3_shape import EMBEDDING, HEAD, Qwen3Shape
from relax.backends.megatron.weights import load_weights, weights_of
from tests.runtime.qwen3_folder import (
    Tensors,
    qwen3_folder,
    random_tensors,
    reference_logits,
    write_config,
    write_shards,
)

pytestmark = pytest.mark.usefixtures("alone")

LENGTHS = (9, 1, 40, 2, 17, 8, 24, 3, 31, 12, 16, 5)
FORMATS = ("thd", "bshd")
# reason: logits reach 8, where float32 is spaced 1e-6 apart; two layers chain some 40 roundings, of sums of up to 80
BOUND = 5e-5
WIDE = {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 1,
    "vocab_size": 1000,
}


def sequences(vocabulary: int = 53, lengths: tuple[int, ...] = LENGTHS) -> list[torch.Tensor]:
    """One sequence of each length."""
    stream = random.Random("sequences")
    return [torch.tensor([stream.randrange(vocabulary) for _ in range(length)]) for length in lengths]


def rows(model: torch.nn.Module, qkv_format: str, tokens: list[torch.Tensor]) -> list[torch.Tensor]:
    """The output for each sequence, ``[total_i, V]``."""
    output = model_output(model, qkv_format=qkv_format, tokens=tokens)
    lengths = [len(ids) for ids in tokens]
    of_each = output[0, : sum(lengths)].split(lengths) if qkv_format == "thd" else output
    return [row[:length] for row, length in zip(of_each, lengths, strict=True)]


def doubled(tensors: Tensors) -> dict[str, torch.Tensor]:
    """The tensors in float64, each one waiting for its gradient."""
    return {name: tensor.double().requires_grad_() for name, tensor in tensors.items()}


@pytest.mark.parametrize("qkv_format", FORMATS)
@pytest.mark.parametrize(
    "changes",
    [{}, {"tie_word_embeddings": False}, {"num_key_value_heads": 4}, {"num_key_value_heads": 1}, {"rope_theta": 100}],
    ids=["as-it-comes", "untied", "a-key-a-query", "one-key", "another-base"],
)
@torch.no_grad()
def test_logits(tmp_path: Path, changes: dict[str, object], qkv_format: str) -> None:
    """The logits are those that the files' tensors give in float64, written out step by step."""
    tensors = qwen3_folder(tmp_path, **changes)
    shape = Qwen3Shape.read(tmp_path / "config.json")
    model, hidden = qwen3_model(tmp_path, max_length=40, tokens=53)
    assert hidden == 48
    for ids, found in zip(sequences(), rows(model, qkv_format, sequences()), strict=True):
        expected = reference_logits(doubled(tensors), shape, ids)
        assert float(expected.std()) > 1
        assert float((expected - found).abs().max()) < BOUND


@torch.no_grad()
def test_reference_is_that_of_transformers(tmp_path: Path) -> None:
    """transformers' Qwen3ForCausalLM, reading the same folder in float64, gives the reference's logits."""
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed: pip install transformers")
    from transformers import Qwen3ForCausalLM

    tensors = qwen3_folder(tmp_path)
    theirs = Qwen3ForCausalLM.from_pretrained(tmp_path, dtype=torch.float64, attn_implementation="eager")
    ours, _ = qwen3_model(tmp_path, max_length=40, tokens=53)
    shape = Qwen3Shape.read(tmp_path / "config.json")
    for ids, found in zip(sequences(), rows(ours, "thd", sequences()), strict=True):
        expected = theirs(ids[None]).logits[0]
        # reason: transformers takes sines of float32 angles whatever the dtype: off by 2e-6 at an angle of 40
        assert float((expected - reference_logits(doubled(tensors), shape, ids)).abs().max()) < 2e-5
        assert float((expected - found).abs().max()) < BOUND


@pytest.mark.parametrize("tied", [True, False])
def test_gradients(tmp_path: Path, tied: bool) -> None:
    """Each parameter's gradient is that of the tensors it was made of; a tied head adds to the embedding's."""
    tensors = doubled(qwen3_folder(tmp_path, tie_word_embeddings=tied))
    shape = Qwen3Shape.read(tmp_path / "config.json")
    model, _ = qwen3_model(tmp_path, max_length=40, tokens=53)
    loss: torch.Tensor = sum(row.log_softmax(1)[:, 3].mean() for row in rows(model, "thd", sequences()))
    parameters = dict(model.named_parameters())
    found = dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))
    expected_loss: torch.Tensor = sum(
        reference_logits(tensors, shape, ids).log_softmax(1)[:, 3].mean() for ids in sequences()
    )
    expected = dict(zip(tensors, torch.autograd.grad(expected_loss, list(tensors.values())), strict=True))
    names = {"embedding.word_embeddings.weight": EMBEDDING, "decoder.final_layernorm.weight": "model.norm.weight"}
    names |= {} if tied else {"output_layer.weight": HEAD}
    for i in (0, 1):
        ours, theirs = f"decoder.layers.{i}.", f"model.layers.{i}."
        names[ours + "self_attention.linear_proj.weight"] = theirs + "self_attn.o_proj.weight"
        names[ours + "self_attention.q_layernorm.weight"] = theirs + "self_attn.q_norm.weight"
        names[ours + "mlp.linear_fc2.weight"] = theirs + "mlp.down_proj.weight"
        fused = found[ours + "self_attention.linear_qkv.weight"].split(16)  # two queries, key, value: twice
        for name, parts in (("q", (0, 1, 4, 5)), ("k", (2, 6)), ("v", (3, 7))):
            close(expected[f"{theirs}self_attn.{name}_proj.weight"], torch.cat([fused[part] for part in parts]))
        gate, up = found[ours + "mlp.linear_fc1.weight"].split(80)
        close(expected[theirs + "mlp.gate_proj.weight"], gate)
        close(expected[theirs + "mlp.up_proj.weight"], up)
    for name, source in names.items():
        close(expected[source], found[name])


def close(expected: torch.Tensor, found: torch.Tensor) -> None:
    """The distance is small beside the gradient."""
    assert float(expected.norm()) > 1e-3
    assert float((expected - found).norm() / expected.norm()) < 1e-4  # reason: as BOUND, and sums over 168 tokens


def critic(folder: Path, vocabulary: int) -> torch.nn.Module:
    """The critic on the same layers, with a head that is not 0."""
    model = with_value_head(*qwen3_model(folder, max_length=40, tokens=vocabulary))
    weights = weights_of(model)
    weights["output_layer.weight"] = torch.linspace(-1, 1, len(weights["output_layer.weight"]))
    load_weights(model, weights)
    return model


def policy(folder: Path, vocabulary: int) -> torch.nn.Module:
    """The policy in the folder."""
    return qwen3_model(folder, max_length=40, tokens=vocabulary)[0]


@pytest.mark.parametrize("make", [policy, critic])
@pytest.mark.parametrize("changes", [{}, WIDE], ids=["tiny", "as-wide-as-0.6B"])
@torch.no_grad()
def test_batch_invariant(tmp_path: Path, make: Callable[[Path, int], torch.nn.Module], changes: dict[str, int]) -> None:
    """On a CPU a sequence alone, in a batch in rows and packed, and in another order has the same bits."""
    qwen3_folder(tmp_path, **changes)
    vocabulary = changes.get("vocab_size", 53)
    model, tokens = make(tmp_path, vocabulary), sequences(vocabulary)
    alone = [rows(model, "bshd", [ids])[0] for ids in tokens]
    last = torch.stack([one[-1] for one in alone])
    assert torch.equal(last, last_output(model, tokens))
    assert torch.equal(last[:1], last_output(model, tokens[:1]))
    for ids, one in zip(tokens, alone, strict=True):
        assert torch.equal(one, rows(model, "thd", [ids])[0])
    for qkv_format in FORMATS:
        together = rows(model, qkv_format, tokens)
        reversed_ = rows(model, qkv_format, tokens[::-1])[::-1]
        for position, (one, two, three) in enumerate(zip(alone, together, reversed_, strict=True)):
            assert bool(one.isfinite().all())
            assert len(one.unique()) > len(one) / 2
            assert torch.equal(one, two), f"sequence {position} alone and in a batch of {qkv_format}"
            assert torch.equal(one, three), f"sequence {position} in another order of {qkv_format}"


def test_shards_and_dtypes(tmp_path: Path) -> None:
    """One file or several, bfloat16 or the float32 of the same values: the same weights, in float32."""
    for name in ("one", "several", "wider"):
        (tmp_path / name).mkdir()
    tensors = random_tensors(write_config(tmp_path / "one"))
    for name in ("several", "wider"):
        write_config(tmp_path / name)
    save_file(tensors, tmp_path / "one" / "model.safetensors")
    write_shards(tmp_path / "several", tensors)
    save_file({name: one.float() for name, one in tensors.items()}, tmp_path / "wider" / "model.safetensors")
    expected, *others = (weights_of(policy(tmp_path / name, 53)) for name in ("one", "several", "wider"))
    assert {torch.float32} == {tensor.dtype for tensor in expected.values()}
    assert torch.equal(tensors[EMBEDDING].float(), expected["embedding.word_embeddings.weight"])
    for other in others:
        assert all(torch.equal(tensor, other[name]) for name, tensor in expected.items())


def test_tied_head_once_more(tmp_path: Path) -> None:
    """The released file holds the tied head too: it is read where it is the embedding."""
    tensors = qwen3_folder(tmp_path)
    expected = weights_of(policy(tmp_path, 53))
    save_file({**tensors, HEAD: tensors[EMBEDDING].clone()}, tmp_path / "model.safetensors")
    found = weights_of(policy(tmp_path, 53))
    assert expected.keys() == found.keys()
    assert "output_layer.weight" not in found
