"""One small case for one combination of switches: inputs from integers, so that every machine makes the same ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from verification.cases.arguments import DEFAULTS
from verification.cases.case import Case
from verification.parity.switches import Combination

LENGTHS = {"short": (3, 1, 5, 2), "long": (3, 129, 5, 2), "empty": (3, 0, 5, 2)}
GROUPS = {
    "interleaved": (4, 9, 4, 9, 9, 4, 9, 4),
    "missing index": (4, 9, 4, None, 9, 4, 9, 4),
    "wrong size": (4, 9, 4, 9, 9, 9, 9, 4),
}
REWARDS = {
    "varied": (0.1, 1.0, 0.7, 0.0, 0.0, 0.3, 1.0, -2.5),
    "flat": (0.2,) * 8,
    "not finite": (0.1, 1.0, float("nan"), 0.0, float("inf"), 0.3, 1.0, 0.0),
}
SCALES = {"log_probs": 0.37, "old_log_probs": 0.41, "ref_log_probs": 0.43, "rollout_log_probs": 0.39}


def make_case(stage: str, algorithm: str, number: int, combination: Combination) -> Case:
    """The case of one combination; its note says which switches differ from the usual ones."""
    inputs = _INPUTS[stage](combination)
    options = {name: value for name, value in combination.items() if name in DEFAULTS}
    options.update(_options(stage, combination))
    note = ", ".join(f"{name}={value}" for name, value in combination.items())
    return Case(f"parity/{stage}/{algorithm}/{number:03d}", stage, algorithm, inputs, options, note=note)


def _options(stage: str, combination: Combination) -> dict[str, Any]:
    """The options behind the switches that are no attribute of the command line."""
    if stage == "reward.normalize":
        return {"n_samples_per_prompt": 4}
    if stage == "policy.loss":
        modes = {"icepop": "icepop", "no such mode": "median"}
        correction = combination["correction"]
        return {"use_tis": correction != "none", "tis_mode": modes.get(correction, "truncate")}
    if stage == "roles.resolve":
        mode, debug = combination["mode"], combination["debug"]
        options = {name: name == mode for name in ("colocate", "hybrid", "fully_async")}
        return options | {name: name == debug for name in ("debug_rollout_only", "debug_train_only")}
    return {}


def tokens(lengths: tuple[int, ...], salt: int, scale: float = 1.0) -> list[np.ndarray]:
    """Float32 vectors of the given lengths: small integers over 8, times ``scale``, different for each ``salt``."""
    return [
        (np.array([((i * 7 + n * 3 + salt * 5 + row) % 17) - 8 for i in range(n)], dtype=np.float32) / 8)
        * np.float32(scale)
        for row, n in enumerate(lengths)
    ]


def masks(lengths: tuple[int, ...], kind: str) -> list[np.ndarray] | None:
    """Loss masks: all ones; every third token off, in any of three dtypes; one response off; all off; no masks."""
    if kind == "none":
        return None
    dtype = np.dtype(kind) if kind in ("int64", "bool") else np.dtype(np.float32)
    result = [np.ones(n, dtype=dtype) for n in lengths]
    if kind in ("holes", "int64", "bool"):
        for row in result:
            row[2::3] = 0
    elif kind == "one throughout":
        result[2][:] = 0
    elif kind == "zero":
        for row in result:
            row[:] = 0
    return result


def _samples(combination: Combination) -> dict[str, Any]:
    key = combination["reward_key"]
    groups: tuple[int | None, ...] = (4,) * 4
    rewards: tuple[float, ...] = REWARDS[combination["kinds"]]
    if "groups" in combination:
        groups = GROUPS[combination["groups"]]
    # A hook reads plain rewards; a mapping under it would only show that the hook cannot.
    mapped = key is not None and not combination.get("custom_reward_post_process_path")
    return {
        "samples": [
            {
                "index": index,
                "group_index": group,
                "reward": {key: reward, "other": -reward} if mapped else reward,
                "custom_advantage": index / 4 - 1,
            }
            for index, (group, reward) in enumerate(zip(groups, rewards[: len(groups)], strict=True))
        ]
    }


def _kl(combination: Combination) -> dict[str, Any]:
    lengths = LENGTHS["empty"]
    given = combination["log_probs"] == "given"
    ratios = combination["importance_ratios"] == "given"
    return {
        "log_probs": tokens(lengths, 1, 12.0) if given else None,
        "ref_log_probs": tokens(lengths, 2, 12.0) if given else None,
        "values": tokens(lengths, 3),
        "importance_ratios": [np.abs(row) + np.float32(0.3) for row in tokens(lengths, 4)] if ratios else None,
    }


def _estimate(combination: Combination) -> dict[str, Any]:
    lengths = LENGTHS[combination["lengths"]]
    return {
        "rewards": [0.7, -1.3, 0.1, 2.0],
        "kl": tokens(lengths, 1, 0.3),
        "loss_masks": masks(lengths, combination["masks"]),
        "response_lengths": list(lengths),
        "total_lengths": [n + 4 for n in lengths],
        "values": [row.astype(combination["values"]) for row in tokens(lengths, 2, 0.7)],
        "padded_total_lengths": None,
        "process_group": None,
        "mini_batch_sizes": None,
    }


def _normalize(combination: Combination) -> dict[str, Any]:
    lengths = LENGTHS[combination["lengths"]]
    return {
        "advantages": tokens(lengths, 1, 0.7),
        "loss_masks": masks(lengths, combination["masks"]),
        "process_group": None,
    }


def _policy(combination: Combination) -> dict[str, Any]:
    lengths = LENGTHS["short"]
    inputs: dict[str, Any] = {name: tokens(lengths, salt, scale) for salt, (name, scale) in enumerate(SCALES.items())}
    del inputs["ref_log_probs"]
    if combination["correction"] in ("none", "without rollout log-probs"):
        inputs["rollout_log_probs"] = None
    return {**inputs, "advantages": tokens(lengths, 5), "loss_masks": masks(lengths, combination["masks"])}


def _reduce(combination: Combination) -> dict[str, Any]:
    lengths = LENGTHS["empty"]
    full = None
    if combination["full_loss_masks"] == "longer":
        full = masks(tuple(n + 2 for n in lengths), combination["masks"])
    return {
        "values": tokens(lengths, 1, 0.7),
        "loss_masks": masks(lengths, combination["masks"]),
        "full_loss_masks": full,
    }


_INPUTS = {
    "reward.normalize": _samples,
    "reward.signal": _samples,
    "kl.estimate": _kl,
    "advantage.estimate": _estimate,
    "advantage.normalize": _normalize,
    "policy.loss": _policy,
    "loss.reduce": _reduce,
    "roles.resolve": lambda combination: {},
}
