"""The bound of every formula, in ulps of the scale that the oracle states with each element, and its reason.

The one table. ``seen``: the largest distance of the live code and the frozen copies over the corpus and tens of
thousands of random cases (``python -m tests.verification.oracle_search SEED ROUNDS`` finds it anew). The bound leaves
about twice that, for platforms that sum in another order or whose exp is off by an ulp more; where the number of
roundings gives a proof, the bound is the proof's: a rounding is off by at most 2^-24 of its result, and an ulp of a
number is at least 2^-24 of it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bound:
    """How far a float32 result may be from the real number, why, and the largest distance that was seen."""

    ulps: float
    seen: float
    reason: str


_NEAREST = "correctly rounded: the float32 nearest the real number, ties to even"
_ONE_ROUNDING = "a single rounding of exact operands, hence the nearest float32"
_GIVEN = "passed on as it is, nothing is computed"
_RATIO = "log-ratio, exp (an ulp) and the products round once each; the scale holds ratio (1 + |log-ratio|)"
_SUMMED = "as for a token, and the masked mean that is the log-ratio adds the roundings of its sum"
_POWERS = "one sum of all exponentials, whose roundings agree where a dominant term is among the first"
_WEIGHTED = "; the off-policy weight adds its own log-ratio, exp and product"

BOUNDS: dict[str, Bound] = {
    # Reward stage. Scale of the float32 scores: the group's largest magnitude, over std + eps where divided.
    "reward.as_given": Bound(0.0, 0.0, _GIVEN),
    "reward.correctly_rounded": Bound(0.5, 0.5, _NEAREST),
    "reward.mean": Bound(
        4.0, 2.0, "the mean of a group carries the roundings of its sum, in ulps of the largest reward"
    ),
    "reward.mean_std": Bound(4.0, 2.0, "the error of the mean over std + eps; the std does not feel a shift"),
    "reward.weighted_sum": Bound(4.0, 1.5, "a product and a sum in float64 for each of a few components"),
    "reward.signal": Bound(0.0, 0.0, "a decision on correctly rounded numbers or on the float32 of what is given"),
    # KL. Scale: the value; for the exponential kinds (exp(e) + 1) (1 + |e|), since e is rounded before exp.
    "kl.none": Bound(0.5, 0.0, "zeros, and +0: nothing is computed"),
    "kl.k1": Bound(0.5, 0.5, _ONE_ROUNDING),
    "kl.k1.weighted": Bound(2.0, 1.5, "proven: two roundings of at most an ulp each"),
    "kl.k2": Bound(3.0, 1.9, "proven: the rounded difference enters twice, and the square rounds"),
    "kl.k2.weighted": Bound(4.0, 3.2, "proven: as k2, and the product with the importance ratio"),
    "kl.k3": Bound(2.0, 1.1, "difference, exp (an ulp) and two subtractions, each within the scale's terms"),
    "kl.k3.weighted": Bound(3.0, 1.5, "as k3, and the product with the importance ratio"),
    "kl.low_var_kl": Bound(2.0, 1.1, "as k3; the clamp brings no error and cuts it off where it acts"),
    "kl.low_var_kl.weighted": Bound(3.0, 1.6, "as k3, the product with the importance ratio, then the clamp"),
    # Advantages. Scale of the recurrences: the running sum of the magnitudes that were rounded, decayed alike.
    "advantage.as_given": Bound(0.0, 0.0, _GIVEN),
    "advantage.broadcast": Bound(0.5, 0.5, "the float32 of the score, hence the nearest"),
    "advantage.masked_broadcast": Bound(0.5, 0.5, _ONE_ROUNDING),
    "advantage.whitened_broadcast": Bound(0.5, 0.5, _NEAREST),
    "advantage.discounted_returns": Bound(
        1.0, 0.7, "proven: each rounding is half an ulp of its result, and the scale sums those"
    ),
    "advantage.gae": Bound(
        24.0, 8.7, "products of 128 terms may round in one direction where all are alike; powers of w add an ulp"
    ),
    # Token normalisation. Scale: (|a| + mean |a|) / root, and the result times the condition of the variance.
    "advantage.whiten": Bound(
        8.0, 3.0, "three sums over all tokens; the one-pass variance by its condition, to first order"
    ),
    "advantage.token_global": Bound(
        12.0, 4.6, "two passes; the roundings of the sums over all tokens enter through the mean"
    ),
    # Policy objectives. Scale: |A| ratio (1 + |log-ratio|), the clipped product itself where the clip acts.
    "policy.token log_ratio": Bound(0.5, 0.5, _ONE_ROUNDING),
    "policy.sequence log_ratio": Bound(4.0, 1.7, "a masked sum and a division, in ulps of the mean magnitude"),
    "policy.decision": Bound(0.0, 0.0, "decided, or left open within the rounding of its own inputs"),
    "policy.ppo_clip": Bound(3.0, 1.5, _RATIO),
    "policy.ppo_clip weighted": Bound(5.0, 2.5, _RATIO + _WEIGHTED),
    "policy.ppo_clip.gradient": Bound(3.0, 1.9, _RATIO),
    "policy.ppo_clip.gradient weighted": Bound(5.0, 2.5, _RATIO + _WEIGHTED),
    "policy.sequence ppo_clip": Bound(4.0, 1.5, _SUMMED),
    "policy.sequence ppo_clip weighted": Bound(6.0, 2.5, _SUMMED + _WEIGHTED),
    "policy.sequence ppo_clip.gradient": Bound(8.0, 3.2, _SUMMED + ", and the gradient sums over tokens once more"),
    "policy.sequence ppo_clip.gradient weighted": Bound(10.0, 3.0, _SUMMED + _WEIGHTED),
    "policy.soft_gate": Bound(4.0, 2.3, _RATIO + ", and what the gate makes of its argument's error; 4 / tau rounds"),
    "policy.soft_gate weighted": Bound(6.0, 2.5, _RATIO + _WEIGHTED),
    "policy.soft_gate.gradient": Bound(4.0, 1.7, _RATIO + ", and 1 - g is off by an ulp of g"),
    "policy.soft_gate.gradient weighted": Bound(6.0, 2.2, _RATIO + _WEIGHTED),
    "policy.clipped_is": Bound(4.0, 2.2, _RATIO + "; one product more, with the log-prob"),
    "policy.clipped_is weighted": Bound(6.0, 3.0, _RATIO + _WEIGHTED),
    "policy.clipped_is.gradient": Bound(3.0, 1.5, _RATIO),
    "policy.clipped_is.gradient weighted": Bound(5.0, 2.1, _RATIO + _WEIGHTED),
    "policy.reinforce": Bound(0.5, 0.5, _ONE_ROUNDING),
    "policy.reinforce weighted": Bound(3.0, 1.9, "one product" + _WEIGHTED),
    "policy.reinforce.gradient": Bound(0.0, 0.0, "the negated advantage, as it is"),
    "policy.reinforce.gradient weighted": Bound(3.0, 1.6, "no rounding of its own" + _WEIGHTED),
    # Reducers. Scale: the sum of the terms' magnitudes; of a gradient the value.
    "reduce.sample_mean": Bound(
        8.0, 4.2, "sums within and over responses, whose roundings agree where all terms are alike"
    ),
    "reduce.sample_mean.gradient": Bound(4.0, 2.4, "the mask's sum, a reciprocal and a product round once each"),
    "reduce.token_sum": Bound(8.0, 4.2, "one sum of all products, whose roundings agree where all terms are alike"),
    "reduce.token_sum.gradient": Bound(0.0, 0.0, "the mask as it is, nothing is computed"),
    # Log-probs. Scale: 1 + log(s) + E|x| for the logarithm of the sum, and what stands beside it (see log_probs.py).
    "logprob.log_prob": Bound(8.0, 3.2, _POWERS),
    "logprob.entropy": Bound(8.0, 3.5, _POWERS + "; the entropy adds the sum of their products with the logits"),
    "logprob.log_prob.gradient": Bound(8.0, 3.0, _POWERS + "; a probability is off by as much"),
    "logprob.log_prob.gradient narrowed": Bound(4.0, 1.9, _POWERS + "; then one rounding to the logits' dtype"),
    "logprob.entropy.gradient": Bound(4.0, 1.8, _POWERS + "; products of what is off by as much"),
    "logprob.entropy.gradient narrowed": Bound(1.5, 0.7, _POWERS + "; then one rounding to the logits' dtype"),
}
