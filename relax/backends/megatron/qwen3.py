"""Qwen3 from a folder on disk: megatron's GPTModel with rotary positions, grouped queries and tied embeddings.

What holds of `relax.backends.megatron.forward` holds here on a CPU: the row of a token has the same bits in every batch
and in both layouts. On a GPU it does not: there a matrix product takes its kernel by the size of the whole batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import torch

from relax.backends.megatron.hf_folder import TensorFolder
from relax.backends.megatron.model import layer_spec, rounded_up, transformer_config
from relax.backends.megatron.qwen3_shape import EMBEDDING, FINAL_NORM, HEAD, Qwen3Shape
from relax.backends.megatron.rotary import Rotary


def qwen3_model(folder: Path, *, max_length: int, tokens: int) -> tuple[torch.nn.Module, int]:
    """The model in ``folder``, which gives logits ``[..., vocab_size]`` in float32, and its hidden size.

    It reads sequences of up to ``max_length`` tokens, whose ids are below ``tokens``. Needs megatron's groups. Raises
    ValueError naming file and key, or file and tensor, where the files are not those of one Qwen3 that can do so.
    """
    shape = Qwen3Shape.read(folder / "config.json")
    if max_length > shape.max_position_embeddings:
        raise ValueError(
            f"--max-length {max_length} exceeds the {shape.max_position_embeddings} positions of the model in {folder}"
        )
    if tokens > shape.vocab_size:
        raise ValueError(
            f"the tokenizer has {tokens} tokens and the model in {folder} knows {shape.vocab_size}: "
            "take tokenizer.json and the model from the same folder"
        )
    files = TensorFolder.open(folder)
    _require_tensors(shape, files)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of optional packages, as megatron loads
        model = _build(shape, rounded_up(max_length))
    _load(model, shape, files)
    return model, shape.hidden_size


def _require_tensors(shape: Qwen3Shape, files: TensorFolder) -> None:
    """Just the tensors of the shape; a tied head may be there too, where it is the embedding once more."""
    expected = shape.tensors()
    if not shape.tie_word_embeddings or HEAD in files.files:
        expected[HEAD] = expected[EMBEDDING]
    files.require(expected)
    if shape.tie_word_embeddings and HEAD in expected and not files.tensor(HEAD).equal(files.tensor(EMBEDDING)):
        raise ValueError(
            f"tensor {HEAD!r} in {files.place(HEAD)} differs from {EMBEDDING!r}, and its config.json says that they "
            "are tied: set tie_word_embeddings to false, or mend the file"
        )


def _build(shape: Qwen3Shape, row_length: int) -> torch.nn.Module:
    """The model with weights that hold nothing yet."""
    from megatron.core.models.gpt import GPTModel

    config = transformer_config(
        num_layers=shape.num_hidden_layers,
        hidden_size=shape.hidden_size,
        ffn_hidden_size=shape.intermediate_size,
        num_attention_heads=shape.num_attention_heads,
        num_query_groups=shape.num_key_value_heads,
        kv_channels=shape.head_dim,
        normalization="RMSNorm",
        layernorm_epsilon=shape.rms_norm_eps,
        qk_layernorm=True,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        perform_initialization=False,
    )
    model = GPTModel(
        config=config,
        transformer_layer_spec=layer_spec(row_length, qk_layernorm=True, normalization="RMSNorm"),
        vocab_size=shape.vocab_size,
        max_sequence_length=row_length,
        position_embedding_type="rope",
        share_embeddings_and_output_weights=shape.tie_word_embeddings,
        parallel_output=True,
    )
    model.rotary_pos_emb = Rotary(head_dim=shape.head_dim, base=shape.rope_theta)
    return model


@torch.no_grad()
def _load(model: torch.nn.Module, shape: Qwen3Shape, files: TensorFolder) -> None:
    """Every parameter from the one or more tensors that it is made of."""
    sources = _sources(shape)
    for name, parameter in model.named_parameters():
        tensors = [files.tensor(source) for source in sources[name]]
        if name.endswith("linear_qkv.weight"):
            tensors = _by_group(tensors, shape)
        parameter.copy_(torch.cat(tensors))


def _sources(shape: Qwen3Shape) -> Mapping[str, tuple[str, ...]]:
    """Which tensors each of megatron's parameters is made of, one below the other."""
    of_a_layer = {
        "input_layernorm": ("input_layernorm",),
        "self_attention.linear_qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "self_attention.q_layernorm": ("self_attn.q_norm",),
        "self_attention.k_layernorm": ("self_attn.k_norm",),
        "self_attention.linear_proj": ("self_attn.o_proj",),
        "pre_mlp_layernorm": ("post_attention_layernorm",),
        "mlp.linear_fc1": ("mlp.gate_proj", "mlp.up_proj"),
        "mlp.linear_fc2": ("mlp.down_proj",),
    }
    layers = {
        f"decoder.layers.{i}.{name}.weight": tuple(f"model.layers.{i}.{source}.weight" for source in sources)
        for i in range(shape.num_hidden_layers)
        for name, sources in of_a_layer.items()
    }
    return {
        "embedding.word_embeddings.weight": (EMBEDDING,),
        "decoder.final_layernorm.weight": (FINAL_NORM,),
        "output_layer.weight": (HEAD,),
        **layers,
    }


def _by_group(tensors: list[torch.Tensor], shape: Qwen3Shape) -> list[torch.Tensor]:
    """Queries, keys and values ``[heads * D, hidden]`` as megatron has them: group by group, queries first."""
    rows = [tensor.unflatten(0, (shape.num_key_value_heads, -1)) for tensor in tensors]  # [groups, rows, hidden]
    return list(torch.cat(rows, dim=1))
