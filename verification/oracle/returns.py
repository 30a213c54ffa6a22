"""Advantages and returns as real numbers (baseline: Advantages), from the float32 of rewards, kl, masks and values.

Options count as the number that torch multiplies with, their nearest float32 (for values in float64 the double itself):
-kl_coef, gamma and the double product gamma * lambd.
Each result is ``advantages[i]`` and ``returns[i]``, ``[R_i]``.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any

import torch
from flint import arb, fmpq

from verification.oracle.exact import Exact
from verification.oracle.group_scores import GDPO_EPS
from verification.oracle.reals import (
    all_finite,
    floats,
    magnitude,
    masks_or_ones,
    rational,
    rationals,
    reach,
    settled_single,
    single,
    within_format,
)
from verification.oracle.routes import ROUTES
from verification.oracle.standardized import standardized_sum

Rows = list[list[float]]
Result = dict[str, Exact] | None


def estimate(args: Namespace, inputs: dict[str, Any]) -> Result:
    """The advantages and returns of one call; None where an input is malformed or not finite."""
    kl = [floats(row) for row in inputs["kl"]]
    rewards = [single(float(reward)) for reward in inputs["rewards"]]
    if len(kl) != len(rewards) or not all_finite([rewards, *kl]):
        return None
    return _ESTIMATORS[ROUTES[args.advantage_estimator].advantage](args, rewards, kl, inputs)


def batch_whitened(rewards: Sequence[float], sizes: Sequence[int]) -> list[arb | fmpq]:
    """GDPO step 3: (A_i - mean) / (std + 1e-4) over each run of ``sizes`` rewards; a batch of one gives 0."""
    results: list[arb | fmpq] = []
    start = 0
    for size in sizes:
        if size:
            segment = rationals(rewards[start : start + size])
            results += standardized_sum([segment], [fmpq(1)], rational(GDPO_EPS))
        start += size
    return results


def _broadcast(args: Namespace, rewards: list[float], kl: Rows, inputs: dict[str, Any]) -> Result:
    rows = [[(rational(reward), abs(reward))] * len(row) for reward, row in zip(rewards, kl, strict=True)]
    return _named("advantage.broadcast", rows, rows, exact=True)


def _masked_broadcast(args: Namespace, rewards: list[float], kl: Rows, inputs: dict[str, Any]) -> Result:
    masks = _masks(inputs, kl)
    if masks is None:
        return None
    rows = []
    for reward, mask in zip(rewards, masks, strict=True):
        products = [rational(reward) * rational(weight) for weight in mask]
        rows.append([(product, magnitude(product)) for product in products])
    return _named("advantage.masked_broadcast", rows, rows, exact=True)


def _discounted_returns(args: Namespace, rewards: list[float], kl: Rows, inputs: dict[str, Any]) -> Result:
    """m_j times the sum over l >= j of gamma^(l-j) t_l; scale: the running sum of what was rounded on the way."""
    masks = _masks(inputs, kl)
    if masks is None or any(not any(mask) for mask in masks):
        return None
    coefficient, gamma = arb(single(-args.kl_coef)), arb(single(args.gamma))
    decay = abs(single(args.gamma))
    rows = []
    for reward, row, mask in zip(rewards, kl, masks, strict=True):
        last = max(position for position, weight in enumerate(mask) if weight)
        running, rounded = arb(0), 0.0
        backwards = []
        for position in reversed(range(len(row))):
            penalty = coefficient * (arb(row[position]) * arb(mask[position]))
            touched = 2.0 * reach(penalty)  # two products
            if position == last:
                penalty += arb(reward)
                touched += reach(penalty)
            carried = gamma * running
            running = penalty + carried
            rounded = within_format(decay * rounded + reach(carried) + reach(running) + touched)
            weight = mask[position]
            backwards.append((running * arb(weight), abs(weight) * (rounded + reach(running))))
        rows.append(backwards[::-1])
    return _named("advantage.discounted_returns", rows, rows)


def _gae(args: Namespace, rewards: list[float], kl: Rows, inputs: dict[str, Any]) -> Result:
    """A_j = sum of w^l (r + gamma v' - v) at j + l; scale: the same sum of magnitudes. Returns add the value.

    All in the dtype of the values; the token rewards r are float32 whatever that dtype is.
    """
    if inputs.get("values") is None:
        return None
    values = [floats(row) for row in inputs["values"]]
    if [len(row) for row in values] != [len(row) for row in kl] or not all_finite(values) or not all(kl):
        return None
    double = str(getattr(inputs["values"][0], "dtype", "")).endswith("float64")
    as_read = float if double else single  # an option, as the formula multiplies with it
    coefficient, gamma = arb(single(-args.kl_coef)), arb(as_read(args.gamma))
    carry_size = abs(as_read(args.gamma * args.lambd))
    carry = arb(as_read(args.gamma * args.lambd))
    advantages, returns = [], []
    for reward, row, value_row in zip(rewards, kl, values, strict=True):
        running, size = arb(0), 0.0
        following = 0.0
        backwards, back_returns = [], []
        for position in reversed(range(len(row))):
            score, ahead, value = coefficient * arb(row[position]), gamma * arb(following), value_row[position]
            touched = reach(score) + reach(ahead) + abs(value)
            score = _as_float32(score) if double else score
            if position == len(row) - 1:
                score += arb(reward)
                touched += abs(reward)
                score = _as_float32(score) if double else score
            running = score + ahead - arb(value) + carry * running
            size = within_format(touched + carry_size * size)
            backwards.append((running, size))
            back_returns.append((running + arb(value), size + abs(value)))
            following = value
        advantages.append(backwards[::-1])
        returns.append(back_returns[::-1])
    return _named("advantage.gae", advantages, returns, dtype=torch.float64 if double else torch.float32)


def _as_float32(value: arb) -> arb:
    """What one correctly rounded operation of float32 leaves: in ulps of float64 its error would be all that shows."""
    return arb(settled_single(value))


def _whitened_broadcast(args: Namespace, rewards: list[float], kl: Rows, inputs: dict[str, Any]) -> Result:
    sizes = inputs.get("mini_batch_sizes")
    if sizes is None or any(isinstance(size, bool) or not isinstance(size, int) or size < 0 for size in sizes):
        return None
    if sum(sizes) != len(rewards):
        return None
    whitened = batch_whitened(rewards, sizes)
    rows = [[(value, magnitude(value))] * len(row) for value, row in zip(whitened, kl, strict=True)]
    return _named("advantage.whitened_broadcast", rows, rows, exact=True, positive_zero=True)


_ESTIMATORS: dict[str, Callable[[Namespace, list[float], Rows, dict[str, Any]], Result]] = {
    "broadcast": _broadcast,
    "masked_broadcast": _masked_broadcast,
    "discounted_returns": _discounted_returns,
    "gae": _gae,
    "whitened_broadcast": _whitened_broadcast,
}


def _masks(inputs: dict[str, Any], kl: Rows) -> Rows | None:
    """The loss masks, ones where there are none; None where their shapes differ from the kl's."""
    masks = masks_or_ones(inputs.get("loss_masks"), [len(row) for row in kl])
    return masks if [len(row) for row in masks] == [len(row) for row in kl] and all_finite(masks) else None


def _named(
    formula: str,
    advantages: list,
    returns: list,
    *,
    exact: bool = False,
    positive_zero: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Result:
    named = {}
    for name, rows in (("advantages", advantages), ("returns", returns)):
        for i, row in enumerate(rows):
            values, scales = zip(*row, strict=True) if row else ((), ())
            named[f"{name}[{i}]"] = Exact(
                values or (),
                scales or (),
                (len(row),),
                formula,
                dtype=dtype,
                grid=dtype,
                correctly_rounded=exact,
                positive_zero=positive_zero,
            )
    return named
