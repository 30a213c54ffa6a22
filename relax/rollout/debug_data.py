"""Rollouts in files: what ``--debug-rollout-only`` writes and ``--debug-train-only`` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from relax.core.checkpoint import CheckpointError, write_part


def write_rollout(
    folder: Path, rollout: int, columns: Mapping[str, Sequence[Any]], *, groups: Sequence[str] = ()
) -> None:
    """Writes the columns of a rollout, tensors and numbers, to the bit, and for whoever looks at them the label of each
    of its ``groups``; raises `CheckpointError` naming the file.
    """
    tensors = {
        f"{name}/{position}": value if isinstance(value, torch.Tensor) else _scalar(value)
        for name, column in columns.items()
        for position, value in enumerate(column)
    }
    kinds = {name: type(column[0]).__name__ for name, column in columns.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"{folder} cannot be made: {error.strerror}; give another folder to --save-debug-rollout-data"
        ) from error
    facts = {"samples": len(columns["tokens"]), "columns": kinds, "groups": list(groups)}
    write_part(folder, _name(rollout), tensors=tensors, facts=facts)


def read_rollout(folder: Path, rollout: int, samples: int) -> dict[str, list[Any]]:
    """The columns that `write_rollout` was given; raises `CheckpointError` where they are not ``samples`` samples."""
    path = folder / f"{_name(rollout)}.json"
    remedy = "give --load-debug-rollout-data the folder that --save-debug-rollout-data wrote"
    try:
        facts = json.loads(path.read_bytes())["facts"]
        tensors = load_file(path.with_suffix(".safetensors"))
        columns = {
            name: [_value(kind, tensors[f"{name}/{position}"]) for position in range(facts["samples"])]
            for name, kind in facts["columns"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}; {remedy}") from error
    if facts["samples"] != samples:
        raise CheckpointError(
            f"{path} holds {facts['samples']} samples and a rollout of this run {samples}: give --rollout-batch-size "
            "and --n-samples-per-prompt as they were"
        )
    return columns


def holds_rollouts(folder: Path) -> bool:
    """Whether there are rollouts in it."""
    return any(folder.glob("rollout-*.json"))


def require_rollouts(folder: Path, rollouts: range) -> None:
    """Raises `CheckpointError` naming the first of ``rollouts`` that the folder does not hold."""
    for rollout in rollouts:
        if not (folder / f"{_name(rollout)}.json").is_file():
            raise CheckpointError(
                f"{folder} holds no rollout {rollout}: give --load-debug-rollout-data the folder that "
                "--save-debug-rollout-data wrote, and --num-rollout no more than it holds"
            )


def _name(rollout: int) -> str:
    return f"rollout-{rollout:08d}"


def _scalar(value: float | int) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.int64 if type(value) is int else torch.float64)


def _value(kind: str, tensor: torch.Tensor) -> Any:
    return tensor if kind == "Tensor" else tensor.item()
