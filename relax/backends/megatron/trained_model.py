"""A model with its optimizer, as one part of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from relax.backends.megatron.optimizer import Optimizer
from relax.backends.megatron.weights import load_weights, weights_of
from relax.core.checkpoint import Checkpoint, CheckpointError, write_part
from relax.core.random_states import random_states, restore_random_states

_GROUPS = ("weights", "optimizer", "random")


@dataclass(frozen=True)
class TrainedModel:
    """What a training role keeps from step to step. Data-parallel ranks hold the same: rank 0's is written."""

    model: torch.nn.Module
    optimizer: Optimizer

    def save(self, pending: Path, name: str) -> None:
        """Writes weights, moments, the number of steps and this process's random states as part ``name``."""
        held = dict(zip(_GROUPS, (weights_of(self.model), self.optimizer.state(), random_states()), strict=True))
        tensors = {f"{group}/{key}": tensor for group, of_it in held.items() for key, tensor in of_it.items()}
        write_part(pending, name, tensors=tensors, facts={"steps": self.optimizer.steps})

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        """Continues from part ``name``. Raises `CheckpointError` naming the part where it is of another model."""
        held: dict[str, dict[str, torch.Tensor]] = {group: {} for group in _GROUPS}
        for key, tensor in checkpoint.tensors(name).items():
            group, _, rest = key.partition("/")
            held[group][rest] = tensor
        try:
            load_weights(self.model, held["weights"])
            self.optimizer.load_state(held["optimizer"], checkpoint.facts(name)["steps"])
        except ValueError as error:
            raise CheckpointError(
                f"part {name!r} of {checkpoint.folder}: {error}; give the options it was saved with"
            ) from error
        restore_random_states(held["random"])
