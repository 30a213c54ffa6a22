"""The reduced loss and its gradient as real numbers (baseline: Reducers)."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from flint import fmpq

from verification.oracle.exact import Exact
from verification.oracle.reals import (
    ZERO,
    all_finite,
    floats,
    magnitude,
    masks_or_ones,
    rationals,
    reach,
    within_format,
)


def reduce(args: Namespace, inputs: dict[str, Any]) -> dict[str, Exact] | None:
    """``loss`` ``[]`` and ``grad.values[i]`` ``[R_i]``; None where malformed or not finite. No masks are ones.

    Sample mean: sum over responses of sum(x m) / max(sum(m), 1), the denominator from the full mask where given; its
    gradient is m / max(sum(m), 1). Token sum: sum(x m), gradient m. Scale of a sum: the sum of its terms' magnitudes.
    """
    rows = [floats(row) for row in inputs["values"]]
    masks = masks_or_ones(inputs.get("loss_masks"), [len(row) for row in rows])
    given = inputs.get("full_loss_masks")
    full = masks if given is None else [floats(row) for row in given]
    if [len(row) for row in rows] != [len(row) for row in masks] or len(full) != len(rows):
        return None
    if not all_finite([*rows, *masks, *full]):
        return None
    kind = "token_sum" if args.calculate_per_token_loss else "sample_mean"
    total, scale = ZERO, 0.0
    results: dict[str, Exact] = {}
    for i, (row, mask, whole) in enumerate(zip(rows, masks, full, strict=True)):
        weights = rationals(mask)
        denominator = fmpq(1) if kind == "token_sum" else max(sum(rationals(whole), ZERO), fmpq(1))
        count = magnitude(denominator)
        terms = [number * weight / denominator for number, weight in zip(rationals(row), weights, strict=True)]
        total += sum(terms, ZERO)
        scale += within_format(count * sum(reach(term) for term in terms)) / count
        slopes = tuple(weight / denominator for weight in weights)
        results[f"grad.values[{i}]"] = Exact(
            slopes, tuple(magnitude(slope) for slope in slopes), (len(row),), f"reduce.{kind}.gradient"
        )
    return {"loss": Exact((total,), (scale,), (), f"reduce.{kind}"), **results}
