"""A model folder that is not whole, or of another model: one line that names the file and the tensor or key."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from relax.backends.megatron.qwen3 import qwen3_model
from relax.backends.megatron.qwen3_shape import EMBEDDING, HEAD, Qwen3Shape
from tests.runtime.qwen3_folder import CONFIG, qwen3_folder, random_tensors, write_config, write_shards

pytestmark = pytest.mark.usefixtures("alone")

NORM, QUERY = "model.layers.1.self_attn.q_norm.weight", "model.layers.0.self_attn.q_proj.weight"


def refused(folder: Path, said: str, *, max_length: int = 40, tokens: int = 53) -> None:
    """Reading the folder fails with one line that matches ``said`` and names the folder."""
    with pytest.raises(ValueError, match=said) as caught:
        qwen3_model(folder, max_length=max_length, tokens=tokens)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tensors: tensors.pop(NORM), rf"no tensor '{re.escape(NORM)}' in .*config.json asks for"),
        (
            lambda tensors: tensors.update({"model.layers.2.input_layernorm.weight": torch.ones(48)}),
            r"model.safetensors has a tensor 'model.layers.2.input_layernorm.weight', for which",
        ),
        (
            lambda tensors: tensors.update({QUERY: tensors[QUERY].T.contiguous()}),
            rf"'{re.escape(QUERY)}' in .*model.safetensors has shape \(48, 64\).*asks for \(64, 48\)",
        ),
        (
            lambda tensors: tensors.update({QUERY: tensors[QUERY].to(torch.int8)}),
            rf"'{re.escape(QUERY)}' in .*model.safetensors is torch.int8: only float32, bfloat16",
        ),
        (
            lambda tensors: tensors.update({HEAD: -tensors[EMBEDDING]}),
            r"'lm_head.weight' in .*model.safetensors differs from 'model.embed_tokens.weight'.*tie_word_embeddings",
        ),
    ],
    ids=["missing", "extra", "misshapen", "quantised", "untied"],
)
def test_tensors(tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], Any], said: str) -> None:
    """A tensor that is missing, too many, of another shape or dtype, or not tied as the config says."""
    tensors = qwen3_folder(tmp_path)
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    refused(tmp_path, said)


def test_files(tmp_path: Path) -> None:
    """A file that is missing, cut short, or no safetensors at all."""
    refused(tmp_path, r"config.json does not exist: give --hf-checkpoint")
    write_config(tmp_path)
    refused(tmp_path, r"model.safetensors does not exist: give --hf-checkpoint")
    qwen3_folder(tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    for damaged in (whole[:-1], b"", b"\xff" * 64):
        (tmp_path / "model.safetensors").write_bytes(damaged)
        refused(tmp_path, r"model.safetensors is no whole file of safetensors: .*; download it anew")


def test_shards(tmp_path: Path) -> None:
    """An index that does not say what its files hold, and a file of it that is missing."""
    write_shards(tmp_path, random_tensors(write_config(tmp_path)))
    path = tmp_path / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    moved = {**index["weight_map"], EMBEDDING: "model-00002-of-00002.safetensors"}
    lost = {name: file for name, file in index["weight_map"].items() if name != EMBEDDING}
    for weight_map, said in (
        (moved, rf"'{EMBEDDING}' is in model-00001-of-.* says model-00002-of-"),
        (lost, rf"'{EMBEDDING}' is in model-00001-of-.* says nothing of it"),
        ({**index["weight_map"], "more": "model-00001-of-00002.safetensors"}, r"'more' is in no file of"),
        ({EMBEDDING: "../model.safetensors"}, r"index.json has no weight_map of tensors to files beside it"),
        ({EMBEDDING: 7}, r"index.json has no weight_map of tensors to files beside it"),
    ):
        path.write_text(json.dumps({"weight_map": weight_map}))
        refused(tmp_path, said)
    path.write_text(json.dumps(index))
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    refused(tmp_path, r"model-00002-of-00002.safetensors does not exist")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "llama"}, r"model_type is 'llama', and only 'qwen3'"),
        ({"attention_bias": True}, r"attention_bias is True, and only False"),
        ({"rope_scaling": {"rope_type": "yarn"}}, r"rope_scaling is {'rope_type': 'yarn'}, and only None"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}}, r"rope_type is 'yarn', and only 'default'"),
        ({"use_sliding_window": True}, r"use_sliding_window is True"),
        ({"head_dim": None}, r"head_dim is None, which is no Qwen3's"),
        ({"hidden_size": "48"}, r"hidden_size is '48', which is no Qwen3's"),
        ({"rope_theta": None}, r"rope_theta is None, which is no Qwen3's"),
        ({"num_hidden_layers": 0}, r"num_hidden_layers is 0"),
        ({"num_key_value_heads": 3}, r"4 heads for 3 of keys"),
        ({"head_dim": 15}, r"of size 15"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_config(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    """A key that is missing, no number, or of a model that is not trained here."""
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    refused(tmp_path, r"config.json: .*" + said)


@pytest.mark.parametrize("text", ["", "[1]", "{", "\udcff"])
def test_config_is_json(tmp_path: Path, text: str) -> None:
    """What is no JSON object is refused by its path."""
    (tmp_path / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    refused(tmp_path, r"config.json (cannot be read|holds no JSON object)")


def test_rope_parameters(tmp_path: Path) -> None:
    """The base of the rotation is read from where newer files keep it."""
    config = {key: value for key, value in CONFIG.items() if key not in ("rope_theta", "rope_scaling")}
    config["rope_parameters"] = {"rope_theta": 500.0, "rope_type": "default"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert Qwen3Shape.read(tmp_path / "config.json").rope_theta == 500.0


def test_sizes_asked_for(tmp_path: Path) -> None:
    """More positions than the model has, or more tokens than it knows, are refused before its weights are read."""
    write_config(tmp_path)
    refused(tmp_path, r"--max-length 65 exceeds the 64 positions", max_length=65)
    refused(tmp_path, r"the tokenizer has 54 tokens and the model .* knows 53", tokens=54)
