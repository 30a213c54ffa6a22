"""One token of each policy objective as real numbers: loss, decision and derivatives, by hand (baseline section 5).

Derivatives are taken with respect to the log-ratio (``slopes``; of -ratio A it is -ratio A, since the ratio is its
exponential) and with respect to the log-prob where it stands outside the ratio (``direct``).

Ties and kinks follow torch: the gradient of max(a, b) and min(a, b) is shared half and half where a = b, clamp passes
it on at its bounds. Which side of a kink a float32 computation is on cannot be told where the ratio lies within its
own rounding of the bound; there every outcome that such a computation can have is listed: the full derivative, half
of it (a tie of the two products, one side cut by the clamp), none.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass

from flint import arb

from verification.oracle.reals import FLOAT32_MAX, FLOAT32_TINY, magnitude, single

MARGIN = 2.0**-21  # of the ratio's scale: four to eight ulps, twice the bound that the search over ratios left
LEAST = 2.0**-146  # products this small are a few subnormal steps, so unequal ones may round to equal ones
FAR = 200.0
ZERO = arb(0)


@dataclass(frozen=True, slots=True)
class Ratio:
    """exp of a log-ratio: its ball, its double, and the magnitude in whose ulps a float32 ratio is off."""

    ball: arb
    size: float
    scale: float
    certain: bool  # the log-ratio is exactly 0, so the ratio is exactly 1, in float32 too

    @property
    def overflows(self) -> bool:
        return self.size > FLOAT32_MAX * 0.999

    def side(self, bound: float) -> int | None:
        """-1 below ``bound``, 0 on it, 1 above it; None where float32 may see it on either side."""
        gap = self.size - bound
        if not self.certain and abs(gap) <= MARGIN * max(self.scale, bound):
            return None
        return (gap > 0) - (gap < 0)


@dataclass(frozen=True, slots=True)
class Token:
    """One token's loss and derivatives, each with its scale; tuples hold every value that counts."""

    loss: arb
    loss_scale: float
    clipped: tuple[int, ...]
    slopes: tuple[arb, ...] = (ZERO,)
    slope_scale: float = 0.0
    direct: arb = ZERO
    direct_scale: float = 0.0
    ratio_scale: float = 1.0  # what the backward pass multiplies last, and with it whatever underflowed before


def ratio_of(log_ratio: arb, uncertainty: float) -> Ratio:
    """The ratio of a log-ratio that float32 knows to within an ulp of ``uncertainty``; exp adds an ulp of its own."""
    middle = float(log_ratio)
    if abs(middle) > FAR:  # far outside float32 on either side: the exact size no longer matters
        log_ratio = arb(FAR if middle > 0 else -FAR)
    ball = log_ratio.exp()
    size = magnitude(ball)
    return Ratio(ball, size, max(size * (1.0 + uncertainty), FLOAT32_TINY), uncertainty == 0.0)


def ppo_clip(args: Namespace, ratio: Ratio, advantage: float, log_prob: float) -> Token:
    """max(-ratio A, -clamp(ratio) A); where A < 0 and ``eps_clip_c`` is set, at most -eps_clip_c A."""
    # 0 times an infinite ratio is no number in float32: with A = 0 in the loss, with a clipped ratio in its gradient.
    lost = float("inf") if ratio.overflows else 0.0
    if advantage == 0.0:
        return Token(ZERO, lost, (0,), slope_scale=lost)
    low, high = single(1 - args.eps_clip), single(1 + args.eps_clip_high)
    cap = single(args.eps_clip_c) if args.eps_clip_c is not None and advantage < 0 else None
    # A > 0: -A min(ratio, high). A < 0: -A max(ratio, low), and with the cap -A min(max(ratio, low), cap).
    size, gain = arb(advantage), abs(advantage)
    full = -ratio.ball * size
    at_low, at_high = _side(ratio, low, gain), _side(ratio, high, gain)
    active = at_high if advantage > 0 else _flip(at_low)  # 1: clipped
    clipped = (0, 1) if active is None else (int(active > 0),)
    above_cap = None if cap is None else _side(ratio, cap, gain)
    if cap is not None and above_cap == 1:
        return Token(-arb(cap) * size, cap * gain, clipped, slope_scale=lost)
    if active == 1:
        bound = high if advantage > 0 else low
        return Token(-arb(bound) * size, bound * gain, clipped, slope_scale=lost)
    scale = max(gain * ratio.scale, lost)
    ball = ratio.ball
    if active is None:
        ball = ball.min(arb(high)) if advantage > 0 else ball.max(arb(low))
    if above_cap is None and cap is not None:
        ball = ball.min(arb(cap))
    slopes: tuple[arb, ...] = (full,)
    if active is None or (cap is not None and above_cap in (None, 0)):
        slopes = (full, full / 2, ZERO)
    elif at_low is None or at_high is None:
        slopes = (full, full / 2)  # the clamp that does not decide the loss, met in a tie
    # The backward pass halves A before it meets the ratio, where the two products tie: a subnormal A loses a step.
    slope_scale = max(gain, FLOAT32_TINY) * ratio.scale
    return Token(-ball * size, scale, clipped, slopes, max(slope_scale, lost), ratio_scale=ratio.scale)


