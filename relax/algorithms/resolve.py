"""Turns the identifiers of a spec into the functions they name, so that a missing one shows at start-up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from relax.algorithms.spec import AlgorithmSpec


@dataclass(frozen=True, slots=True)
class Implementations:
    """The three functions of one algorithm."""

    reward_normalizer: Callable[..., Any] | None  # None: rewards go on as they are
    advantage_fn: Callable[..., Any]
    policy_loss_fn: Callable[..., Any]


def resolve_implementations(spec: AlgorithmSpec) -> Implementations:
    """Looks each identifier of ``spec`` up in its table. Imports torch, since the tables hold tensor functions.

    Raises:
        ValueError: a table has no entry of that name.
    """
    return Implementations(
        reward_normalizer=_entry(spec, "reward_normalizer", spec.reward_normalizer, "rewards", "REWARD_NORMALIZERS"),
        advantage_fn=_entry(spec, "advantage_fn", spec.advantage_fn, "advantages", "ADVANTAGE_FNS"),
        policy_loss_fn=_entry(spec, "policy_loss_fn", spec.policy_loss_fn, "policy", "POLICY_LOSS_FNS"),
    )


def _entry(spec: AlgorithmSpec, field: str, identifier: str, module: str, table: str) -> Any:
    place = f"relax.algorithms.{module}"
    entries = getattr(import_module(place), table)
    if identifier not in entries:
        raise ValueError(
            f"--advantage-estimator {spec.name}: its {field} {identifier!r} has no implementation: "
            f"add it to {place}.{table} or choose another algorithm"
        )
    return entries[identifier]
