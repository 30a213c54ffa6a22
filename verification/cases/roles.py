"""Named cases of ``roles.resolve``: every algorithm in every mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from verification.cases.case import Case
from verification.cases.families import ALL, required_options

MODES: dict[str, dict[str, Any]] = {
    "colocate": {},
    "hybrid": {"hybrid": True},
    "async": {"fully_async": True, "colocate": False, "max_staleness": 1},
    "async-on-policy": {"fully_async": True, "colocate": False, "true_on_policy_mode": True},
    "colocate-on-policy": {"true_on_policy_mode": True},
    "debug-rollout": {"debug_rollout_only": True},
    "debug-train": {"debug_train_only": True},
    "debug-rollout-async": {"debug_rollout_only": True, "fully_async": True, "colocate": False},
    "debug-train-async": {"debug_train_only": True, "fully_async": True, "colocate": False},
    "sft": {"loss_type": "sft_loss"},
}


def role_cases() -> Iterator[Case]:
    """All of them. What an algorithm's spec forbids is refused by the command line, not by this table."""
    for algorithm in ALL:
        for mode, options in MODES.items():
            yield Case(
                id=f"roles.resolve/{algorithm}/{mode}",
                stage="roles.resolve",
                algorithm=algorithm,
                inputs={},
                options={**required_options(algorithm), **options},
            )
