"""Mutants of what sums over tokens: normalisation of advantages, sequence means, reducers."""

from __future__ import annotations

from functools import partial

from verification.mutants.mutant import Mutant

_WHITEN = partial(
    Mutant, file="relax/algorithms/formulas/token_normalization.py", checks=("advantage.normalize/grpo/*",)
)
_GLOBAL = partial(_WHITEN, checks=("advantage.normalize/reinforce_plus_plus/*",))
_SEQUENCE = partial(Mutant, file="relax/algorithms/formulas/sequence.py", checks=("policy.loss/gspo/*",))
_MASKED_MEAN = partial(_SEQUENCE, old="return (values * mask).sum() / torch.clamp(mask.sum(), min=1)")
_REDUCE = partial(Mutant, file="relax/algorithms/formulas/reducers.py", checks=("loss.reduce/grpo/*",))

IN_TOKEN_STATISTICS: tuple[Mutant, ...] = (
    _WHITEN(
        name="whiten-population",
        old="variance = variance * (count / (count - 1))",
        new="variance = variance * 1",
        reason="n for n-1",
    ),
    _WHITEN(name="whiten-two-tokens", old="if count >= 2:", new="if count > 2:", reason="> for >="),
    _WHITEN(
        name="whiten-epsilon-outside-root",
        old="scale = torch.rsqrt(variance + EPSILON)",
        new="scale = 1 / (torch.sqrt(variance) + EPSILON)",
        reason="epsilon added to the std",
    ),
    _WHITEN(
        name="whiten-mask-forgotten-in-squares",
        old="(flat * flat * mask).sum()",
        new="(flat * flat).sum()",
        reason="masked tokens enter the variance",
    ),
    _WHITEN(
        name="whiten-mask-forgotten-in-count",
        old="(flat * flat * mask).sum(), mask.sum()]",
        new="(flat * flat * mask).sum(), torch.ones_like(mask).sum()]",
        reason="masked tokens are counted",
    ),
    _WHITEN(
        name="no-token-swallowed",
        old="if count == 0:",
        new="if count < 0:",
        reason="a batch without an unmasked token gives NaN, not an error",
    ),
    _WHITEN(
        name="whiten-local",
        old="total, total_of_squares, count = collective.sum(\n"
        "        torch.stack([(flat * mask).sum(), (flat * flat * mask).sum(), mask.sum()])\n    )",
        new="total, total_of_squares, count = (\n"
        "        torch.stack([(flat * mask).sum(), (flat * flat * mask).sum(), mask.sum()])\n    )",
        reason="this rank's tokens alone",
        checks=(),
        tests=("tests/relax/test_token_normalization.py",),
    ),
    _GLOBAL(
        name="token-global-unbiased",
        old="collective.sum((centred * centred).sum()) / count",
        new="collective.sum((centred * centred).sum()) / (count - 1)",
        reason="n-1 for n",
    ),
    _GLOBAL(
        name="token-global-epsilon-added",
        old="torch.clamp(variance, min=EPSILON)",
        new="variance + EPSILON",
        reason="the floor of the variance added to it",
    ),
    _GLOBAL(
        name="token-global-centred-without-mask",
        old="centred = (flat - mean) * mask",
        new="centred = flat - mean",
        reason="masked tokens enter the variance",
    ),
    _MASKED_MEAN(
        name="sequence-mask-forgotten-above",
        new="return values.sum() / torch.clamp(mask.sum(), min=1)",
        reason="masked tokens enter the response's sum",
    ),
    _MASKED_MEAN(
        name="sequence-mask-forgotten-below",
        new="return (values * mask).sum() / max(mask.numel(), 1)",
        reason="masked tokens are counted",
    ),
    _MASKED_MEAN(
        name="sequence-no-token",
        new="return (values * mask).sum() / mask.sum()",
        reason="a response masked throughout is divided by 0",
    ),
    _MASKED_MEAN(
        name="sequence-sum-for-mean",
        new="return (values * mask).sum()",
        reason="the ratio of the whole response, not normalised by its length",
    ),
    _REDUCE(
        name="reduce-mask-forgotten-above",
        old="(tokens * mask).sum() / torch.clamp(full.sum(), min=1)",
        new="tokens.sum() / torch.clamp(full.sum(), min=1)",
        reason="masked tokens enter the loss",
    ),
    _REDUCE(
        name="reduce-mask-forgotten-below",
        old="(tokens * mask).sum() / torch.clamp(full.sum(), min=1)",
        new="(tokens * mask).sum() / max(full.numel(), 1)",
        reason="masked tokens are counted",
    ),
    _REDUCE(
        name="reduce-by-own-slice",
        old="(tokens * mask).sum() / torch.clamp(full.sum(), min=1)",
        new="(tokens * mask).sum() / torch.clamp(mask.sum(), min=1)",
        reason="divided by this rank's slice, not by the whole response",
    ),
    _REDUCE(
        name="reduce-mean-for-sum",
        old="if args.calculate_per_token_loss:",
        new="if not args.calculate_per_token_loss:",
        reason="the two reducers exchanged",
    ),
)
