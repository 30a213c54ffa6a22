"""Mutants that one rank cannot show: statistics of a slice, collectives not joined, cuts at the wrong place."""

from __future__ import annotations

from functools import partial

from verification.mutants.mutant import Mutant

_COLOCATED = partial(Mutant, file="relax/backends/megatron/advantages.py")
_SEGMENTS = partial(Mutant, file="relax/algorithms/exact/segments.py")
_ESTIMATES = partial(Mutant, file="relax/algorithms/advantages.py")
_LOSS = partial(Mutant, file="relax/backends/megatron/loss.py", ranks=("policy.loss/grpo/logits-*@cp2*",))

IN_RANKS: tuple[Mutant, ...] = (
    _COLOCATED(
        name="tokens-normalized-locally",
        old="process_group=ranks.data_and_context",
        new="process_group=None",
        reason="mean and variance of this rank's tokens, not of the batch's",
        ranks=("advantage.estimate/grpo/*@dp2*normalized", "advantage.estimate/reinforce_plus_plus/field-e*@*"),
    ),
    _COLOCATED(
        name="tokens-normalized-without-context",
        old="process_group=ranks.data_and_context",
        new="process_group=ranks.data",
        reason="each context-parallel slice normalised on its own",
        ranks=("advantage.estimate/reinforce_plus_plus/*@cp2",),
    ),
    _COLOCATED(
        name="rewards-whitened-locally",
        old="process_group=ranks.data, **given",
        new="process_group=None, **given",
        reason="GDPO whitens this rank's samples, not the optimizer batch",
        ranks=("advantage.estimate/gdpo/*-two@d*",),
    ),
    _COLOCATED(
        name="rewards-whitened-with-context",
        old="process_group=ranks.data, **given",
        new="process_group=ranks.data_and_context, **given",
        reason="a sample has a vote for each context-parallel rank that holds a part of it",
        ranks=("advantage.estimate/gdpo/*-two@d*",),
    ),
    _SEGMENTS(
        name="segments-merged-over-ranks",
        old="    held = np.arange(payload.shape[1])",
        new="    if len(shards) > 1:\n        sizes, n_segments = sizes.sum(axis=1, keepdims=True), 1\n"
        "    held = np.arange(payload.shape[1])",
        reason="the optimizer batches of a rollout whitened as one, on several ranks alone",
        ranks=("advantage.estimate/gdpo/plan-*@dp2",),
    ),
    _COLOCATED(
        name="raise-before-the-first-collective",
        old="    with failing_together(ranks.stage):\n        kl, given",
        new="    if True:\n        kl, given",
        reason="a rank that cannot prepare its part raises alone, and the others wait for it",
        ranks=("advantage.estimate/*/field-hidden-origin*@dp2",),
    ),
    _COLOCATED(
        name="mask-not-cut",
        old="own_masks = None if own_masks is None else context.cut(own_masks)",
        new="own_masks = None if own_masks is None else [\n"
        "            mask[: len(own)] for mask, own in zip(own_masks, kl, strict=True)\n        ]",
        reason="the first tokens of the whole mask, not those of this rank",
        ranks=("advantage.estimate/reinforce_plus_plus/mask-*@cp2",),
    ),
    _COLOCATED(
        name="unpadded-offsets",
        old='optional = ("padded_total_lengths", "loss_masks", "values", "mini_batch_sizes", "mini_batch_ids")',
        new='rollout_data = {**rollout_data, "padded_total_lengths": None}\n'
        '    optional = ("padded_total_lengths", "loss_masks", "values", "mini_batch_sizes", "mini_batch_ids")',
        reason="sequences cut at their own lengths, though they were padded before the cut",
        ranks=("advantage.estimate/reinforce_plus_plus/*@cp2+padded",),
    ),
    _ESTIMATES(
        name="reward-on-two-ranks",
        old="    kl, values = context.gather_each(batch.kl, require_values(args, batch.values))",
        new="    own = [tokens.clone() for tokens in batch.kl]\n"
        "    for tokens, reward in zip(own, batch.rewards, strict=True):\n"
        "        if getattr(context, 'rank', 0) == 1 and len(tokens):\n"
        "            tokens[-1] -= reward / args.kl_coef\n"
        "    kl, values = context.gather_each(own, require_values(args, batch.values))",
        reason="context-parallel rank 1 adds the reward to its last token too",
        ranks=("advantage.estimate/ppo/*-kl0.1@cp2*",),
    ),
    _LOSS(
        name="loss-mask-not-cut",
        old="own_masks = [len(tokens) for tokens in log_probs], context.cut(masks)",
        new="own_masks = [len(tokens) for tokens in log_probs], [\n"
        "        mask[: len(tokens)] for mask, tokens in zip(masks, log_probs, strict=True)\n    ]",
        reason="the first tokens of the whole mask, not those of this rank",
    ),
    _LOSS(
        name="loss-by-own-slice",
        old="full_loss_masks=masks)",
        new="full_loss_masks=own_masks)",
        reason="a response's mean divided by the tokens of this rank",
    ),
    _LOSS(
        name="loss-unpadded-offsets",
        file="relax/backends/megatron/responses.py",
        old='padded = batch.get("padded_total_lengths")',
        new="padded = None",
        reason="logits cut at unpadded offsets",
    ),
    _LOSS(
        name="loss-disconnected",
        old="    if not log_probs:\n        loss = loss + logits[..., :0].sum()\n",
        new="",
        reason="a rank without a sample stays away from the backward pass",
        ranks=("policy.loss/*/logits-*@dp2",),
    ),
)
