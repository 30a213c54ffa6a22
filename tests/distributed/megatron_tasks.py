"""What the ranks do in the tests of the Megatron side: functions named ``tests.distributed.megatron_tasks:...``.

Each takes ``(args, columns)``, as `rollouts.shard` makes the columns, and runs in one process without ranks as well.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import torch

from relax.algorithms.policy import policy_objective
from relax.backends.megatron.context_parallel import context_parallel
from relax.backends.megatron.loss import (
    compute_advantages_and_returns,
    get_values,
    log_probs_and_entropy,
    policy_loss_function,
)
from relax.backends.megatron.parallel import parallel

Argument = tuple[Namespace, dict[str, Any]]
LENGTHS = ("total_lengths", "response_lengths", "padded_total_lengths")


def advantages(argument: Argument) -> dict[str, Any]:
    """The columns that were written, and those that were there and changed."""
    args, columns = argument
    before = dict(columns)
    compute_advantages_and_returns(args, columns)
    return {name: column for name, column in columns.items() if column is not before.get(name)}


def advantages_and_what_is_left(argument: Argument) -> tuple[str, list[str]]:
    """How the call failed, and the columns that the rollout has afterwards."""
    args, columns = argument
    try:
        compute_advantages_and_returns(args, columns)
    except Exception as error:
        return f"{type(error).__name__}: {error}", sorted(columns)
    return "no failure", sorted(columns)


def policy_loss(argument: Argument) -> dict[str, Any]:
    """Loss, metrics and the gradient of this rank's logits."""
    args, columns = argument
    logits = columns["logits"].requires_grad_()
    loss, metrics = policy_loss_function(args, columns, logits)
    loss.backward()
    return {"loss": loss.detach(), "metrics": metrics, "gradient": logits.grad}


def of_logits(argument: Argument) -> dict[str, Any]:
    """Log-probs and entropy, the gradient of the logits from the sum of either, and values of the first entry."""
    args, columns = argument
    lengths = {name: columns.get(name) for name in (*LENGTHS, "tokens")}
    logits = columns["logits"].requires_grad_()
    log_probs, entropy = log_probs_and_entropy(args, logits, **lengths)
    gradients = [
        torch.autograd.grad(torch.cat(parts).sum(), logits, retain_graph=True)[0] for parts in (log_probs, entropy)
    ]
    values = get_values(args, logits[..., :1].detach(), **lengths)
    return {
        "log_probs": [tokens.detach() for tokens in log_probs],
        "entropy": [tokens.detach() for tokens in entropy],
        "gradients": gradients,
        "values": values,
    }


def groups(_: Any) -> dict[str, Any]:
    """Size and rank of each group that megatron gives this rank."""
    ranks = parallel()
    names = ("tensor", "context", "data", "data_and_context", "stage")
    sizes = {name: (getattr(ranks, name).size, getattr(ranks, name).rank) for name in names}
    return {**sizes, "is_last_pipeline_stage": ranks.is_last_pipeline_stage}


def round_trip(argument: Argument) -> tuple[list[list[torch.Tensor]], list[torch.Tensor]]:
    """Whole lists cut and gathered again; the gradient of each part where rank r weighs the whole by r + 1."""
    args, columns = argument
    context = context_parallel(args, *(columns.get(name) for name in LENGTHS))
    lists = [context.cut(tensors) for tensors in columns["lists"]]
    parts = [tokens.clone().requires_grad_() for tokens in lists[0]]
    gathered = context.gather_each(parts, *lists[1:])
    torch.stack([tokens.sum() for tokens in gathered[0]]).mul(context.rank + 1).sum().backward()
    return [[tokens.detach() for tokens in tensors] for tensors in gathered], [tokens.grad for tokens in parts]


def gathered(argument: Argument) -> list[torch.Tensor]:
    """The first of the whole lists, cut and gathered again."""
    args, columns = argument
    context = context_parallel(args, *(columns.get(name) for name in LENGTHS))
    return context.gather(context.cut(columns["lists"][0]))


def objective(argument: Argument) -> dict[str, Any]:
    """The policy objective of this rank's tokens and the gradient of its log-probs."""
    args, columns = argument
    log_probs = [tokens.requires_grad_() for tokens in columns["log_probs"]]
    loss, clipfrac, ppo_kl = policy_objective(
        args,
        old_log_probs=columns["ref_log_probs"],
        log_probs=log_probs,
        advantages=columns["advantages"],
        loss_masks=columns["loss_masks"],
        rollout_log_probs=columns["rollout_log_probs"],
        **{name: columns.get(name) for name in LENGTHS},
    )
    loss.sum().backward()
    parts = [len(tokens) for tokens in log_probs]
    results = {"loss": loss, "clipfrac": clipfrac, "ppo_kl": ppo_kl}
    split = {name: list(result.detach().split(parts)) for name, result in results.items()}
    return {**split, "gradient": [tokens.grad for tokens in log_probs]}
