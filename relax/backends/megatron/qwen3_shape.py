"""What the ``config.json`` of a Qwen3 says: its sizes, and the tensors that its files must hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relax.backends.megatron.hf_folder import read_json

# What a config.json may say beside sizes; anything else would be another model.
FIXED = {
    "model_type": "qwen3",
    "hidden_act": "silu",
    "attention_bias": False,
    "rope_scaling": None,
    "use_sliding_window": False,
}
EMBEDDING, HEAD, FINAL_NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"


@dataclass(frozen=True)
class Qwen3Shape:
    """The numbers of a Qwen3, under the names of its ``config.json``."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool

    @classmethod
    def read(cls, path: Path) -> Qwen3Shape:
        """The shape in a ``config.json``; ValueError naming file, key and value where it is missing or no Qwen3's."""
        config = read_json(path)
        rope = config.get("rope_parameters") or {}  # where newer files keep what older ones said in rope_theta
        config.setdefault("rope_theta", rope.get("rope_theta"))
        if rope.get("rope_type", "default") != "default":
            raise ValueError(f"{path}: rope_type is {rope['rope_type']!r}, and only 'default' is trained here")
        for key, only in FIXED.items():
            if (found := config.get(key, None if key == "model_type" else only)) != only:
                raise ValueError(f"{path}: {key} is {found!r}, and only {only!r} is trained here: take a dense Qwen3")
        values: dict[str, Any] = {key: config.get(key) for key in cls.__dataclass_fields__}
        for key, value in values.items():
            if key == "tie_word_embeddings":
                fits = isinstance(value, bool)
            else:
                numbers = (int, float) if key in ("rms_norm_eps", "rope_theta") else int
                fits = isinstance(value, numbers) and not isinstance(value, bool) and value > 0
            if not fits:
                raise ValueError(f"{path}: {key} is {value!r}, which is no Qwen3's: download it anew")
        shape = cls(**values)
        if shape.num_attention_heads % shape.num_key_value_heads or shape.head_dim % 2:
            raise ValueError(
                f"{path}: {shape.num_attention_heads} heads for {shape.num_key_value_heads} of keys, of size "
                f"{shape.head_dim}: the first must be a multiple of the second, and the size even"
            )
        return shape

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor in the model's files, the head apart."""
        queries, keys = (heads * self.head_dim for heads in (self.num_attention_heads, self.num_key_value_heads))
        hidden, inner = self.hidden_size, self.intermediate_size
        of_a_layer: dict[str, tuple[int, ...]] = {
            "input_layernorm": (hidden,),
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, queries),
            "self_attn.q_norm": (self.head_dim,),
            "self_attn.k_norm": (self.head_dim,),
            "post_attention_layernorm": (hidden,),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        layers = range(self.num_hidden_layers)
        return {
            EMBEDDING: (self.vocab_size, hidden),
            FINAL_NORM: (hidden,),
            **{f"model.layers.{i}.{name}.weight": size for i in layers for name, size in of_a_layer.items()},
        }
