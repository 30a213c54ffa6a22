"""The policy objective of a batch as real numbers: log-ratio, objective, OPSM mask, off-policy weight, gradient.

The gradient is that of ``loss.sum()`` with respect to each log-prob. With a sequence-level log-ratio, m_j / max(sum m,
1) of every token's slope reaches log-prob j. Masks and weights carry no gradient.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from flint import arb

from verification.oracle.exact import Exact
from verification.oracle.objectives import MARGIN, OBJECTIVES, Token, ratio_of
from verification.oracle.reals import (
    FLOAT32_MAX,
    FLOAT32_TINY,
    floats,
    magnitude,
    masks_or_ones,
    reach,
    single,
    within_format,
)
from verification.oracle.routes import ROUTES

ONE = arb(1)
Factors = tuple[tuple[arb, ...], float]  # every value that counts, and the scale


@dataclass
class Column:
    """The elements of one array while they are collected."""

    values: list[arb | None]
    scales: list[float]
    alternatives: dict[int, tuple[arb, ...]]

    @classmethod
    def empty(cls) -> Column:
        return cls([], [], {})

    def add(self, candidates: Sequence[arb], scale: float) -> None:
        """One element: its value, further values that count, its scale; unjudged where there is none."""
        if not candidates or not scale <= FLOAT32_MAX or not all(value.is_finite() for value in candidates):
            self.values.append(None)
            self.scales.append(0.0)
            return
        if len(candidates) > 1:
            self.alternatives[len(self.values)] = tuple(candidates[1:])
        self.values.append(candidates[0])
        self.scales.append(scale)

    def exact(self, formula: str, **known: Any) -> Exact:
        """The array."""
        shape = (len(self.values),)
        return Exact(tuple(self.values), tuple(self.scales), shape, formula, alternatives=self.alternatives, **known)


def objective(args: Namespace, inputs: dict[str, Any]) -> dict[str, Exact] | None:
    """``loss``, ``clipfrac``, ``ppo_kl`` ``[T]`` and ``grad.log_probs[i]`` ``[R_i]``; None where malformed."""
    route = ROUTES[args.advantage_estimator]
    given = ["old_log_probs", "log_probs", "advantages", *(["rollout_log_probs"] * args.use_tis)]
    if any(inputs.get(name) is None for name in given) or (args.eps_clip_c is not None and not args.eps_clip_c > 1):
        return None
    rows = [[floats(row) for row in inputs[name]] for name in given]
    lengths = [len(row) for row in rows[0]]
    rows.insert(3, masks_or_ones(inputs.get("loss_masks"), lengths))
    if any([len(row) for row in column] != lengths for column in rows):
        return None
    loss, clipfrac, ppo_kl = Column.empty(), Column.empty(), Column.empty()
    weighted = " weighted" if args.use_tis else ""
    level = "sequence " if route.sequence_level else ""
    results = {}
    for i, response in enumerate(zip(*rows, strict=True)):
        gradient = _response(args, response, loss, clipfrac, ppo_kl)
        results[f"grad.log_probs[{i}]"] = gradient.exact(f"policy.{level}{route.objective}.gradient{weighted}")
    return {
        "loss": loss.exact(f"policy.{level}{route.objective}{weighted}"),
        "clipfrac": clipfrac.exact("policy.decision", dtype=None),
        "ppo_kl": ppo_kl.exact(f"policy.{level or 'token '}log_ratio", correctly_rounded=not route.sequence_level),
        **results,
    }


def _response(args: Namespace, rows: Sequence[list[float]], loss: Column, clipfrac: Column, ppo_kl: Column) -> Column:
    """Adds the tokens of one response to the three columns and gives its gradient."""
    route = ROUTES[args.advantage_estimator]
    old, new, advantages, mask = rows[:4]
    rollout = rows[4] if args.use_tis else [None] * len(old)
    differences = [arb(before) - arb(after) for before, after in zip(old, new, strict=True)]
    mean, spread, denominator = _masked_mean(differences, mask)
    weigh = _weight(args)
    tokens: list[Token | None] = []
    factors: list[Factors] = []
    for position, advantage in enumerate(advantages):
        difference = mean if route.sequence_level else differences[position]
        uncertainty = spread if route.sequence_level else magnitude(difference)
        kl_scale = spread if route.sequence_level else magnitude(difference)
        sound = difference.is_finite() and math.isfinite(advantage) and math.isfinite(new[position])
        if not sound or magnitude(difference) > FLOAT32_MAX:
            for column in (loss, clipfrac, ppo_kl):
                column.add((), 0.0)
            tokens.append(None)
            factors.append(((), 0.0))
            continue
        ppo_kl.add((difference,), kl_scale)
        ratio = ratio_of(-difference, uncertainty)
        token = OBJECTIVES[route.objective](args, ratio, advantage, new[position])
        factor = _product(_kept(args, advantage, mean, spread), weigh(old[position], rollout[position]))
        loss.add(_times((token.loss,), factor[0]), _joint(token.loss_scale, factor[1]))
        clipfrac.add(tuple(arb(decision) for decision in token.clipped), 0.0)
        tokens.append(token)
        factors.append(factor)
    gradient = Column.empty()
    if route.sequence_level:
        _sequence_gradient(gradient, tokens, factors, mask, denominator)
    else:
        for one, factor in zip(tokens, factors, strict=True):
            if one is None:
                gradient.add((), 0.0)
                continue
            candidates = tuple(slope + one.direct for slope in one.slopes)
            scale = _joint(one.slope_scale + one.direct_scale, factor[1], one.ratio_scale)
            gradient.add(_times(candidates, factor[0]), scale)
    return gradient


def _masked_mean(differences: Sequence[arb], mask: Sequence[float]) -> tuple[arb, float, arb]:
    """sum(d m) / max(sum(m), 1); the same sum of magnitudes; the denominator."""
    denominator = max(sum((arb(weight) for weight in mask), arb(0)), ONE, key=float)
    total, size = arb(0), 0.0
    for difference, weight in zip(differences, mask, strict=True):
        part = difference * arb(weight)
        total += part
        size += reach(part)
    return total / denominator, size / float(denominator), denominator


def _kept(args: Namespace, advantage: float, mean: arb, spread: float) -> Factors:
    """The OPSM factor: 0 where A < 0 and the response's mean log-ratio exceeds the threshold, else 1."""
    if not args.use_opsm or not advantage < 0:
        return (ONE,), 1.0
    if not mean.is_finite():
        return (), 0.0
    gap = float(mean) - single(args.opsm_delta)
    if abs(gap) <= 2.0 * MARGIN * spread:  # a mean of many tokens: twice the room of a single ratio
        return (ONE, arb(0)), 1.0
    return ((arb(0),), 0.0) if gap > 0 else ((ONE,), 1.0)


