"""Named cases of ``kl.estimate``: four kinds, with and without coefficient, importance ratio and log-probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verification.cases.case import Case
from verification.cases.families import ALL
from verification.cases.integers import Integers
from verification.cases.tokens import log_probs, moved, noise

KINDS = ("k1", "k2", "k3", "low_var_kl")
NAMES = {"low_var_kl": "lowvar"}

# Differences d for which a kind meets its edges: the clamp at 10, exp overflowing and vanishing, no difference.
EDGES = np.array(
    [0.0, -0.0, 2.0**-24, -(2.0**-24), 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 12.0, -12.0, 60.0, -60.0, 100.0, -100.0],
    dtype=np.float32,
)
RATIOS = np.array([1.0, 0.5, 2.0, 0.0, 1.5, 8.0, 0.125, 1.0] * 2, dtype=np.float32)


def kl_cases() -> Iterator[Case]:
    """All of them."""
    lengths = (1, 7, 0, 33)
    for kind in KINDS:
        name = NAMES.get(kind, kind)
        for algorithm in ALL:
            stream = Integers(f"kl/{kind}")
            new = log_probs(stream, lengths)
            reference = moved(stream, new, by=1.0)
            ratios = [np.abs(array) for array in noise(stream, lengths, reach=2)]
            yield kl_case(algorithm, f"{name}-coef0.1", kind, 0.1, new, reference)
            if algorithm in ("grpo", "ppo", "reinforce_plus_plus"):
                yield kl_case(algorithm, f"{name}-coef0.1-ratio", kind, 0.1, new, reference, ratios=ratios)
                yield kl_case(algorithm, f"{name}-coef0", kind, 0.0, new, reference)
        for closeness, by in (("close", 2.0**-12), ("far", 7.0)):
            stream = Integers(f"kl/{kind}/{closeness}")
            new = log_probs(stream, (17, 16))
            reference = moved(stream, new, by=by)
            yield kl_case("grpo", f"{name}-{closeness}", kind, 0.01, new, reference)
            ratios = [np.abs(array) for array in noise(stream, (17, 16), reach=2)]
            yield kl_case("grpo", f"{name}-{closeness}-ratio", kind, 0.01, new, reference, ratios=ratios)
        zero = np.zeros_like(EDGES)
        yield kl_case("grpo", f"{name}-edges", kind, 0.1, [zero], [EDGES])
        yield kl_case("grpo", f"{name}-edges-ratio", kind, 0.1, [zero], [EDGES], ratios=[RATIOS])
        yield kl_case("grpo", f"{name}-identical", kind, 0.1, [EDGES], [EDGES])
        yield kl_case("grpo", f"{name}-negative-coef", kind, -0.1, [zero], [EDGES])
    yield from without_log_probs()
    yield from without_numbers()


def kl_case(
    algorithm: str,
    rest: str,
    kind: str,
    coefficient: float,
    new: Sequence[np.ndarray] | None,
    reference: Sequence[np.ndarray] | None,
    *,
    ratios: Sequence[np.ndarray] | None = None,
    values: Sequence[np.ndarray] | None = None,
    note: str = "",
) -> Case:
    """A case of ``kl.estimate``."""
    inputs: dict[str, Any] = {
        "log_probs": new,
        "ref_log_probs": reference,
        "values": values,
        "importance_ratios": ratios,
    }
    options = {"kl_coef": coefficient, "kl_loss_type": kind}
    return Case(f"kl.estimate/{algorithm}/{rest}", "kl.estimate", algorithm, inputs, options, note=note)


def without_log_probs() -> Iterator[Case]:
    """No log-probabilities: zeros shaped like the values, whatever the coefficient; all shapes from the values."""
    for algorithm in ("ppo", "grpo", "gdpo"):
        values = noise(Integers("kl/values"), (3, 1, 0, 9))
        for coefficient in (0.0, 0.1):
            yield kl_case(algorithm, f"values-only-coef{coefficient}", "k1", coefficient, None, None, values=values)
        new = log_probs(Integers("kl/no-reference"), (3, 1, 0, 9))
        yield kl_case(algorithm, "no-reference-coef0", "k3", 0.0, new, None, values=values)


def without_numbers() -> Iterator[Case]:
    """NaN and infinite log-probabilities pass through the formula; with coefficient 0 they are not looked at."""
    odd = np.array([np.nan, np.inf, -np.inf, -1.0], dtype=np.float32)
    plain = np.array([-1.0, -1.0, -1.0, np.nan], dtype=np.float32)
    for kind in KINDS:
        yield kl_case("grpo", f"{NAMES.get(kind, kind)}-nan", kind, 0.1, [odd], [plain])
    yield kl_case("grpo", "nan-coef0", "k2", 0.0, [odd], [plain])
