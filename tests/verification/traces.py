"""Traces to replay and to damage."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from relax.algorithms.advantages import compute_advantages_and_returns
from relax.core.checkpoint import described
from relax.core.rows import row_keys
from relax.core.trace import INDEX, keep, seal_trace, start_trace, tracing
from relax.rollout.post_process import post_process_rewards
from relax.types import Sample
from verification.cases.arguments import namespace

ADVANTAGES = "service.advantage.estimate.0000"


def write_trace(folder: Path, algorithm: str = "grpo") -> None:
    """The reward and advantage calls of eight samples in two groups."""
    args = namespace(algorithm, n_samples_per_prompt=4)
    if algorithm == "gdpo":
        args.gdpo_reward_keys = ["reward", "other"]
    args.trace_rollout, args.trace_folder = 3, str(folder)
    rewards = [0.0, 1.0, 1.0, 0.25, 0.5, 0.0, 0.125, 1.0]
    samples = [
        Sample(index=i, group_index=i // 4, tokens=[1, 2], response_length=1, reward=reward, metadata={"number": i})
        for i, reward in enumerate(rewards)
    ]
    start_trace(args)
    with tracing(args, [3], "rollout"):
        raw, normalized = post_process_rewards(args, samples)
        keep("reward.normalize", args, {"samples": samples}, {"raw_rewards": raw, "rewards": normalized})
    given = {"rewards": normalized, "kl": [torch.zeros(i % 3) for i in range(8)], "loss_masks": None}
    with tracing(args, [2, 3], "service"):
        advantages, returns = compute_advantages_and_returns(args, **given)
        results = {"advantages": advantages, "returns": returns}
        keep("advantage.estimate", args, given, results, rows=row_keys(3, range(8)))
    seal_trace(args)


def reseal(folder: Path) -> None:
    """Makes the index one of the files as they are now."""
    index = json.loads((folder / INDEX).read_bytes())
    for name in index["files"]:
        index["files"][name] = described((folder / name).read_bytes())
    (folder / INDEX).write_text(json.dumps(index))


def plant(folder: Path) -> None:
    """Makes one advantage of the run the float beside it."""
    path = folder / f"{ADVANTAGES}.safetensors"
    results = dict(json.loads((folder / f"{ADVANTAGES}.json").read_bytes())["results"]["$mapping"])
    tensors = load_file(path)
    changed = tensors[results["advantages"][4]["$tensor"]]
    changed[0] = torch.nextafter(changed[0], torch.tensor(math.inf))
    save_file(tensors, path)
    reseal(folder)