def _weight(args: Namespace) -> Any:
    """The function from old and rollout log-prob to the off-policy factor."""
    low, high = single(args.tis_clip_low), single(args.tis_clip)

    def weigh(old: float, rollout: float | None) -> Factors:
        if rollout is None:
            return (ONE,), 1.0
        difference = arb(old) - arb(rollout)
        if not difference.is_finite():
            return (), 0.0
        weight = ratio_of(difference, magnitude(difference))
        sides = weight.side(low), weight.side(high)
        if args.tis_mode == "icepop":  # a weight on a bound is not outside
            if sides[0] == -1 or sides[1] == 1:
                return (arb(0),), 0.0
            return ((weight.ball, arb(0)) if None in sides else (weight.ball,)), weight.scale
        if sides[1] == 1:
            return (arb(high),), high
        if sides[0] == -1:
            return (arb(low),), low
        return (weight.ball.max(arb(low)).min(arb(high)),), weight.scale

    return weigh


def _sequence_gradient(
    gradient: Column, tokens: Sequence[Token | None], factors: Sequence[Factors], mask: Sequence[float], total: arb
) -> None:
    """m_j / total times the sum of the tokens' slopes; unjudged where a token of the response has no single slope."""
    slope, scale, sound = arb(0), 0.0, True
    for token, (values, factor_scale) in zip(tokens, factors, strict=True):
        if token is None or len(token.slopes) != 1 or len(values) != 1:
            sound = False
            break
        slope += token.slopes[0] * values[0]
        scale += _joint(token.slope_scale, factor_scale, token.ratio_scale)
    scale = within_format(scale)
    for weight in mask:
        share = arb(weight) / total
        gradient.add((slope * share,) if sound else (), max(scale, FLOAT32_TINY) * magnitude(share))


def _joint(scale: float, factor_scale: float, last: float = 1.0) -> float:
    """The scale of a product; an operand or a product that underflowed has lost up to a subnormal step, which the
    other factor or the one that comes ``last`` enlarges; one that overflowed is not brought back, not even by 0."""
    if scale > FLOAT32_MAX:
        return math.inf
    if scale == 0.0 or factor_scale in (0.0, 1.0):
        return scale * factor_scale
    return max(max(scale, FLOAT32_TINY) * factor_scale, FLOAT32_TINY * last)


def _times(candidates: Sequence[arb], factors: Sequence[arb]) -> tuple[arb, ...]:
    return tuple(candidate * factor for candidate, factor in product(candidates, factors))


def _product(one: Factors, other: Factors) -> Factors:
    return _times(one[0], other[0]), one[1] * other[1]
