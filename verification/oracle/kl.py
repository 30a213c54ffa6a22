"""The KL estimate of each token as a real number (baseline: KL template), from the float32 log-probs given."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from flint import arb

from verification.oracle.exact import Exact
from verification.oracle.reals import FLOAT32_MAX, FLOAT32_TINY, ZERO, floats, magnitude

CLAMP = 10.0
FAR = 200.0  # a log-ratio beyond which exp leaves float32 whatever multiplies it


def estimate(args: Namespace, inputs: dict[str, Any]) -> dict[str, Exact] | None:
    """``kl[i]`` ``[R_i]``; zeros without a coefficient or log-probs; None where the reference is missing."""
    log_probs, references = inputs.get("log_probs"), inputs.get("ref_log_probs")
    if args.kl_coef == 0 or log_probs is None:
        rows = inputs.get("values") if log_probs is None else log_probs
        return None if rows is None else {f"kl[{i}]": _zeros(len(row)) for i, row in enumerate(rows)}
    ratios = inputs.get("importance_ratios")
    if (
        references is None
        or len(references) != len(log_probs)
        or (ratios is not None and len(ratios) != len(log_probs))
    ):
        return None
    results = {}
    for i, row in enumerate(log_probs):
        weights = None if ratios is None else floats(ratios[i])
        exact = _row(args.kl_loss_type, floats(row), floats(references[i]), weights)
        if exact is None:
            return None
        results[f"kl[{i}]"] = exact
    return results


def _row(kind: str, log_probs: Sequence[float], refs: Sequence[float], ratios: Sequence[float] | None) -> Exact | None:
    if len(log_probs) != len(refs) or (ratios is not None and len(ratios) != len(log_probs)):
        return None
    formula = f"kl.{kind}" if ratios is None else f"kl.{kind}.weighted"
    once = formula == "kl.k1"  # a single rounding
    values: list[arb | None] = []
    scales = []
    for position, (log_prob, reference) in enumerate(zip(log_probs, refs, strict=True)):
        difference = arb(log_prob) - arb(reference)
        if not difference.is_finite():
            values.append(None)
            scales.append(0.0)
            continue
        value, scale = estimators[kind](difference)
        if ratios is not None:
            value, scale = value * arb(ratios[position]), max(scale, FLOAT32_TINY * (scale > 0)) * abs(ratios[position])
        if kind == "low_var_kl":
            value, scale = _clamped(value, scale)
        judged = once or scale <= FLOAT32_MAX  # false for NaN, an overflow times 0, as well
        values.append(value if judged and value.is_finite() else None)
        scales.append(scale if judged else 0.0)
    return Exact(tuple(values), tuple(scales), (len(values),), formula, correctly_rounded=once)


def _k1(difference: arb) -> tuple[arb, float]:
    """d; scale |d|."""
    return difference, magnitude(difference)


def _k2(difference: arb) -> tuple[arb, float]:
    """d^2 / 2; scale itself, unless the square leaves the format before it is halved."""
    value = difference * difference / 2
    scale = magnitude(value)
    return value, scale if 2.0 * scale <= FLOAT32_MAX else float("inf")


def _k3(difference: arb) -> tuple[arb, float]:
    """exp(e) - 1 - e with e = -d; scale exp(e) (1 + |e|) + 1 + |e|: e carries a rounding of its own into exp."""
    e = -difference
    size = magnitude(e)
    if float(e) > FAR:
        return arb(FAR).exp(), float("inf")  # the power is beyond the format, and the scale says so
    power = e.exp()
    scale = (magnitude(power) + 1.0) * (1.0 + size)
    return power - 1 - e, scale if magnitude(power) <= FLOAT32_MAX else float("inf")


estimators = {"k1": _k1, "k2": _k2, "k3": _k3, "low_var_kl": _k3}


def _clamped(value: arb, scale: float) -> tuple[arb, float]:
    """Cut to [-10, 10]. Well outside, the result is the bound itself and leaves no room for rounding (scale 0)."""
    middle = float(value)
    limit = arb(math.copysign(CLAMP, middle))
    if scale == float("inf"):
        # The power left the format; the clamp brings the infinity back, unless the exact number never was that large.
        return limit, 0.0 if abs(middle) > 2.0 * CLAMP else scale
    if abs(middle) > CLAMP + scale * 2.0**-16:
        return limit, 0.0
    return (limit if abs(middle) > CLAMP else value), scale


def _zeros(length: int) -> Exact:
    return Exact((ZERO,) * length, (0.0,) * length, (length,), "kl.none", correctly_rounded=True, positive_zero=True)