def soft_gate(args: Namespace, ratio: Ratio, advantage: float, log_prob: float) -> Token:
    """-(4 / tau) sigmoid(tau (ratio - 1)) A, tau by the sign of A; slope -4 g (1 - g) ratio A."""
    tau = single(args.sapo_tau_pos if advantage > 0 else args.sapo_tau_neg)
    size, gain = arb(advantage), abs(advantage)
    gate = 1 / (1 + (-arb(tau) * (ratio.ball - 1)).exp())
    rest = 1 - gate
    g, h = magnitude(gate), magnitude(rest)
    argument = tau * (ratio.scale + abs(ratio.size - 1.0)) if not ratio.overflows else 0.0
    loss_scale = 4.0 / tau * gain * g * (1.0 + h * argument)
    # In float32 1 - g is off by an ulp of g, whatever is left of it.
    slope_scale = 4.0 * max(gain, FLOAT32_TINY) * ratio.scale * g * (1.0 + h * argument)
    width, limit = 4.0 * g * h, single(0.9)
    unsure = abs(width - limit) <= MARGIN * 4.0 * g * (1.0 + h * argument)
    return Token(
        -4 / arb(tau) * gate * size,
        loss_scale,
        (0, 1) if unsure else (int(width < limit),),
        (-4 * gate * rest * ratio.ball * size,),
        float("inf") if ratio.overflows else slope_scale,
        ratio_scale=ratio.scale,
    )


def clipped_is(args: Namespace, ratio: Ratio, advantage: float, log_prob: float) -> Token:
    """-coefficient A log p, the coefficient (ratio cut on one side) without a gradient; direct -coefficient A."""
    low, high = single(1 - args.eps_clip), single(1 + args.eps_clip_high)
    up = advantage >= 0
    beyond = ratio.side(high) if up else _flip(ratio.side(low))
    bound = high if up else low
    if beyond == 1:
        coefficient, size = arb(bound), bound
    else:
        cut = ratio.ball.min(arb(high)) if up else ratio.ball.max(arb(low))
        coefficient, size = (ratio.ball if beyond is not None else cut), ratio.scale
    direct = -coefficient * arb(advantage)
    direct_scale = size * abs(advantage)
    if max(size, direct_scale) > FLOAT32_MAX * 0.999:
        direct_scale = float("inf")  # and so is the loss, however small its log-prob
    # The product coefficient A comes first, so its own underflow is multiplied by the log-prob.
    loss_scale = max(direct_scale, FLOAT32_TINY if advantage else 0.0) * abs(log_prob)
    clipped = (0, 1) if beyond is None else (int(beyond > 0),)
    return Token(direct * arb(log_prob), loss_scale, clipped, direct=direct, direct_scale=direct_scale)


def reinforce(args: Namespace, ratio: Ratio, advantage: float, log_prob: float) -> Token:
    """-A log p; direct -A; nothing is clipped."""
    product = arb(advantage) * arb(log_prob)
    return Token(-product, magnitude(product), (0,), direct=-arb(advantage), direct_scale=abs(advantage))


OBJECTIVES = {"ppo_clip": ppo_clip, "soft_gate": soft_gate, "clipped_is": clipped_is, "reinforce": reinforce}


def _side(ratio: Ratio, bound: float, gain: float) -> int | None:
    """``Ratio.side``, undecided too where the products with the advantage are too small to differ in float32."""
    if bound > 0 and gain * abs(ratio.size - bound) <= LEAST and not (ratio.certain and ratio.size == bound):
        return None
    return ratio.side(bound)


def _flip(side: int | None) -> int | None:
    return None if side is None else -side
