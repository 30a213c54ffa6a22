"""The training of examples/gdpo in one process: its samples, its stages and its whole step, as the roles call them."""

from __future__ import annotations

import importlib.util
from argparse import Namespace
from pathlib import Path
from typing import Any

from relax.types import Sample

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "examples" / "gdpo" / "cpu.yaml"
NEEDED = {"megatron": "megatron-core", "reasoning_gym": "reasoning-gym", "yaml": "PyYAML"}


def missing() -> str:
    """Why there is no such training here; empty where there is one."""
    if not CONFIG.exists():
        return f"{CONFIG} does not exist: examples are part of a checkout"
    packages = [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]
    remedy = 'pip install -c constraints.txt -e ".[verify,megatron,runtime]"'
    return f"{', '.join(packages)} not installed: {remedy}" if packages else ""


def options() -> Namespace:
    """Those of the example's configuration."""
    from relax.arguments import parse_args

    return parse_args(["--config", str(CONFIG)])


class Example:
    """The example as ``args`` say, warmed up. Megatron's groups must be there (`relax.backends.megatron.ranks`)."""

    def __init__(self, args: Namespace) -> None:
        from relax.backends.megatron.build import build_policy
        from relax.backends.megatron.optimizer import optimizer_of
        from relax.backends.megatron.supervised import supervised_loss_function
        from relax.backends.megatron.train_step import train_step
        from relax.rollout.collect import demonstrations
        from relax.rollout.columns import sequence_columns
        from relax.rollout.own_functions import load_function

        self.args = args
        self.task = load_function(args.task_path)(args)
        self.model = build_policy(args, self.task)
        warmup = args.sft_lr_warmup_steps
        supervised = optimizer_of(args, self.model, learning_rate=args.sft_lr, warmup_steps=warmup)
        size, micro = args.sft_batch_size, args.micro_batch_size
        for step in range(args.sft_steps):
            columns = sequence_columns(demonstrations(self.task, range(step * size, (step + 1) * size)))
            train_step(args, self.model, supervised, columns, supervised_loss_function, micro_batch_size=micro)
        warmup = args.lr_warmup_steps
        self._optimizer = optimizer_of(args, self.model, learning_rate=args.lr, warmup_steps=warmup)
        self._rollouts = 0

    def sample(self) -> list[Sample]:
        """The scored samples of the next rollout."""
        from relax.rollout.collect import collect, score
        from relax.tasks.task import FIRST_SAMPLED

        first, number = FIRST_SAMPLED + self._rollouts * self.args.rollout_batch_size, self._rollouts
        self._rollouts += 1
        problems = range(first, first + self.args.rollout_batch_size)
        new = self.args.max_new_tokens
        samples = collect(self.args, self.model, self.task, problems, rollout=number, max_new_tokens=new)
        score(self.args, samples)
        return samples

    def log_probs(self, columns: dict[str, list[Any]]) -> list[Any]:
        """The model's of a rollout's responses."""
        from relax.backends.megatron.scoring import score_log_probs

        return score_log_probs(self.args, self.model, columns, micro_batch_size=self.args.micro_batch_size)

    def step(self) -> None:
        """One rollout: sampling, every stage, and its optimizer steps."""
        from relax.backends.megatron.loss import policy_loss_function
        from relax.backends.megatron.train_step import train_step
        from relax.rollout.columns import take

        columns = rewarded(self.args, self.sample())
        columns["log_probs"] = self.log_probs(columns)
        columns |= with_advantages(self.args, columns)
        size = self.args.global_batch_size
        for start in range(0, len(columns["tokens"]), size):
            batch = take({name: columns[name] for name in _TRAINED}, range(start, start + size))
            micro = self.args.micro_batch_size
            train_step(self.args, self.model, self._optimizer, batch, policy_loss_function, micro_batch_size=micro)


_TRAINED = (
    *("tokens", "total_lengths", "response_lengths", "loss_masks"),
    *("log_probs", "rollout_log_probs", "advantages"),
)


def rewarded(args: Namespace, samples: list[Sample]) -> dict[str, list[Any]]:
    """What the rollout role does of a rollout's rewards: its columns, and its metrics."""
    from relax.rollout.columns import rollout_columns
    from relax.rollout.metrics import reward_metrics

    size = args.n_samples_per_prompt
    reward_metrics(args, [samples[start : start + size] for start in range(0, len(samples), size)])
    return rollout_columns(args, samples)


def with_advantages(args: Namespace, columns: dict[str, list[Any]]) -> dict[str, Any]:
    """What the actor does of a rollout's advantages, optimizer batch by optimizer batch."""
    from relax.backends.megatron.advantages import compute_advantages_and_returns

    batches = len(columns["rewards"]) // args.global_batch_size
    data = {**columns, "mini_batch_sizes": [args.global_batch_size] * batches}
    data["mini_batch_ids"] = [str(batch) for batch in range(batches)]
    compute_advantages_and_returns(args, data)
    return {"advantages": data["advantages"], "returns": data["returns"]}
