"""What each rank runs on its part of a batch: the Megatron side as a training step calls it.

Every program takes the rank's own case, whose inputs are its part, and gives named arrays (``assemble.py`` says of what
kinds), and which inputs it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from relax.algorithms.advantages import normalize_advantages
from relax.algorithms.formulas.reducers import reduce_loss
from relax.algorithms.policy import policy_objective
from relax.backends.megatron.loss import (
    compute_advantages_and_returns,
    log_probs_and_entropy,
    policy_loss_function,
)
from relax.backends.megatron.parallel import parallel
from verification.cases.case import Case
from verification.frozen import dispatch
from verification.ranks.worker import here

Arrays = dict[str, torch.Tensor]
WRITTEN = ("kl", "advantages", "returns")


def _program(run: Callable[[Any, dict[str, Any]], Arrays]) -> Callable[[Case], dict[str, Any]]:
    """A program of the options and inputs, which must leave its inputs as they were, but for the keys it writes."""

    def program(case: Case) -> dict[str, Any]:
        inputs = case.fresh_inputs()
        before = {name: _mark(value) for name, value in inputs.items()}
        arrays = run(case.arguments(), inputs)
        after = {name: _mark(value) for name, value in inputs.items() if name not in WRITTEN or name in before}
        changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        return {"arrays": {name: tensor.detach() for name, tensor in arrays.items()}, "mutated": tuple(changed)}

    return program


def _mark(value: Any) -> Any:
    """What a write to ``value`` changes: of a tensor which one it is, and torch's count of the writes to it."""
    if isinstance(value, torch.Tensor):
        return id(value), value._version
    return [_mark(item) for item in value] if isinstance(value, list) else value


@_program
def advantages(args: Any, rollout: dict[str, Any]) -> Arrays:
    """The colocated path, in place on rollout data; stages before the last write nothing."""
    compute_advantages_and_returns(args, rollout)
    return {name: _joined(rollout[name]) for name in WRITTEN if name in rollout}


@_program
def normalization(args: Any, inputs: dict[str, Any]) -> Arrays:
    """Token-level normalisation over data and context parallelism, and the frozen copy's on the same ranks."""
    live = normalize_advantages(args, **inputs, process_group=parallel().data_and_context)
    arrays = {"advantages": _joined(live)}
    if not live:  # the frozen copy cannot join without a response
        inputs = {**inputs, "advantages": [torch.zeros(0)], "loss_masks": [torch.zeros(0)]}
    try:
        frozen = dispatch.normalize_advantages(args, **inputs, process_group=here().group)
    except NotImplementedError:
        return arrays
    return {**arrays, "frozen.advantages": _joined(frozen)}


@_program
def objective(args: Any, inputs: dict[str, Any]) -> Arrays:
    """The policy objective of each token, and the gradient of its sum."""
    leaves = [tokens.requires_grad_() for tokens in inputs["log_probs"]]
    loss, clipfrac, ppo_kl = policy_objective(args, **inputs)
    gradient = _joined(_gradients(loss.sum(), leaves))
    return {"loss": loss, "clipfrac": clipfrac, "ppo_kl": ppo_kl, "grad.log_probs": gradient}


@_program
def reduction(args: Any, inputs: dict[str, Any]) -> Arrays:
    """This rank's addend of the loss, and its gradient."""
    leaves = [tokens.requires_grad_() for tokens in inputs["values"]]
    loss = reduce_loss(args, **inputs)
    return {"loss": loss, "grad.values": _joined(_gradients(loss, leaves))}


@_program
def log_probs(args: Any, inputs: dict[str, Any]) -> Arrays:
    """Log-probs and entropy from the logits of a rank of the last stage, and the gradient of either's sum."""
    if not parallel().is_last_pipeline_stage:
        return {}
    logits = inputs["logits"].requires_grad_()
    log_probs, entropy = log_probs_and_entropy(args, **inputs)
    arrays = {"log_probs": _joined(log_probs), "entropy": _joined(entropy)}
    for name, tokens in (("grad.logits", log_probs), ("grad.logits.entropy", entropy)):
        total = sum((part.sum() for part in tokens), start=logits.sum() * 0)  # a rank may hold no token
        arrays[name] = _gradients(total, [logits])[0]
    return arrays


@_program
def policy_loss(args: Any, inputs: dict[str, Any]) -> Arrays:
    """One policy step: this rank's addend of the loss and of each metric, and the gradient of its logits.

    The last stage alone has logits.
    """
    if not parallel().is_last_pipeline_stage:
        return {}
    logits = inputs["logits"].requires_grad_()
    batch = {name: value for name, value in inputs.items() if name != "logits"}
    loss, metrics = policy_loss_function(args, batch, logits)
    named = {f"metrics.{name}": value for name, value in metrics.items()}
    return {"loss": loss, **named, "grad.logits": _gradients(loss, [logits])[0]}


def _gradients(loss: torch.Tensor, leaves: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Gradients of this rank's loss, which must depend on the leaves, if by zeros: other ranks meet it on the way."""
    return torch.autograd.grad(loss, leaves, retain_graph=True) if leaves else ()


def _joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """This rank's tokens of all responses, ``[T]``."""
    return torch.cat(list(tensors)) if tensors else torch.zeros(0)
