"""The critic role: predicts the return at each token, and learns from the returns that the rewards gave."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from relax.backends.megatron.build import build_critic
from relax.backends.megatron.optimizer import Optimizer, OptimizerSettings
from relax.backends.megatron.scoring import score_values
from relax.backends.megatron.supervised import value_loss_function
from relax.backends.megatron.train_step import train_step
from relax.backends.megatron.trained_model import TrainedModel
from relax.core.checkpoint import open_checkpoint
from relax.core.clock import Clock
from relax.core.registry import CRITIC
from relax.core.rows import batch_keys, keys_of
from relax.rollout.columns import SEQUENCE_COLUMNS
from relax.rollout.post_process import load_function
from relax.transport.queue import Queue


class Critic:
    """One process, however many ranks the actor has."""

    def __init__(self, args: Namespace, queue: Queue) -> None:
        self.args, self.queue = args, queue
        model = build_critic(args, load_function(args.task_path)(args))
        settings = OptimizerSettings(
            learning_rate=args.lr if args.critic_lr is None else args.critic_lr,
            warmup_steps=args.lr_warmup_steps,
            weight_decay=args.weight_decay,
            clip_grad=args.clip_grad,
        )
        self.trained = TrainedModel(model, Optimizer(model, settings))
        self._clock = Clock()

    def values(self, batch: int, slice: int | None = None) -> dict[str, Any]:
        """Adds column ``values``, ``[R_i]``, to the rows of an optimizer batch, or of a slice of it."""
        keys = keys_of(self.args, batch=batch, slice=slice)
        with self._clock("transport"):
            columns = self.queue.get(keys, SEQUENCE_COLUMNS)
        with self._clock("values"):
            size = self.args.micro_batch_size
            values = score_values(self.args, self.trained.model, columns, micro_batch_size=size)
        with self._clock("transport"):
            self.queue.put(keys, {"values": values})
        return {"seconds": self._clock.take()}

    def train(self, batch: int) -> dict[str, Any]:
        """One optimizer step on the returns of optimizer batch number ``batch``."""
        with self._clock("transport"):
            columns = self.queue.get(batch_keys(self.args, batch), [*SEQUENCE_COLUMNS, "returns"])
        update = train_step(
            self.args,
            self.trained.model,
            self.trained.optimizer,
            columns,
            value_loss_function,
            micro_batch_size=self.args.micro_batch_size,
            clock=self._clock,
        )
        metrics = {**update.metrics, "grad_norm": update.grad_norm}
        return {"metrics": metrics, "seconds": self._clock.take()}

    def save(self, folder: str, rollout: int) -> dict[str, Any]:
        """Writes the model and its optimizer."""
        self.trained.save(Path(folder), CRITIC)
        return {}

    def load(self, folder: str) -> dict[str, Any]:
        """Continues from a checkpoint."""
        self.trained.load(open_checkpoint(Path(folder)), CRITIC)
        return {}
