"""The optimizer of a role: AdamW with a warm-up and a bound on the gradient, its state as named tensors."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class OptimizerSettings:
    """How weights follow gradients."""

    learning_rate: float = 1e-3
    warmup_steps: int = 0
    """The rate grows in equal steps to its full value, which step number ``warmup_steps`` has."""
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    """Of matrices; biases and the weights of norms are never decayed."""
    clip_grad: float = 1.0
    """A gradient with a larger norm is shortened to it; 0 leaves all as they are."""


class Optimizer:
    """Holds the moments of a model's parameters. The same model, gradients and state give the same bits."""

    def __init__(self, model: torch.nn.Module, settings: OptimizerSettings) -> None:
        self.settings = settings
        self.steps = 0
        """Optimizer steps taken so far."""
        self.parameters = dict(model.named_parameters())
        matrices = [one for one in self.parameters.values() if one.dim() > 1]
        vectors = [one for one in self.parameters.values() if one.dim() <= 1]
        self._adam = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
            lr=settings.learning_rate,
            betas=settings.betas,
            eps=settings.epsilon,
            foreach=False,
        )

    @property
    def learning_rate(self) -> float:
        """That of the next step."""
        warm = min(1.0, (self.steps + 1) / max(1, self.settings.warmup_steps))
        return self.settings.learning_rate * warm

    def step(self, gradient: torch.Tensor, norm: float) -> None:
        """One step along ``gradient``, all parameters' end to end ``[P]``, whose norm is ``norm``."""
        bound = self.settings.clip_grad
        if 0 < bound < norm:
            gradient = gradient * (bound / norm)
        for group in self._adam.param_groups:
            group["lr"] = self.learning_rate
        for parameter, own in zip(self.parameters.values(), self.split(gradient), strict=True):
            parameter.grad = own
        self._adam.step()
        self._adam.zero_grad()
        self.steps += 1

    def split(self, gradient: torch.Tensor) -> Iterator[torch.Tensor]:
        """Each parameter's part of ``[P]``, in the order of ``parameters`` and in its shape."""
        parts = gradient.split([one.numel() for one in self.parameters.values()])
        return (part.view_as(one) for part, one in zip(parts, self.parameters.values(), strict=True))

    def state(self) -> dict[str, torch.Tensor]:
        """Copies of the moments by ``moment/parameter``, on the CPU; empty before the first step."""
        if not self.steps:
            return {}
        return {
            f"{moment}/{name}": self._adam.state[parameter][moment].to("cpu", copy=True)
            for name, parameter in self.parameters.items()
            for moment in MOMENTS
        }

    def load_state(self, state: Mapping[str, torch.Tensor], steps: int) -> None:
        """Continues where ``state`` was taken, after ``steps`` steps.

        Raises ValueError, before anything is changed, naming a moment that is missing, unknown or of another shape.
        """
        expected = {
            f"{moment}/{name}": parameter
            for name, parameter in self.parameters.items()
            for moment in (MOMENTS if steps else ())
        }
        require_same_tensors("the optimizer's state", state, expected)
        self.steps = steps
        self._adam.state.clear()
        for name, parameter in self.parameters.items() if steps else ():
            moments = {moment: state[f"{moment}/{name}"].detach().to(parameter.device, copy=True) for moment in MOMENTS}
            self._adam.state[parameter] = {"step": torch.tensor(float(steps)), **moments}


def optimizer_of(args: Namespace, model: torch.nn.Module, *, learning_rate: float, warmup_steps: int) -> Optimizer:
    """That of a role's model, with the settings that all roles share."""
    settings = OptimizerSettings(learning_rate, warmup_steps, weight_decay=args.weight_decay, clip_grad=args.clip_grad)
    return Optimizer(model, settings)


def require_same_tensors(what: str, given: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    """Raises ValueError naming the first tensor of ``given`` that is missing, unknown, or of another shape or dtype."""
    for name in sorted(given.keys() ^ expected.keys()):
        side = "lacks" if name in expected else "has an unknown"
        raise ValueError(f"{what} {side} {name!r}: it belongs to a model of another shape")
    for name, tensor in expected.items():
        if given[name].shape != tensor.shape or given[name].dtype != tensor.dtype:
            raise ValueError(
                f"{what}: {name!r} is {given[name].dtype} {tuple(given[name].shape)}, and this model's is "
                f"{tensor.dtype} {tuple(tensor.shape)}: it belongs to a model of another shape"
            )
