"""For each stage: which call it is, what it is given, and how its results are named."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch

from verification.cases.arguments import DEFAULTS


@dataclass(frozen=True)
class Stage:
    """One stage as a call of an implementation.

    ``call`` is the attribute of the implementation. ``keywords`` are its keyword arguments: an input that a case does
    not name is passed as None. ``first`` names what is passed by position: ``args``, and ``samples`` where the stage
    takes them. ``results`` names the parts of what is returned; ``differentiate`` the input (a list of tensors) with
    respect to which the gradient of ``results[0].sum()`` belongs to the outcome, and that of ``also_differentiated``.
    """

    call: str
    first: tuple[str, ...]
    keywords: tuple[str, ...]
    results: tuple[str, ...]
    differentiate: str | None = None
    also_differentiated: tuple[str, ...] = ()
    as_text: Callable[[Any], Mapping[str, str]] | None = None


def option_texts(options: Any) -> dict[str, str]:
    """The parsed options that differ from the defaults, one text each; the algorithm always."""
    texts = {"advantage_estimator": str(options.advantage_estimator)}
    for name, value in sorted(vars(options).items()):
        if name in DEFAULTS and not (type(value) is type(DEFAULTS[name]) and value == DEFAULTS[name]):
            texts[name] = json.dumps(value, sort_keys=True, default=repr)
    return texts


def role_texts(roles: Any) -> dict[str, str]:
    """The roles in the order in which they start, as ``name=import.path:Class``, joined by line ends."""
    pairs = roles.items() if isinstance(roles, Mapping) else roles
    return {"roles": "\n".join(pair if isinstance(pair, str) else f"{pair[0]}={_path(pair[1])}" for pair in pairs)}


def _path(role: Any) -> str:
    return role if isinstance(role, str) else f"{role.__module__}:{role.__qualname__}"


STAGE_CALLS: dict[str, Stage] = {
    "reward.normalize": Stage("post_process_rewards", ("args", "samples"), (), ("raw_rewards", "rewards")),
    "reward.signal": Stage("group_carries_reward_signal", ("args", "samples"), (), ("signal",)),
    "kl.estimate": Stage(
        "kl_per_response", ("args",), ("log_probs", "ref_log_probs", "values", "importance_ratios"), ("kl",)
    ),
    "advantage.estimate": Stage(
        "compute_advantages_and_returns",
        ("args",),
        (
            "rewards",
            "kl",
            "loss_masks",
            "response_lengths",
            "total_lengths",
            "values",
            "padded_total_lengths",
            "process_group",
            "mini_batch_sizes",
        ),
        ("advantages", "returns"),
    ),
    "advantage.normalize": Stage(
        "normalize_advantages", ("args",), ("advantages", "loss_masks", "process_group"), ("advantages",)
    ),
    "policy.loss": Stage(
        "policy_objective",
        ("args",),
        ("old_log_probs", "log_probs", "advantages", "loss_masks", "rollout_log_probs"),
        ("loss", "clipfrac", "ppo_kl"),
        differentiate="log_probs",
    ),
    "loss.reduce": Stage(
        "reduce_loss", ("args",), ("values", "loss_masks", "full_loss_masks"), ("loss",), differentiate="values"
    ),
    "logprob.entropy": Stage(
        "log_probs_and_entropy",
        ("args",),
        ("logits", "tokens"),
        ("log_probs", "entropy"),
        differentiate="logits",
        also_differentiated=("entropy",),
    ),
    "arguments.validate": Stage("parse_args", ("argv",), (), (), as_text=option_texts),
    "roles.resolve": Stage("process_role", ("args",), (), (), as_text=role_texts),
}


def named_results(stage: Stage, returned: Any) -> dict[str, Any]:
    """What a call returned, by name: one entry a part of ``stage.results``; another number of parts is an error."""
    if len(stage.results) == 1:
        return {stage.results[0]: returned}
    parts = tuple(returned)
    if len(parts) != len(stage.results):
        raise ValueError(f"{stage.call} returned {len(parts)} results, expected {', '.join(stage.results)}")
    return dict(zip(stage.results, parts, strict=True))


def as_tensors(name: str, value: Any) -> dict[str, torch.Tensor]:
    """A result as named tensors: a list of tensors gives ``name[i]``, a list of floats one float64 vector.

    A Python bool or numpy bool gives a bool scalar, a Python float a float64 scalar, an int an int64 scalar.
    """
    if isinstance(value, torch.Tensor):
        return {name: value}
    if isinstance(value, list | tuple):
        if value and all(isinstance(item, torch.Tensor) for item in value):
            return {f"{name}[{index}]": item for index, item in enumerate(value)}
        if all(isinstance(item, Real) for item in value):
            return {name: torch.tensor([float(item) for item in value], dtype=torch.float64)}
        if any(isinstance(item, torch.Tensor) for item in value):
            raise TypeError(f"result {name!r} mixes tensors with other values")
        raise TypeError(f"result {name!r} holds {type(value[0]).__name__}, expected tensors or floats")
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return {name: torch.tensor(bool(value))}
    if isinstance(value, int):
        return {name: torch.tensor(value, dtype=torch.int64)}
    if isinstance(value, Real):
        return {name: torch.tensor(float(value), dtype=torch.float64)}
    raise TypeError(f"result {name!r} is a {type(value).__name__}, expected a tensor, a list or a number")
