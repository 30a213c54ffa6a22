"""What is timed: the live reward stage, GDPO and the returns, each against the plain way of doing the same."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from relax.algorithms.advantages import compute_advantages_and_returns
from relax.algorithms.exact.gdpo import EPSILON, combine_groups, whiten
from relax.algorithms.formulas.group import group_mean_std
from relax.rollout.post_process import post_process_rewards
from relax.types import Sample
from verification.bench.example import missing
from verification.bench.paired import Row, compare
from verification.bench.rank_rows import rank_rows
from verification.bench.training_rows import training_rows
from verification.cases.arguments import namespace
from verification.frozen import dispatch as frozen
from verification.ranks.scale import prove_at_scale

GROUPS, GROUP_SIZE = 8192, 8  # 65,536 samples
BATCH = 262_144
RESPONSES, TOKENS = 64, 4096


def rows(only: Collection[str] = ()) -> Iterator[Row]:
    """Every row of the table, one at a time; those of the families ``only`` names, where it names any."""
    for name, family in FAMILIES.items():
        if name in (only or FAMILIES) and not absent(name):
            yield from family()


def absent(family: str) -> str:
    """Why a family cannot be measured here; empty where it can."""
    return missing() if family == "training" else ""


def group_normalization() -> Iterator[Row]:
    """GRPO's scores of 65,536 samples against the frozen operations, one group at a time."""
    stream = random.Random(1)
    samples = [
        Sample(index=i, group_index=i // GROUP_SIZE, reward=stream.choice((0.0, 0.2, 0.5, 1.0)))
        for i in range(GROUPS * GROUP_SIZE)
    ]
    rewards = torch.tensor([sample.reward for sample in samples]).reshape(GROUPS, GROUP_SIZE)
    args = namespace("grpo", n_samples_per_prompt=GROUP_SIZE)

    def loop() -> torch.Tensor:
        scores = torch.empty_like(rewards)
        for p in range(GROUPS):
            centred = rewards[p] - rewards[p].mean()
            scores[p] = centred / (centred.std() + 1e-6)
        return scores

    _same(loop(), group_mean_std(rewards))
    yield compare(
        "group normalization, tensor to tensor",
        lambda: group_mean_std(rewards),
        "frozen loop",
        loop,
        measure="times faster",
        target=50,
    )
    yield compare(
        "reward stage, Sample to float",
        lambda: post_process_rewards(args, samples),
        "frozen stage",
        lambda: frozen.post_process_rewards(args, samples),
        measure="times faster",
        target=10,
    )


def gdpo() -> Iterator[Row]:
    """GDPO's steps against the same formulas in plain float64 on whole arrays, and against a loop over groups."""
    stream = np.random.default_rng(2)
    shape = (GROUPS, GROUP_SIZE)
    kinds = {
        "correct, format, length": np.stack(
            [
                stream.integers(0, 2, shape).astype(np.float64),
                stream.integers(0, 3, shape) / 2,
                stream.integers(50, 4000, shape).astype(np.float64),
            ],
            axis=2,
        ),
        "three scores": stream.integers(-(2**40), 2**40, (*shape, 3)) / 2.0**39,
    }
    for kind, components in kinds.items():
        yield from _groups(f"GDPO steps 1 and 2, {kind}", components, [1.0, 0.5, 0.25])
    yield from _batch((stream.integers(-(2**23), 2**23, BATCH) / 2**21).astype(np.float32))


def _groups(name: str, components: np.ndarray, weights: list[float]) -> Iterator[Row]:
    """Steps 1 and 2 of ``components``, float64 ``[P, G, K]``."""
    tensor, w = torch.from_numpy(components), torch.tensor(weights, dtype=torch.float64)

    def exact() -> np.ndarray:
        return combine_groups(components, weights)

    def plain() -> torch.Tensor:
        centred = tensor - tensor.mean(dim=1, keepdim=True)
        return ((centred / (tensor.std(dim=1, keepdim=True) + EPSILON)) @ w).float()

    def plain_numpy() -> np.ndarray:
        centred = components - components.mean(axis=1, keepdims=True)
        std = np.sqrt((centred * centred).sum(axis=1, keepdims=True) / (GROUP_SIZE - 1))
        return ((centred / (std + EPSILON)) @ np.array(weights)).astype(np.float32)

    def loop() -> torch.Tensor:
        combined = torch.empty(components.shape[:2])
        for p in range(GROUPS):
            group = tensor[p]
            combined[p] = ((group - group.mean(dim=0)) / (group.std(dim=0) + EPSILON)) @ w
        return combined

    yield compare(name, exact, "plain float64, torch", plain, measure="times the time", target=2, calls=3)
    yield compare(name, exact, "plain float64, numpy", plain_numpy, measure="times the time", target=2, calls=3)
    yield compare(name, exact, "loop over groups", loop, measure="times faster", target=10, rounds=3)


def _batch(values: np.ndarray) -> Iterator[Row]:
    """Step 3 of ``values``, float32 ``[n]``."""
    name = f"GDPO step 3, {len(values):,} samples"

    def exact() -> np.ndarray:
        return whiten(values)

    def plain_numpy() -> np.ndarray:
        x = values.astype(np.float64)
        return ((x - x.mean()) / (x.std(ddof=1) + EPSILON)).astype(np.float32)

    def plain() -> torch.Tensor:
        x = torch.from_numpy(values).double()
        return ((x - x.mean()) / (x.std() + EPSILON)).float()

    yield compare(name, exact, "plain float64, numpy", plain_numpy, measure="times the time", target=4, calls=3)
    yield compare(name, exact, "plain float64, torch", plain, measure="times the time", target=4, calls=3)


def returns() -> Iterator[Row]:
    """REINFORCE++ returns of 64 responses of 4,096 tokens against the frozen loop over tokens."""
    stream = np.random.default_rng(3)
    kl = [torch.from_numpy((stream.integers(-512, 512, TOKENS) / 1024).astype(np.float32)) for _ in range(RESPONSES)]
    inputs: dict[str, Any] = {
        "rewards": [float(i % 3) for i in range(RESPONSES)],
        "kl": kl,
        "loss_masks": [torch.ones(TOKENS) for _ in range(RESPONSES)],
        "response_lengths": [TOKENS] * RESPONSES,
        "total_lengths": [TOKENS + 16] * RESPONSES,
    }
    args = namespace("reinforce_plus_plus", gamma=0.99, kl_coef=0.1)
    for mine, theirs in zip(
        compute_advantages_and_returns(args, **inputs)[1],
        frozen.compute_advantages_and_returns(args, **inputs)[1],
        strict=True,
    ):
        _same(theirs, mine)
    yield compare(
        f"discounted returns, {RESPONSES} x {TOKENS:,} tokens",
        lambda: compute_advantages_and_returns(args, **inputs),
        "frozen loop",
        lambda: frozen.compute_advantages_and_returns(args, **inputs),
        measure="times faster",
        target=30,
        rounds=3,
    )


def start_up() -> Iterator[Row]:
    """What the registry adds to a bare interpreter, and how long help takes in all."""
    yield compare(
        "import relax.algorithms.spec",
        partial(_python, "-c", "import relax.algorithms.spec"),
        "bare Python",
        partial(_python, "-c", "pass"),
        measure="ms more",
        target=40,
        rounds=25,
    )
    yield compare(
        "python -m relax.arguments --help",
        partial(_python, "-m", "relax.arguments", "--help"),
        "nothing",
        lambda: None,
        measure="ms more",
        target=250,
        rounds=15,
    )


FAMILIES: dict[str, Callable[[], Iterator[Row]]] = {
    "groups": group_normalization,
    "gdpo": gdpo,
    "returns": returns,
    "start": start_up,
    "ranks": rank_rows,
    "training": training_rows,
}


def at_scale() -> str:
    """What step 3 takes over thousands of virtual ranks in one process: no ratio, a line beneath the table."""
    proof = prove_at_scale()
    if not proof.holds:
        raise AssertionError(f"{proof}: {proof.failures[:3]}")
    return str(proof)


def _python(*arguments: str) -> None:
    """One interpreter, with compiled modules kept as usual."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)


def _same(expected: torch.Tensor, actual: torch.Tensor) -> None:
    if not torch.equal(expected.view(torch.int32), actual.view(torch.int32)):
        raise AssertionError("the two sides of a bench row do not compute the same bits")
