"""The model: megatron's GPTModel with learned positions, small enough to train on a CPU, as a policy or as a critic."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch

from relax.backends.megatron.attention import CausalAttention

INIT_STD = 0.02


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a model. Raises ValueError, naming both numbers, where heads do not divide the hidden size."""

    vocabulary: int
    """Token ids are 0 to this, exclusive."""
    max_length: int
    """Tokens of the longest sequence."""
    layers: int = 2
    hidden: int = 128
    heads: int = 4
    feed_forward: int = 512

    def __post_init__(self) -> None:
        for name, number in vars(self).items():
            if number < 1:
                raise ValueError(f"the model's {name} is {number}: give 1 or more")
        if self.hidden % self.heads:
            raise ValueError(f"a hidden size of {self.hidden} is no multiple of {self.heads} heads: change one of them")

    @property
    def row_length(self) -> int:
        """``max_length`` rounded up to what kernels work in."""
        return rounded_up(self.max_length)


def rounded_up(length: int) -> int:
    """A length that kernels work in: the next multiple of 8."""
    return -(-length // 8) * 8


def policy_model(shape: ModelShape, *, seed: int) -> torch.nn.Module:
    """A model that gives logits ``[..., vocabulary]``, float32, with initial weights that only ``seed`` decides.

    The global random state is left as it was. Needs megatron's groups (`start_ranks`).
    """
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # of optional packages, as megatron loads
        torch.manual_seed(seed)
        return _build(shape)


def critic_model(shape: ModelShape, *, seed: int) -> torch.nn.Module:
    """As `policy_model`, with a head of one number a position, which starts at 0 everywhere."""
    return with_value_head(policy_model(shape, seed=seed), shape.hidden)


def with_value_head(model: torch.nn.Module, hidden: int) -> torch.nn.Module:
    """The model itself, its output layer replaced by one number a position, 0 everywhere before training."""
    model.output_layer = _ValueHead(hidden)
    return model


class _ValueHead(torch.nn.Module):
    """In place of the output layer: ``[S, B, hidden]`` to ``[S, B, 1]``.

    A sum of products in place of a matrix product, which for one column rounds otherwise in another batch.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(hidden))
        self.bias = torch.nn.Parameter(torch.zeros(()))

    def forward(self, hidden: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
        return ((hidden * self.weight).sum(-1) + self.bias)[..., None], None


def transformer_config(**sizes: Any) -> Any:
    """Megatron's configuration of a model in float32, without dropout, whose arithmetic is eager torch's."""
    from megatron.core.transformer.transformer_config import TransformerConfig

    return TransformerConfig(
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cpu_initialization=True,
        params_dtype=torch.float32,
        bias_dropout_fusion=False,  # what is fused is compiled, and the bits are then the compiler's
        bias_activation_fusion=False,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        **sizes,
    )


def layer_spec(row_length: int, **kinds: Any) -> Any:
    """Megatron's layer with an attention that runs on any device; ``kinds`` are those of its norms."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.spec_utils import ModuleSpec

    layer = get_gpt_layer_local_spec(**kinds)
    attention = ModuleSpec(module=CausalAttention, params={"row_length": row_length})
    layer.submodules.self_attention.submodules.core_attention = attention
    return layer


def _build(shape: ModelShape) -> torch.nn.Module:
    from megatron.core.models.gpt import GPTModel

    config = transformer_config(
        num_layers=shape.layers,
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        ffn_hidden_size=shape.feed_forward,
        init_method_std=INIT_STD,
    )
    return GPTModel(
        config=config,
        transformer_layer_spec=layer_spec(shape.row_length),
        vocab_size=shape.vocabulary,
        max_sequence_length=shape.row_length,
        position_embedding_type="learned_absolute",
        parallel_output=True,
    )
