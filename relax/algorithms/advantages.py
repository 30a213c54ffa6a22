"""The advantage stage: from rewards and KL to one advantage and one return a token, by the algorithm's registry entry.

Every entry of `ADVANTAGE_FNS` takes `(args, batch)` and gives `(advantages, returns)`, two lists of `[R_i]` tensors. No
input is changed.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from relax.algorithms.collective import collective_for
from relax.algorithms.context import Context, context_of
from relax.algorithms.exact import whiten_segments
from relax.algorithms.exact.subnormals import subnormals_kept
from relax.algorithms.formulas.broadcast import broadcast, masked_broadcast
from relax.algorithms.formulas.gae import gae
from relax.algorithms.formulas.reinforce import discounted_returns
from relax.algorithms.formulas.responses import masks_or_ones
from relax.algorithms.formulas.token_normalization import token_global, whiten
from relax.algorithms.spec import get_algorithm

AdvantagesAndReturns = tuple[list[torch.Tensor], list[torch.Tensor]]


@dataclass(frozen=True)
class AdvantageBatch:
    """What the advantage formulas may read of a batch; the arguments of `compute_advantages_and_returns`."""

    rewards: Sequence[float] | torch.Tensor
    kl: Sequence[torch.Tensor]
    loss_masks: Sequence[torch.Tensor] | None = None
    response_lengths: Sequence[int] | None = None
    total_lengths: Sequence[int] | None = None
    values: Sequence[torch.Tensor] | None = None
    padded_total_lengths: Sequence[int] | None = None
    process_group: Any = None
    mini_batch_sizes: Sequence[int] | None = None
    mini_batch_ids: Sequence[str] | None = None


def _broadcast(args: Namespace, batch: AdvantageBatch) -> AdvantagesAndReturns:
    return broadcast(batch.rewards, batch.kl)


def _masked_broadcast(args: Namespace, batch: AdvantageBatch) -> AdvantagesAndReturns:
    masks = None if batch.loss_masks is None else _context(args, batch).cut(batch.loss_masks)
    return masked_broadcast(batch.rewards, batch.kl, masks)


def _discounted_returns(args: Namespace, batch: AdvantageBatch) -> AdvantagesAndReturns:
    context = _context(args, batch)
    (kl,) = context.gather_each(batch.kl)
    _, returns = discounted_returns(batch.rewards, kl, batch.loss_masks, kl_coef=args.kl_coef, gamma=args.gamma)
    returns = context.cut(returns)
    return list(returns), returns


def _gae(args: Namespace, batch: AdvantageBatch) -> AdvantagesAndReturns:
    context = _context(args, batch)
    kl, values = context.gather_each(batch.kl, require_values(args, batch.values))
    lengths = batch.response_lengths
    if lengths is None:
        lengths = [len(tokens) for tokens in values]
    advantages, returns = gae(
        batch.rewards, kl, values, lengths, kl_coef=args.kl_coef, gamma=args.gamma, lambd=args.lambd
    )
    return context.cut(advantages), context.cut(returns)


def require_values(args: Namespace, values: Sequence[torch.Tensor] | None) -> Sequence[torch.Tensor]:
    """The critic's values; ValueError where there are none."""
    if values is None:
        raise ValueError(
            f"{args.advantage_estimator} needs the critic's values, one list entry a response: values is None"
        )
    return values


def _context(args: Namespace, batch: AdvantageBatch) -> Context:
    return context_of(
        args,
        total_lengths=batch.total_lengths,
        response_lengths=batch.response_lengths,
        padded_total_lengths=batch.padded_total_lengths,
    )


@subnormals_kept()
def _whitened_broadcast(args: Namespace, batch: AdvantageBatch) -> AdvantagesAndReturns:
    # The whitening comes before any check of this rank's lists: its ranks must meet before one of them may complain.
    scores = whiten_segments(
        _float32(batch.rewards),
        batch.mini_batch_sizes,
        collective=collective_for(batch.process_group),
        batch_ids=batch.mini_batch_ids,
        responses=len(batch.kl),
    )
    return broadcast(scores, batch.kl)


