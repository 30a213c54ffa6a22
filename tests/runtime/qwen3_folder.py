"""Tiny folders in the layout in which Qwen3 comes, and what such a model gives, in plain torch and float64."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from relax.backends.megatron.qwen3_shape import EMBEDDING, HEAD, Qwen3Shape

# Two layers; the heads together are wider than the hidden size, and two of them share keys.
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 48,
    "intermediate_size": 80,
    "max_position_embeddings": 64,
    "model_type": "qwen3",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 53,
}
Tensors = Mapping[str, torch.Tensor]


def write_config(folder: Path, **changes: Any) -> Qwen3Shape:
    """Writes ``config.json`` with ``changes``, a key of None left out unless it is one that may be null."""
    config = {**CONFIG, **changes}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return Qwen3Shape.read(folder / "config.json")


def random_tensors(shape: Qwen3Shape, *, dtype: torch.dtype = torch.bfloat16) -> dict[str, torch.Tensor]:
    """Every tensor of the shape, of integers over 256 from a stream of the standard library; norms lie around 1."""
    sizes = shape.tensors() if shape.tie_word_embeddings else {**shape.tensors(), HEAD: shape.tensors()[EMBEDDING]}
    tensors = {}
    for name, size in sizes.items():
        numbers = random.Random(name).choices(range(-128, 129), k=math.prod(size))
        scale, middle = (1 / 256, 0.0) if len(size) > 1 else (1 / 512, 1.0)
        tensors[name] = (torch.tensor(numbers).reshape(size) * scale + middle).to(dtype)
    return tensors


def write_shards(folder: Path, tensors: Tensors) -> None:
    """Writes the tensors into two files and an index; every other tensor is in the second file."""
    files = [f"model-{number:05d}-of-00002.safetensors" for number in (1, 2)]
    weight_map = {name: files[number % 2] for number, name in enumerate(tensors)}
    for file in files:
        save_file({name: tensor for name, tensor in tensors.items() if weight_map[name] == file}, folder / file)
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def qwen3_folder(folder: Path, **changes: Any) -> dict[str, torch.Tensor]:
    """Writes a whole model with ``changes`` of its config into ``folder``, and gives its tensors."""
    tensors = random_tensors(write_config(folder, **changes))
    save_file(tensors, folder / "model.safetensors")
    return tensors


def reference_logits(tensors: Tensors, shape: Qwen3Shape, ids: torch.Tensor) -> torch.Tensor:
    """What a Qwen3 says of one sequence ``[S]``: ``[S, V]`` in the dtype of ``tensors``, written out step by step."""
    hidden = tensors[EMBEDDING][ids]  # [S, H]
    for layer in range(shape.num_hidden_layers):
        own = {name.removeprefix(f"model.layers.{layer}."): tensor for name, tensor in tensors.items()}
        hidden = hidden + _attended(own, shape, _normed(hidden, own["input_layernorm.weight"], shape))
        inner = _normed(hidden, own["post_attention_layernorm.weight"], shape)
        gate = inner @ own["mlp.gate_proj.weight"].T
        hidden = (
            hidden
            + (gate * torch.sigmoid(gate) * (inner @ own["mlp.up_proj.weight"].T)) @ own["mlp.down_proj.weight"].T
        )
    head = tensors[EMBEDDING if shape.tie_word_embeddings else HEAD]
    return _normed(hidden, tensors["model.norm.weight"], shape) @ head.T


def _attended(own: Tensors, shape: Qwen3Shape, normed: torch.Tensor) -> torch.Tensor:
    """The output of one layer's attention, ``[S, H]``, head by head."""
    queries, keys, values = (
        (normed @ own[f"self_attn.{one}_proj.weight"].T).split(shape.head_dim, dim=1) for one in "qkv"
    )
    length = len(normed)
    hidden_future = torch.full((length, length), -math.inf, dtype=normed.dtype).triu(1)
    outputs = []
    for head, query in enumerate(queries):
        group = head * shape.num_key_value_heads // shape.num_attention_heads
        turned_query = _turned(_normed(query, own["self_attn.q_norm.weight"], shape), shape)
        turned_key = _turned(_normed(keys[group], own["self_attn.k_norm.weight"], shape), shape)
        scores = turned_query @ turned_key.T / math.sqrt(shape.head_dim) + hidden_future  # [S, S]
        outputs.append(scores.softmax(dim=1) @ values[group])
    return torch.cat(outputs, dim=1) @ own["self_attn.o_proj.weight"].T


def _normed(rows: torch.Tensor, weight: torch.Tensor, shape: Qwen3Shape) -> torch.Tensor:
    return rows / (rows.square().mean(dim=1, keepdim=True) + shape.rms_norm_eps).sqrt() * weight


def _turned(rows: torch.Tensor, shape: Qwen3Shape) -> torch.Tensor:
    """Each pair (j, j + D/2) of row p as a complex number, turned by p * theta ** (-2j / D)."""
    half = shape.head_dim // 2
    angles = torch.tensor(
        [[p * shape.rope_theta ** (-2 * j / shape.head_dim) for j in range(half)] for p in range(len(rows))],
        dtype=rows.dtype,
    )
    turned = torch.complex(rows[:, :half], rows[:, half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((turned.real, turned.imag), dim=1)
