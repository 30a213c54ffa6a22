"""A case: one input of one stage, with everything that a subject needs to run it."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from verification.cases.arguments import namespace

STAGES = (
    "reward.normalize",
    "reward.signal",
    "kl.estimate",
    "advantage.estimate",
    "advantage.normalize",
    "policy.loss",
    "loss.reduce",
    "logprob.entropy",
    "arguments.validate",
    "roles.resolve",
)

SAMPLE_FIELDS: dict[str, Any] = {
    "index": None,
    "group_index": None,
    "prompt": "",
    "tokens": (),
    "response_length": 0,
    "reward": None,
    "loss_mask": None,
    "rollout_log_probs": None,
    "custom_advantage": None,
    "status": "completed",
    "metadata": {},
}


@dataclass(frozen=True)
class Case:
    """One input of one stage.

    ``inputs`` holds plain data only: numbers, strings, lists, mappings and numpy arrays (see ``stages.md`` beside
    this file for what each stage takes). ``options`` are the command-line attributes that differ from the defaults.
    ``error`` is set for malformed input: the words that the message of the expected error must contain.
    """

    id: str
    stage: str
    algorithm: str
    inputs: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    error: tuple[str, ...] | None = None
    note: str = ""
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.stage not in STAGES:
            raise ValueError(f"case {self.id!r}: stage {self.stage!r} is not one of {', '.join(STAGES)}")

    def arguments(self) -> argparse.Namespace:
        """A fresh namespace with every attribute of the command line."""
        return namespace(self.algorithm, **copy.deepcopy(dict(self.options)))

    def fresh_inputs(self) -> dict[str, Any]:
        """A deep copy of the inputs for one call: numpy arrays as tensors, samples as objects with attributes.

        numpy has no bfloat16: an array of uint16 holds the bits of one.
        """
        inputs = {name: _fresh(value) for name, value in self.inputs.items()}
        if "samples" in inputs:
            inputs["samples"] = [_sample(fields) for fields in inputs["samples"]]
        return inputs


def _fresh(value: Any) -> Any:
    if type(value) in (float, int, str, bool, type(None)):
        return value
    if isinstance(value, np.ndarray):
        # In contiguous format, since from_numpy gives an empty array a stride of 0, which no view as bytes accepts.
        tensor = torch.from_numpy(value).clone(memory_format=torch.contiguous_format)
        return tensor.view(torch.bfloat16) if value.dtype == np.uint16 else tensor
    if isinstance(value, Mapping):
        return {key: _fresh(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_fresh(item) for item in value]
    return copy.copy(value)


def bfloat16_values(bits: np.ndarray) -> np.ndarray:
    """What uint16 ``bits`` of bfloat16 stand for, as float32, of which they are the upper half."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _sample(fields: Mapping[str, Any]) -> SimpleNamespace:
    unknown = set(fields) - set(SAMPLE_FIELDS)
    if unknown:
        raise ValueError(f"a sample has no field {', '.join(sorted(unknown))}")
    return SimpleNamespace(**{**SAMPLE_FIELDS, "metadata": {}, **fields})
