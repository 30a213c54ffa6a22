"""Cases of the whole policy step: from logits to the reduced loss, its metrics and the gradient of the logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verification.cases.case import Case
from verification.cases.families import ALL
from verification.cases.integers import Integers
from verification.cases.kl import KINDS, NAMES
from verification.cases.reduce import REDUCERS
from verification.cases.tokens import constant, masks, noise

VOCABULARY = 8
LENGTHS = (5, 1, 8, 2, 3)
MINUS_LOG_8 = -34069  # in units of 2**-14: what a token of near uniform logits has for its log-prob

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dual": {"eps_clip_c": 1.5},
    "tis": {"use_tis": True, "tis_clip": 1.25, "tis_clip_low": 0.5},
    "icepop": {"use_tis": True, "tis_mode": "icepop", "tis_clip": 1.25, "tis_clip_low": 0.75},
    "opsm": {"use_opsm": True, "opsm_delta": 0.02},
    "opsm-tis-kl": {
        "use_opsm": True, "opsm_delta": 0.02, "use_tis": True, "use_kl_loss": True, "kl_loss_coef": 0.25,
        "kl_loss_type": "k3",
    },
}  # fmt: skip


def logit_cases() -> Iterator[Case]:
    """All of them."""
    for algorithm in ALL:
        for variant, options in VARIANTS.items():
            for reducer, per_token in REDUCERS.items():
                yield logit_case(algorithm, f"{variant}-{reducer}", calculate_per_token_loss=per_token, **options)
    for kind in KINDS:
        options = {"use_kl_loss": True, "kl_loss_coef": 0.5, "kl_loss_type": kind}
        yield logit_case("grpo", f"kl-{NAMES.get(kind, kind)}", **options)
    for algorithm in ("grpo", "gspo"):
        yield logit_case(algorithm, "empty-response", lengths=(4, 0, 6, 3))
        yield logit_case(algorithm, "masked-response", mask="zero", use_opsm=True)
        yield logit_case(algorithm, "no-rollout-log-probs", without=("rollout_log_probs",))


def logit_case(
    algorithm: str,
    name: str,
    *,
    lengths: Sequence[int] = LENGTHS,
    mask: str = "holes",
    without: Sequence[str] = (),
    **options: Any,
) -> Case:
    """A case of ``policy.loss`` whose inputs begin at the logits of each response token, ``[R_i, V]``."""
    stream = Integers(f"policy/logits/{algorithm}/{name}")
    inputs: dict[str, Any] = {
        "logits": [stream.array(n * VOCABULARY, -1 << 10, 1 << 10, 12).reshape(n, VOCABULARY) for n in lengths],
        "tokens": [np.array([stream.below(VOCABULARY) for _ in range(n)], dtype=np.int64) for n in lengths],
        "log_probs": near_uniform(stream, lengths),
        "ref_log_probs": near_uniform(stream, lengths),
        "rollout_log_probs": near_uniform(stream, lengths),
        "advantages": advantages(stream, lengths),
        "loss_masks": masks(mask, stream, lengths),
    }
    given = {key: value for key, value in inputs.items() if key not in without}
    return Case(f"policy.loss/{algorithm}/logits-{name}", "policy.loss", algorithm, given, options)


def near_uniform(stream: Integers, lengths: Sequence[int]) -> list[np.ndarray]:
    """Log-probs within 0.5 of those that near uniform logits have: some ratios are clipped, some are not."""
    return [stream.array(n, MINUS_LOG_8 - (1 << 13), MINUS_LOG_8 + (1 << 13), 14) for n in lengths]


def advantages(stream: Integers, lengths: Sequence[int]) -> list[np.ndarray]:
    """One value a response for the first three, of both signs; one a token behind them."""
    levels = constant(lengths[:3], [0.75, -1.25, -0.5][: len(lengths)])
    return [*levels, *noise(stream, lengths[3:], reach=2)]
