"""Which model the options ask for: the only place where a policy or a critic is made."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import torch

from relax.backends.megatron.model import ModelShape, critic_model, policy_model, with_value_head
from relax.backends.megatron.qwen3 import qwen3_model
from relax.tasks.task import Task


def build_policy(args: Namespace, task: Task) -> torch.nn.Module:
    """The policy before training: logits ``[..., V]``, float32, on ``args.device``.

    That in the folder ``args.hf_checkpoint``; without one a small model of the sizes that the options name, with
    initial weights of ``args.seed``. Needs megatron's groups (`relax.backends.megatron.ranks.start_ranks`). Raises
    ValueError for sizes that make no model, and for a folder that holds none, naming file and tensor.
    """
    if args.hf_checkpoint is None:
        model = policy_model(_shape(args, task), seed=args.seed)
    else:
        model, _ = _of_folder(args, task)
    return model.to(args.device)


def build_critic(args: Namespace, task: Task) -> torch.nn.Module:
    """As `build_policy`, with one value a position in place of logits, ``[..., 1]``, which starts at 0 everywhere.

    A small model's initial weights are those of the seed after the policy's.
    """
    if args.hf_checkpoint is None:
        critic = critic_model(_shape(args, task), seed=args.seed + 1)
    else:
        critic = with_value_head(*_of_folder(args, task))
    return critic.to(args.device)


def _shape(args: Namespace, task: Task) -> ModelShape:
    return ModelShape(
        task.tokenizer.size,
        args.max_length,
        layers=args.num_layers,
        hidden=args.hidden_size,
        heads=args.num_attention_heads,
        feed_forward=args.ffn_hidden_size,
    )


def _of_folder(args: Namespace, task: Task) -> tuple[torch.nn.Module, int]:
    """The model on disk, and its hidden size."""
    return qwen3_model(Path(args.hf_checkpoint), max_length=args.max_length, tokens=task.tokenizer.size)
