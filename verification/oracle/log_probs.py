"""Log-probability of each token, entropy, and their gradients as real numbers, from the logits given.

With x less the row's maximum, s = sum(exp(x)), p = exp(x) / s: log p = x - log(s), H = log(s) - E[x], where E weighs by
p. The gradients with respect to entry v are 1[v = token] - p_v and -p_v (log p_v + H).
"""

from __future__ import annotations

import math
from argparse import Namespace
from typing import Any

import numpy as np
import torch
from flint import arb

from verification.cases.case import bfloat16_values
from verification.oracle.exact import Exact
from verification.oracle.reals import magnitude, reach

DTYPES = {"float32": torch.float32, "float16": torch.float16, "uint16": torch.bfloat16}
ZERO = arb(0)
Elements = list[tuple[arb | None, float]]  # value and scale
UNJUDGED: Elements = [(None, 0.0)]


def estimate(args: Namespace, inputs: dict[str, Any]) -> dict[str, Exact] | None:
    """``log_probs[i]``, ``entropy[i]`` ``[R_i]``, ``grad.logits[i]``, ``grad.logits.entropy[i]`` ``[R_i, V]``.

    None where malformed.
    """
    logits, tokens = inputs["logits"], inputs["tokens"]
    if len(logits) != len(tokens):
        return None
    results = {}
    for i, (rows, ids) in enumerate(zip(logits, tokens, strict=True)):
        if rows.ndim != 2 or rows.shape[:1] != ids.shape or ((ids < 0) | (ids >= rows.shape[1])).any():
            return None
        dtype = DTYPES[rows.dtype.name]
        fraction = torch.finfo(torch.float32).eps / torch.finfo(dtype).eps
        columns: tuple[Elements, ...] = ([], [], [], [])
        for row, token in zip(_as_doubles(rows), ids.tolist(), strict=True):
            for column, elements in zip(columns, _row(row, token, fraction), strict=True):
                column.extend(elements)
        names = (f"log_probs[{i}]", f"entropy[{i}]", f"grad.logits[{i}]", f"grad.logits.entropy[{i}]")
        narrowed = "" if dtype == torch.float32 else " narrowed"
        formulas = ("log_prob", "entropy", f"log_prob.gradient{narrowed}", f"entropy.gradient{narrowed}")
        for name, column, formula in zip(names, columns, formulas, strict=True):
            values, scales = tuple(value for value, _ in column), tuple(scale for _, scale in column)
            shape, grid = (rows.shape, dtype) if "gradient" in formula else (ids.shape, torch.float32)
            results[name] = Exact(values, scales, shape, f"logprob.{formula}", dtype=grid, grid=grid)
    return results


def _as_doubles(rows: np.ndarray) -> list[list[float]]:
    return (bfloat16_values(rows) if rows.dtype == np.uint16 else rows).astype(np.float64).tolist()


def _row(row: list[float], token: int, fraction: float) -> tuple[Elements, Elements, Elements, Elements]:
    """One token: its log-prob, the entropy, and the gradients of both.

    A row that is no distribution is unjudged, and so is the log-prob of an impossible token. Scales: x is rounded
    before exp, so that s is off by 1 + E|x| units of its last place, and log(s) by as much beside its own rounding; p_v
    feels that and |x_v|. ``fraction`` is an ulp of float32 in ulps of the gradient's dtype, to which the gradient is
    rounded at the end. A row with a single possible entry rounds nothing.
    """
    possible = [x for x in row if x != -math.inf]
    if not possible or not all(map(math.isfinite, possible)):
        return UNJUDGED, UNJUDGED, UNJUDGED * len(row), UNJUDGED * len(row)
    top = arb(max(possible))
    shifted = [None if x == -math.inf else arb(x) - top for x in row]
    powers = [ZERO if x is None else x.exp() for x in shifted]
    total = sum(powers, ZERO)
    log_total = total.log()
    shares = [power / total for power in powers]
    mean = sum((p * x for p, x in zip(shares, shifted, strict=True) if x is not None), ZERO)
    spread = sum(magnitude(p) * magnitude(x) ** 2 for p, x in zip(shares, shifted, strict=True) if x is not None)
    entropy = log_total - mean
    of_total = 0.0 if len(possible) == 1 else 1.0 + magnitude(log_total) + magnitude(mean)
    gradient: Elements = []
    of_entropy: Elements = []
    for v, (p, x) in enumerate(zip(shares, shifted, strict=True)):
        of_log_p = of_total + (0.0 if x is None else magnitude(x))
        slope = (arb(1) if v == token else ZERO) - p
        gradient.append((slope, magnitude(slope) + fraction * reach(p) * of_log_p))
        surplus = ZERO if x is None else x - log_total + entropy
        lost = (1.0 + magnitude(surplus) + magnitude(entropy)) * of_log_p + spread
        of_entropy.append((-p * surplus, magnitude(p * surplus) + fraction * reach(p) * lost))
    chosen = shifted[token]
    log_prob: Elements = UNJUDGED if chosen is None else [(chosen - log_total, of_total + magnitude(chosen))]
    return log_prob, [(entropy, of_total + spread)], gradient, of_entropy
