"""A model's weights as named tensors: what travels to the rollout, to the reference, and into a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from relax.backends.megatron.optimizer import require_same_tensors


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Copies of the model's weights, by name, on the CPU."""
    return {name: parameter.detach().to("cpu", copy=True) for name, parameter in model.named_parameters()}


@torch.no_grad()
def load_weights(model: torch.nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    """Gives the model ``weights``. Raises ValueError, before anything is changed, naming a tensor that does not fit."""
    parameters = dict(model.named_parameters())
    require_same_tensors("the set of weights", weights, parameters)
    for name, parameter in parameters.items():
        parameter.copy_(weights[name])
