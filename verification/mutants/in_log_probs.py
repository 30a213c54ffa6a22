"""Mutants of log-probs and entropy: shift, sums, shards of the vocabulary, gradients."""

from __future__ import annotations

from functools import partial

from verification.mutants.mutant import Mutant

_FORMULA = partial(Mutant, file="relax/algorithms/formulas/log_probs.py")
_CASES = partial(_FORMULA, checks=("logprob.entropy/grpo/*",))
_RANKS = partial(_FORMULA, tests=("tests/relax/test_log_probs.py",))

IN_LOG_PROBS: tuple[Mutant, ...] = (
    _CASES(
        name="log-prob-unshifted",
        old="shifted.sub_(largest).gather(1, ids)",
        new="shifted.gather(1, ids)",
        reason="the maximum is forgotten: exp overflows",
    ),
    _CASES(
        name="log-prob-shifted-by-minimum",
        old="shifted.amax(dim=1, keepdim=True)",
        new="shifted.amin(dim=1, keepdim=True)",
        reason="min for max: exp overflows",
    ),
    _CASES(
        name="log-prob-of-another-row",
        old=".gather(1, ids).where(held, 0)",
        new=".gather(1, ids.roll(1, 0)).where(held, 0)",
        reason="each row gives the logit of the token before",
    ),
    _CASES(
        name="log-prob-epsilon",
        old="log_total = total.log()",
        new="log_total = (total + 1e-6).log()",
        reason="an epsilon inside the logarithm",
    ),
    _CASES(
        name="log-prob-base-2",
        old="powers = shifted.exp()",
        new="powers = shifted.exp2()",
        reason="powers of 2 under a natural logarithm",
    ),
    _CASES(
        name="log-prob-half-accumulated",
        old="torch.promote_types(logits.dtype, torch.float32)",
        new="logits.dtype",
        reason="half precision summed in half precision",
        checks=("logprob.entropy/grpo/*float16-*",),
    ),
    _CASES(
        name="entropy-sign",
        old="entropy = log_total - products / total",
        new="entropy = log_total + products / total",
        reason="the mean logit added",
    ),
    _CASES(
        name="entropy-not-normalised",
        old="entropy = log_total - products / total",
        new="entropy = log_total - products",
        reason="a sum of powers for a mean under the distribution",
    ),
    _CASES(
        name="entropy-unshifted",
        old="products = shifted.clamp_(min=_VANISHED)",
        new="products = shifted.add_(largest).clamp_(min=_VANISHED)",
        reason="the logits themselves in the mean, their maximum in the logarithm",
    ),
    _CASES(
        name="entropy-of-masked-entries",
        old="products = shifted.clamp_(min=_VANISHED).mul_(powers)",
        new="products = shifted.mul_(powers)",
        reason="0 times -inf is NaN",
        checks=("logprob.entropy/grpo/masked-*",),
    ),
    _CASES(
        name="log-prob-tails-cut",
        old="_VANISHED = -1000.0",
        new="_VANISHED = -20.0",
        reason="entries that are merely unlikely are given probability 2e-9",
    ),
    _CASES(
        name="log-prob-first-entry",
        old="tokens.long()[:, None] - collective.rank * logits.shape[1]",
        new="tokens.long()[:, None] - collective.rank * logits.shape[1] - 1",
        reason="the shard begins one entry too late",
    ),
    _CASES(
        name="log-prob-detached",
        old="_LogProbsAndEntropy.apply(logits, tokens, collective)",
        new="_LogProbsAndEntropy.apply(logits.detach(), tokens, collective)",
        reason="a detach too many: the value stays, the gradient is gone",
    ),
    _CASES(
        name="log-prob-gradient-sign",
        old="gradient.neg_().add_(0)",
        new="gradient.add_(0)",
        reason="the softmax added to the one-hot vector",
    ),
    _CASES(
        name="log-prob-gradient-without-token",
        old="gradient.gather(1, ids) + of_log_probs.where(held, 0)",
        new="gradient.gather(1, ids)",
        reason="the one-hot vector forgotten",
    ),
    _CASES(
        name="entropy-gradient-zeros-by-token",
        old="gradient.neg_().add_(0)",
        new="gradient.neg_()",
        reason="the sign of a zero depends on which entry is the token",
    ),
    _CASES(
        name="log-prob-gradient-unshifted",
        old="_widened(logits).sub_(largest).sub_(log_total)",
        new="_widened(logits).sub_(log_total)",
        reason="the maximum is forgotten in the backward pass alone",
    ),
    _CASES(
        name="entropy-gradient-uncentred",
        old="log_p.add_(entropy).mul_(of_entropy)",
        new="log_p.add_(1).mul_(of_entropy)",
        reason="the derivative of -p log p alone, as if p were free",
    ),
    _CASES(
        name="entropy-gradient-of-log-prob",
        old=".mul_(of_entropy).add_(of_log_probs)",
        new=".mul_(of_log_probs).add_(of_entropy)",
        reason="the two flows exchanged",
    ),
    _CASES(
        name="negative-ids-accepted",
        old="outside = (tokens < 0) | (tokens >= size)",
        new="outside = tokens >= size",
        reason="an id that no shard holds counts as a logit at the maximum",
    ),
    _RANKS(
        name="log-prob-local-maximum",
        old="collective.max(shifted.amax(dim=1, keepdim=True))",
        new="shifted.amax(dim=1, keepdim=True)",
        reason="each shard shifted by its own maximum",
    ),
    _RANKS(
        name="log-prob-local-sum",
        old="collective.sum(torch.stack([total, target, products]))",
        new="torch.stack([total, target, products])",
        reason="each shard a distribution of its own",
    ),
    _RANKS(
        name="log-prob-target-on-every-shard",
        old=".gather(1, ids).where(held, 0)",
        new=".gather(1, ids)",
        reason="shards without the token add their first entry",
    ),
    _RANKS(
        name="log-prob-gradient-on-every-shard",
        old="of_log_probs.where(held, 0)",
        new="of_log_probs",
        reason="shards without the token take the one-hot vector too",
    ),
    _RANKS(
        name="log-prob-shard-without-end",
        old="held = (ids >= 0) & (ids < logits.shape[1])",
        new="held = ids >= 0",
        reason="ids behind the shard are looked up in it",
    ),
    _RANKS(
        name="ids-of-one-shard",
        old="size = logits.shape[1] * ranks",
        new="size = logits.shape[1]",
        reason="ids of the other shards are refused",
    ),
)
