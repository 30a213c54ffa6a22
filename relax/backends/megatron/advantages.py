"""The colocated advantage path: advantages and returns of a rollout, written into it on the ranks that train on it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import MutableMapping
from typing import Any

import torch

from relax.algorithms import advantages as formulas
from relax.algorithms.formulas.kl import kl_of_batch
from relax.algorithms.formulas.responses import require_same_shapes
from relax.algorithms.spec import get_algorithm
from relax.backends.megatron.context_parallel import context_parallel
from relax.backends.megatron.parallel import failing_together, parallel
from relax.core.trace import keep


def compute_advantages_and_returns(args: Namespace, rollout_data: MutableMapping[str, Any]) -> None:
    """Writes ``kl``, ``advantages`` and ``returns`` into ``rollout_data``, this rank's part of each response.

    Reads ``total_lengths``, ``response_lengths`` and ``padded_total_lengths`` (ints, or absent), ``rewards`` (floats),
    ``loss_masks`` (whole responses' ``[R_i]``), ``mini_batch_sizes`` (how many of this data-parallel rank's samples
    belong to each optimizer batch, with ``mini_batch_ids`` to check that they are the same on every rank), and this
    rank's part of each response, where there, of ``log_probs``, ``ref_log_probs``, ``rollout_log_probs`` and
    ``values``. ``keys`` may name the rows, for a trace. On any but the last pipeline stage it returns at once.

    Rewards are whitened over the data-parallel ranks, since context-parallel ones hold the same samples; tokens are
    normalised over the data- and context-parallel ranks, each with the masks of its own tokens. Whatever goes wrong on
    one rank, before the ranks meet for a statistic, is a `RankFailure` on every rank of the stage, by their numbers in
    ``Parallel.stage``, and nothing is written; alone a rank raises its own error.
    """
    ranks = parallel()
    if not ranks.is_last_pipeline_stage:
        return
    with failing_together(ranks.stage):
        kl, given, own_masks = _prepared(args, rollout_data)
    with failing_together(ranks.stage):
        advantages, returns = formulas.compute_advantages_and_returns(args, kl=kl, process_group=ranks.data, **given)
    rows, rank, size = rollout_data.get("keys"), ranks.data.rank, ranks.data.size
    results = {"advantages": advantages, "returns": returns}
    keep("advantage.estimate", args, {"kl": kl, **given}, results, rows=rows, rank=rank, ranks=size)
    tokens = {"advantages": advantages, "loss_masks": own_masks}
    advantages = formulas.normalize_advantages(
        args, advantages=advantages, loss_masks=own_masks, process_group=ranks.data_and_context
    )
    if args.normalize_advantages:
        keep("advantage.normalize", args, tokens, {"advantages": advantages}, rows=rows, rank=rank, ranks=size)
    rollout_data.update(kl=kl, advantages=advantages, returns=returns)


def _prepared(
    args: Namespace, rollout_data: MutableMapping[str, Any]
) -> tuple[list[torch.Tensor], dict[str, Any], list[torch.Tensor] | None]:
    """The KL, what else the formulas are given, and the masks of this rank's tokens; what is wrong here is raised."""
    given = {name: rollout_data[name] for name in ("rewards", "response_lengths", "total_lengths")}
    optional = ("padded_total_lengths", "loss_masks", "values", "mini_batch_sizes", "mini_batch_ids")
    given |= {name: rollout_data.get(name) for name in optional}
    kl = kl_of_batch(args, rollout_data)
    if kl is None:
        if given["response_lengths"]:
            raise ValueError(
                f"rollout_data holds {len(given['response_lengths'])} responses and neither log_probs, "
                "rollout_log_probs nor values: one of them must have been computed before the advantages"
            )
        kl, given["values"] = [], []  # nothing to do, and peers to join
    context = context_parallel(args, given["total_lengths"], given["response_lengths"], given["padded_total_lengths"])
    own_masks = given["loss_masks"]
    # Below, what would be refused while other ranks wait for this one in a collective.
    if context.size > 1:
        context.require_parts(kl=kl, values=given["values"])
        own_masks = None if own_masks is None else context.cut(own_masks)
        if get_algorithm(args.advantage_estimator).needs_critic:
            formulas.require_values(args, given["values"])
    if args.normalize_advantages:
        require_same_shapes(kl=kl, loss_masks=own_masks)
    return kl, given, own_masks
