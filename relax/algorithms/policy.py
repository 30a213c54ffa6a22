"""The policy stage: from log-probs and advantages to one loss a token, by the algorithm's registry entry.

Every entry of `POLICY_LOSS_FNS` takes `(args, *, log_probs, ppo_kl, advantages)`, each `[T]`, and gives `(loss,
clipfrac)`, `[T]`, not reduced.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from relax.algorithms.context import Context, context_of
from relax.algorithms.formulas.off_policy import OFF_POLICY_WEIGHTS
from relax.algorithms.formulas.ratio import clipped_is, ppo_clip, reinforce, soft_gate
from relax.algorithms.formulas.responses import concatenate, masks_or_ones, require_same_shapes
from relax.algorithms.formulas.sequence import opsm_mask, sequence_level_kl
from relax.algorithms.spec import get_algorithm

LossAndClipfrac = tuple[torch.Tensor, torch.Tensor]


def _ppo_clip(
    args: Namespace, *, log_probs: torch.Tensor, ppo_kl: torch.Tensor, advantages: torch.Tensor
) -> LossAndClipfrac:
    return ppo_clip(
        ppo_kl, advantages, eps_clip=args.eps_clip, eps_clip_high=args.eps_clip_high, eps_clip_c=args.eps_clip_c
    )


def _soft_gate(
    args: Namespace, *, log_probs: torch.Tensor, ppo_kl: torch.Tensor, advantages: torch.Tensor
) -> LossAndClipfrac:
    return soft_gate(ppo_kl, advantages, tau_pos=args.sapo_tau_pos, tau_neg=args.sapo_tau_neg)


def _clipped_is(
    args: Namespace, *, log_probs: torch.Tensor, ppo_kl: torch.Tensor, advantages: torch.Tensor
) -> LossAndClipfrac:
    return clipped_is(log_probs, ppo_kl, advantages, eps_clip=args.eps_clip, eps_clip_high=args.eps_clip_high)


def _reinforce(
    args: Namespace, *, log_probs: torch.Tensor, ppo_kl: torch.Tensor, advantages: torch.Tensor
) -> LossAndClipfrac:
    return reinforce(log_probs, advantages)


POLICY_LOSS_FNS: dict[str, Callable[..., LossAndClipfrac]] = {
    "ppo_clip": _ppo_clip,
    "soft_gate": _soft_gate,
    "clipped_is": _clipped_is,
    "reinforce": _reinforce,
}


def compute_policy_loss_for(
    args: Namespace, *, log_probs: torch.Tensor, ppo_kl: torch.Tensor, advantages: torch.Tensor
) -> LossAndClipfrac:
    """``(loss, clipfrac)`` of each token, ``[T]`` and not reduced, by the algorithm of ``args.advantage_estimator``.

    ``ppo_kl`` is old minus new log-prob, of the token or of its response, as the registry entry's ``kl_level`` says.
    """
    objective = POLICY_LOSS_FNS[get_algorithm(args.advantage_estimator).policy_loss_fn]
    return objective(args, log_probs=log_probs, ppo_kl=ppo_kl, advantages=advantages)


@dataclass(frozen=True)
class TokenLosses:
    """What the objective makes of this rank's tokens: ``[T]`` each, responses joined in their order, not reduced."""

    loss: torch.Tensor
    clipfrac: torch.Tensor
    ppo_kl: torch.Tensor
    opsm_mask: torch.Tensor | None = None
    off_policy_weights: torch.Tensor | None = None


def policy_objective(
    args: Namespace,
    *,
    old_log_probs: Sequence[torch.Tensor],
    log_probs: Sequence[torch.Tensor],
    advantages: Sequence[torch.Tensor],
    loss_masks: Sequence[torch.Tensor] | None,
    rollout_log_probs: Sequence[torch.Tensor] | None = None,
    total_lengths: Sequence[int] | None = None,
    response_lengths: Sequence[int] | None = None,
    padded_total_lengths: Sequence[int] | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``(loss, clipfrac, ppo_kl)`` of a batch, ``[T]`` each, as `token_losses` of the context of these lengths."""
    context = context_of(
        args,
        total_lengths=total_lengths,
        response_lengths=response_lengths,
        padded_total_lengths=padded_total_lengths,
    )
    tokens = token_losses(
        args,
        context,
        old_log_probs=old_log_probs,
        log_probs=log_probs,
        advantages=advantages,
        loss_masks=loss_masks,
        rollout_log_probs=rollout_log_probs,
    )
    return tokens.loss, tokens.clipfrac, tokens.ppo_kl


def token_losses(
    args: Namespace,
    context: Context,
    *,
    old_log_probs: Sequence[torch.Tensor],
    log_probs: Sequence[torch.Tensor],
    advantages: Sequence[torch.Tensor],
    loss_masks: Sequence[torch.Tensor] | None,
    rollout_log_probs: Sequence[torch.Tensor] | None = None,
) -> TokenLosses:
    """The objective, then the OPSM mask, then off-policy weights.

    Lists hold ``[R_i]`` a response, in the order in which ``T`` joins them; ``loss_masks`` None is every token and
    enters the statistics of a response alone, not the token losses. Mask and weights carry no gradient. Raises
    ValueError where lists or shapes disagree, and where ``args.use_tis`` is set without ``rollout_log_probs``.

    Under context parallelism the lists and ``T`` are this rank's tokens and ``loss_masks`` whole responses'. Means over
    a response are those of the whole: log-probs are gathered for them, in one collective and one more backwards.
    """
    require_same_shapes(
        log_probs=log_probs, old_log_probs=old_log_probs, advantages=advantages, rollout_log_probs=rollout_log_probs
    )
    spec = get_algorithm(args.advantage_estimator)
    whole_old, whole_new = old_log_probs, log_probs
    if spec.needs_full_log_probs or args.use_opsm:
        whole_old, whole_new = context.gather_each(old_log_probs, log_probs)
    elif loss_masks is not None:
        loss_masks = context.cut(loss_masks)
    masks = masks_or_ones(loss_masks, whole_new, "log_probs")
    old, new = concatenate(old_log_probs), concatenate(log_probs)  # [T]
    if spec.kl_level == "sequence":
        of_whole = sequence_level_kl(whole_old, whole_new, masks).split([len(tokens) for tokens in whole_new])
        ppo_kl = concatenate(context.cut(of_whole))
    else:
        ppo_kl = old - new
    loss, clipfrac = compute_policy_loss_for(args, log_probs=new, ppo_kl=ppo_kl, advantages=concatenate(advantages))
    kept = weights = None
    if args.use_opsm:
        kept = opsm_mask(whole_old, whole_new, advantages, masks, args.opsm_delta)
        loss = loss * kept
    if args.use_tis:
        weights = _off_policy_weights(args, old, rollout_log_probs)
        loss = loss * weights
    return TokenLosses(loss, clipfrac, ppo_kl, kept, weights)


def _off_policy_weights(
    args: Namespace, old: torch.Tensor, rollout_log_probs: Sequence[torch.Tensor] | None
) -> torch.Tensor:
    if rollout_log_probs is None:
        raise ValueError("use_tis is set and rollout_log_probs is None: record them in the rollout, or drop --use-tis")
    if args.tis_mode not in OFF_POLICY_WEIGHTS:
        raise ValueError(f"tis_mode {args.tis_mode!r} is not one of {', '.join(OFF_POLICY_WEIGHTS)} (--tis-mode)")
    weigh = OFF_POLICY_WEIGHTS[args.tis_mode]
    return weigh(old, concatenate(rollout_log_probs), low=args.tis_clip_low, high=args.tis_clip)
