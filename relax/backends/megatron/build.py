"""Which model the options ask for: the only place where a policy or a critic is made."""

from __future__ import annotations

from argparse import Namespace

import torch

from relax.backends.megatron.model import ModelShape, critic_model, policy_model
from relax.tasks.task import Task


def build_policy(args: Namespace, task: Task) -> torch.nn.Module:
    """The policy before training: logits ``[..., V]``, float32, on ``args.device``.

    A small model with initial weights of ``args.seed``, of the sizes that the options name. Needs megatron's groups
    (`relax.backends.megatron.ranks.start_ranks`). Raises ValueError for sizes that make no model.
    """
    return policy_model(_shape(args, task), seed=args.seed).to(args.device)


def build_critic(args: Namespace, task: Task) -> torch.nn.Module:
    """As `build_policy`, with one value a position in place of logits, ``[..., 1]``, which starts at 0 everywhere.

    The initial weights are those of the seed after the policy's.
    """
    return critic_model(_shape(args, task), seed=args.seed + 1).to(args.device)


def _shape(args: Namespace, task: Task) -> ModelShape:
    return ModelShape(
        task.tokenizer.size,
        args.max_length,
        layers=args.num_layers,
        hidden=args.hidden_size,
        heads=args.num_attention_heads,
        feed_forward=args.ffn_hidden_size,
    )
