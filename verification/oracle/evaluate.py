"""The exact arrays of a case: by stage, at a precision that leaves every ball far narrower than an ulp."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flint import arb, ctx

from verification.cases.case import Case
from verification.judges.ulps import ulp
from verification.oracle import group_scores, kl, log_probs, policy, reducers, returns, token_normalization
from verification.oracle.exact import Exact
from verification.oracle.routes import ROUTES

FIRST_PRECISION = 192
LAST_PRECISION = 1 << 14
NARROW = 2.0**-16  # of an ulp: what a ball's radius may add to a measured distance

_STAGES: dict[str, Callable[[Any, dict[str, Any]], dict[str, Exact] | None]] = {
    "reward.normalize": lambda args, inputs: group_scores.normalize(args, inputs["samples"]),
    "reward.signal": lambda args, inputs: group_scores.signal(args, inputs["samples"]),
    "kl.estimate": kl.estimate,
    "advantage.estimate": returns.estimate,
    "advantage.normalize": token_normalization.normalize,
    "policy.loss": policy.objective,
    "loss.reduce": reducers.reduce,
    "logprob.entropy": log_probs.estimate,
}


def evaluate(case: Case) -> dict[str, Exact] | None:
    """Exact arrays by the outcome's names; None where the case has no real result to compare with.

    That is: a stage without numbers, malformed input (``case.error`` or found so), an algorithm that the oracle does
    not know, or a non-finite input where the whole array depends on it. Which error is right is no question for it.
    """
    if case.error is not None or case.stage not in _STAGES or case.algorithm not in ROUTES:
        return None
    args, inputs = case.arguments(), dict(case.inputs)
    precision = FIRST_PRECISION
    while precision <= LAST_PRECISION:
        with ctx.workprec(precision):
            result = _STAGES[case.stage](args, inputs)
            if result is None or all(_narrow(exact) for exact in result.values()):
                return result
        precision *= 2
    raise ArithmeticError(f"case {case.id!r}: balls are still too wide at {LAST_PRECISION} bits")


def _narrow(exact: Exact) -> bool:
    """Whether no ball is wide against the ulp that its distance will be stated in (roundings are settled already)."""
    if exact.correctly_rounded:
        return True
    for value, scale in zip(exact.values, exact.scales, strict=True):
        if isinstance(value, arb) and not value.is_exact():
            radius = float(value.rad())
            if radius and not (math.isinf(scale) or radius <= NARROW * ulp(scale, exact.grid)):
                return False
    return True
