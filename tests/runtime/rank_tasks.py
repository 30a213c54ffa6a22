"""What the ranks do in the tests with peers: functions named ``tests.runtime.rank_tasks:...``."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from relax.backends.megatron.advantages import compute_advantages_and_returns
from relax.backends.megatron.parallel import parallel
from relax.core.rows import batch_keys
from relax.core.trace import tracing
from relax.rollout.mini_batches import mini_batch_plan
from relax.transport.values import to_bytes
from tests.runtime.advantage_rows import COLUMNS, WRITTEN, filled, options
from tests.runtime.small_run import SmallRun, arguments


def one_rollout(algorithm: str) -> dict[str, Any]:
    """Trains on this rank's part of one rollout that all ranks sample alike."""
    warnings.simplefilter("ignore")  # megatron's, on every forward pass
    data = parallel().data
    run = SmallRun(arguments(algorithm))
    samples = run.sample()
    own = run.train(samples, rank=data.rank, size=data.size)
    return {
        "rollout": [list(sample.tokens) for sample in samples],
        "keys": own["keys"],
        "advantages": [tokens.numpy().tobytes() for tokens in own["advantages"]],
        "metrics": [update.metrics for update in run.updates],
        "norms": [update.grad_norm for update in run.updates],
        "trained": [key for update in run.updates for key in update.rows],
        "bits": run.bits(),
    }


def traced_rollout(task: tuple[str, str]) -> None:
    """As `one_rollout` for the algorithm of ``task``, traced into its folder."""
    warnings.simplefilter("ignore")
    algorithm, folder = task
    data = parallel().data
    args = arguments(algorithm)
    args.trace_rollout, args.trace_folder = 0, folder
    run = SmallRun(args)
    samples = run.sample()
    with tracing(args, [0], f"actor-{data.rank}"):
        run.train(samples, rank=data.rank, size=data.size)


def advantages_of_share(algorithm: str) -> dict[str, dict[str, bytes]]:
    """What the colocated path gives this rank's rows of the first optimizer batch of `advantage_rows`, by key."""
    data = parallel().data
    args = options(algorithm)
    keys = batch_keys(args, 0)
    plan = mini_batch_plan(len(keys), len(keys), rank=data.rank, size=data.size)
    own = [keys[position] for position in plan.positions]
    rollout = {**filled(args).get(own, COLUMNS), "mini_batch_sizes": plan.sizes}
    compute_advantages_and_returns(args, rollout)
    return {key: {name: to_bytes(rollout[name][row]) for name in WRITTEN} for row, key in enumerate(own)}


def broken_rollout(rank: int) -> str:
    """Rank ``rank`` has an advantage too many in its second optimizer step; how every rank's run ended."""
    data = parallel().data
    run = SmallRun(arguments("gdpo"))
    samples = run.sample()
    if data.rank == rank:
        samples[-1].loss_mask = [1] * (samples[-1].response_length + 1)
    try:
        run.train(samples, rank=data.rank, size=data.size)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no failure"


def flattened(bits: dict[str, bytes]) -> torch.Tensor:
    """Weights of `SmallRun.bits` as one float64 vector, moments left out."""
    weights = [data for name, data in bits.items() if "exp_avg" not in name]
    return torch.cat([torch.frombuffer(bytearray(data), dtype=torch.float32) for data in weights]).double()
