"""Options that are read only where another one is on: without it they are accepted, and a line says so.

Three kinds are not here. What only some algorithms read: one configuration serves them all. What a debug mode leaves
out: it is laid over the command of a whole run. What contradicts, and does not only do nothing: that is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relax.option_ranges import attribute_of

_POLICY = ("--loss-type policy_loss",)

READ_WITH: Mapping[str, tuple[str, ...]] = {
    "--opsm-delta": ("--use-opsm",),
    "--tis-mode": ("--use-tis",),
    "--tis-clip": ("--use-tis",),
    "--tis-clip-low": ("--use-tis",),
    "--kl-loss-coef": ("--use-kl-loss",),
    "--kl-loss-type": ("--use-kl-loss", "--kl-coef"),
    "--num-iters-per-train-update": ("--fully-async",),
    "--sft-batch-size": ("--sft-steps",),
    "--sft-lr": ("--sft-steps",),
    "--sft-lr-warmup-steps": ("--sft-steps",),
    "--fully-async": _POLICY,
    "--hybrid": _POLICY,
    "--true-on-policy-mode": _POLICY,
    "--eval-problems": _POLICY,
    "--trace-rollout": _POLICY,
}
"""An option, and those of which one must be on (or have the value behind it) for the option to be read."""


def unread_options(args: Any, defaults: Mapping[str, Any]) -> list[str]:
    """A line for each option with another value than its default that this run reads nowhere."""
    return [
        without_effect(args, option, readers)
        for option, readers in READ_WITH.items()
        if getattr(args, attribute_of(option)) != defaults[attribute_of(option)]
        and not any(_is_on(args, reader) for reader in readers)
    ]


def without_effect(args: Any, option: str, readers: tuple[str, ...]) -> str:
    """The line that says so: both options as they are, and the remedy."""
    now = " and ".join(_shown(args, reader.split()[0]) for reader in readers)
    remedy = f"give {' or '.join(readers)}, or drop {option}"
    return f"{_shown(args, option)} and {now}: {option} has no effect; {remedy}"


def _is_on(args: Any, reader: str) -> bool:
    option, _, value = reader.partition(" ")
    now = getattr(args, attribute_of(option))
    return now == value if value else bool(now)


def _shown(args: Any, option: str) -> str:
    value = getattr(args, attribute_of(option))
    return f"{option} ({'on' if value else 'off'})" if isinstance(value, bool) else f"{option} {value}"
