"""A whole run in one process, of the parts that the roles of a real one call: small, and the same bits every time."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import torch

from relax.algorithms.spec import get_algorithm
from relax.backends.megatron.loss import compute_advantages_and_returns, watched_policy_loss
from relax.backends.megatron.model import ModelShape, critic_model, policy_model
from relax.backends.megatron.optimizer import Optimizer, OptimizerSettings
from relax.backends.megatron.scoring import score_log_probs, score_values
from relax.backends.megatron.supervised import supervised_loss_function, value_loss_function
from relax.backends.megatron.train_step import Update, train_step
from relax.backends.megatron.trained_model import TrainedModel
from relax.core.checkpoint import commit, open_checkpoint, pending_folder, write_part
from relax.core.rows import row_keys
from relax.options import build_parser
from relax.rollout.collect import collect, demonstrations, score
from relax.rollout.columns import rollout_columns, sequence_columns, take
from relax.rollout.mini_batches import mini_batch_plan
from relax.tasks.sums import Sums
from relax.types import Sample
from tests.relax.command_lines import LEAST

SHAPE = ModelShape(Sums.tokenizer.size, 32, layers=2, hidden=32, heads=2, feed_forward=64)
KEYS = ("--gdpo-reward-keys", "correctness", "format")
MAX_NEW_TOKENS = 14


def arguments(algorithm: str, *, prompts: int = 4, group: int = 4, seed: int = 0, **options: Any) -> Namespace:
    """The options of a run: two optimizer batches a rollout where the algorithm allows it."""
    spec = get_algorithm(algorithm)
    least = [*KEYS] if spec.uses_reward_components else [*LEAST[algorithm], "--reward-key", "total"]
    line = ["--advantage-estimator", algorithm, *least, "--custom-rm-path", "tests.runtime.small_run:varied_rewards"]
    args = build_parser().parse_args([*line, "--seed", str(seed)])
    args.task_path = None  # the task is no function's
    args.rollout_batch_size, args.n_samples_per_prompt = prompts, group
    args.global_batch_size = prompts * group // (1 if spec.requires_on_policy_updates else 2)
    for name, value in options.items():
        assert hasattr(args, name), name
        setattr(args, name, value)
    return args


def varied_rewards(args: Namespace, sample: Sample) -> dict[str, float]:
    """Components that differ between the responses of a model that has learned nothing yet."""
    text = sample.metadata["response"]
    digits, kinds = sum(map(str.isdigit, text)) / (len(text) + 1), len(set(text)) / 8
    return {"correctness": digits, "format": kinds, "length": float(len(text)), "total": digits + kinds}


class SmallRun:
    """Actor, critic where there is one, and the place in the data."""

    def __init__(
        self, args: Namespace, *, shape: ModelShape = SHAPE, learning_rate: float = 1e-3, micro_batch_size: int = 8
    ) -> None:
        self.args, self.shape, self.micro_batch_size = args, shape, micro_batch_size
        self.settings = OptimizerSettings(learning_rate)
        self.task = Sums(seed=args.seed)
        self.parts = {"actor": self._trained(policy_model(shape, seed=args.seed))}
        if get_algorithm(args.advantage_estimator).needs_critic:
            self.parts["critic"] = self._trained(critic_model(shape, seed=args.seed + 1))
        self.rollouts = 0
        self.updates: list[Update] = []

    def _trained(self, model: torch.nn.Module) -> TrainedModel:
        return TrainedModel(model, Optimizer(model, self.settings))

    def warm_up(self, steps: int, *, batch: int = 64, learning_rate: float = 3e-3) -> list[Update]:
        """Supervised steps on the task's demonstrations, with an optimizer of their own."""
        model = self.parts["actor"].model
        optimizer = Optimizer(model, OptimizerSettings(learning_rate, warmup_steps=20))
        updates = []
        for step in range(steps):
            columns = sequence_columns(demonstrations(self.task, range(step * batch, (step + 1) * batch)))
            updates.append(
                train_step(self.args, model, optimizer, columns, supervised_loss_function, micro_batch_size=batch)
            )
        return updates

    def sample(self) -> list[Sample]:
        """The samples of the next rollout."""
        first = 10**6 + self.rollouts * self.args.rollout_batch_size
        problems = range(first, first + self.args.rollout_batch_size)
        model = self.parts["actor"].model
        new = MAX_NEW_TOKENS
        samples = collect(self.args, model, self.task, problems, rollout=self.rollouts, max_new_tokens=new)
        score(self.args, samples)
        return samples

    def train(self, samples: list[Sample], *, rank: int = 0, size: int = 1) -> dict[str, Any]:
        """Every optimizer step of one rollout on this rank's part of it, which is given back with its advantages."""
        args = self.args
        plan = mini_batch_plan(len(samples), args.global_batch_size, rank=rank, size=size)
        own = take(rollout_columns(args, samples), plan.positions)
        own["keys"] = row_keys(self.rollouts, plan.positions)
        own["log_probs"] = score_log_probs(args, self.parts["actor"].model, own, micro_batch_size=self.micro_batch_size)
        if "critic" in self.parts:
            own["values"] = score_values(args, self.parts["critic"].model, own, micro_batch_size=self.micro_batch_size)
        rollout_data = {**own, "mini_batch_sizes": plan.sizes}
        compute_advantages_and_returns(args, rollout_data)
        columns = {**own, "advantages": rollout_data["advantages"], "returns": rollout_data["returns"]}
        for positions in plan.own_batches:
            batch = take(columns, positions)
            for name, loss in (("critic", value_loss_function), ("actor", watched_policy_loss)):
                if name in self.parts:
                    part = self.parts[name]
                    update = train_step(
                        args, part.model, part.optimizer, batch, loss, micro_batch_size=self.micro_batch_size
                    )
            self.updates.append(update)
        self.rollouts += 1
        return columns

    def save(self, root: Path) -> Path:
        """A checkpoint after the rollouts so far."""
        pending = pending_folder(root, self.rollouts)
        for name, part in self.parts.items():
            part.save(pending, name)
        write_part(pending, "data", tensors={}, facts={"rollouts": self.rollouts})
        return commit(pending, self.rollouts)

    def load(self, root: Path) -> None:
        """Continues from the latest checkpoint."""
        checkpoint = open_checkpoint(root)
        for name, part in self.parts.items():
            part.load(checkpoint, name)
        self.rollouts = checkpoint.facts("data")["rollouts"]

    def bits(self) -> dict[str, bytes]:
        """Every weight and moment, as bytes."""
        return {
            f"{name}/{key}": tensor.numpy().tobytes()
            for name, part in self.parts.items()
            for tensors in (dict(part.model.named_parameters()), part.optimizer.state())
            for key, tensor in ((key, tensor.detach()) for key, tensor in tensors.items())
        }