ADVANTAGE_FNS: dict[str, Callable[[Namespace, AdvantageBatch], AdvantagesAndReturns]] = {
    "broadcast": _broadcast,
    "masked_broadcast": _masked_broadcast,
    "discounted_returns": _discounted_returns,
    "gae": _gae,
    "whitened_broadcast": _whitened_broadcast,
}

TOKEN_NORMALIZATIONS = {"whiten": whiten, "token_global": token_global}


def compute_advantages_and_returns(
    args: Namespace,
    *,
    rewards: Sequence[float] | torch.Tensor,
    kl: Sequence[torch.Tensor],
    loss_masks: Sequence[torch.Tensor] | None = None,
    response_lengths: Sequence[int] | None = None,
    total_lengths: Sequence[int] | None = None,
    values: Sequence[torch.Tensor] | None = None,
    padded_total_lengths: Sequence[int] | None = None,
    process_group: Any = None,
    mini_batch_sizes: Sequence[int] | None = None,
    mini_batch_ids: Sequence[str] | None = None,
) -> AdvantagesAndReturns:
    """Advantages and returns of each response, float32 ``[R_i]``, by the algorithm of ``args.advantage_estimator``.

    ``kl`` gives the shapes (`kl_per_response`); ``loss_masks`` None is every token; ``values`` are the critic's;
    ``mini_batch_sizes`` counts this rank's samples in each optimizer batch and is required where rewards are whitened
    over it, across ``process_group``; with ``mini_batch_ids``, one text a batch, it is checked that batch k is the same
    on every rank, which else the maker of the plan guarantees. Raises ValueError naming both lengths where lists
    disagree, and what each formula refuses.

    Under context parallelism ``kl``, ``values`` and the results are this rank's part of each response, ``loss_masks``
    whole responses', and ``total_lengths`` (padded: ``padded_total_lengths``) say where responses are cut. What runs
    along a response is gathered first, so that it has the bits of one rank: the reward goes to the response's last
    token, whichever rank holds it.
    """
    batch = AdvantageBatch(
        rewards=rewards,
        kl=kl,
        loss_masks=loss_masks,
        response_lengths=response_lengths,
        total_lengths=total_lengths,
        values=values,
        padded_total_lengths=padded_total_lengths,
        process_group=process_group,
        mini_batch_sizes=mini_batch_sizes,
        mini_batch_ids=mini_batch_ids,
    )
    return ADVANTAGE_FNS[get_algorithm(args.advantage_estimator).advantage_fn](args, batch)


def normalize_advantages(
    args: Namespace,
    *,
    advantages: list[torch.Tensor],
    loss_masks: Sequence[torch.Tensor] | None,
    process_group: Any = None,
) -> list[torch.Tensor]:
    """Advantages normalised over all unmasked tokens of ``process_group``: ``[R_i]`` each, by the algorithm's
    registry entry.

    Without ``args.normalize_advantages`` the list that was given. ``process_group`` spans data and context
    parallelism; advantages and masks are this rank's tokens. Raises ValueError where no token of any rank is
    unmasked, and naming both shapes where a mask differs.
    """
    if not args.normalize_advantages:
        return advantages
    normalization = TOKEN_NORMALIZATIONS[get_algorithm(args.advantage_estimator).advantage_normalization]
    masks = masks_or_ones(loss_masks, advantages, "advantages")
    return normalization(advantages, masks, collective_for(process_group))


def _float32(rewards: Any) -> Any:
    if isinstance(rewards, torch.Tensor):
        return rewards
    try:
        return torch.as_tensor(rewards, dtype=torch.float32, device="cpu")
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return rewards  # what is wrong with them is said on every rank, after the first collective
