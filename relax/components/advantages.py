"""The fully asynchronous advantage path: the columns that a batch of whole responses gains, as a pure function."""

from __future__ import annotations

import copy
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import torch

from relax.algorithms.advantages import compute_advantages_and_returns
from relax.algorithms.formulas.kl import kl_of_batch
from relax.core.trace import keep


def advantages_of_batch(args: Namespace, batch: Mapping[str, Any]) -> dict[str, list[torch.Tensor]]:
    """The columns ``kl``, ``advantages`` and ``returns`` of ``batch``, ``[R_i]`` a response, with the bits of the
    colocated path before it normalises tokens; no column where ``batch`` has neither ``log_probs``,
    ``rollout_log_probs`` nor ``values``.

    Reads ``rewards`` (floats), ``response_lengths``, ``loss_masks`` and ``ref_log_probs`` beside them; all but the
    rewards may be absent. Responses are whole, however the actor's ranks cut them, and padded lengths mean nothing
    here. Tokens are not normalised: their mean would be that of a part of the batch. Where rewards are whitened, the
    batch must be one whole optimizer batch.
    """
    kl = kl_of_batch(args, batch)
    if kl is None:
        return {}
    whole = copy.copy(args)
    whole.context_parallel_size = 1
    given = {
        "rewards": batch["rewards"],
        "kl": kl,
        "loss_masks": batch.get("loss_masks"),
        "response_lengths": batch.get("response_lengths"),
        "values": batch.get("values"),
        "mini_batch_sizes": [len(kl)],
    }
    advantages, returns = compute_advantages_and_returns(whole, **given)
    keep("advantage.estimate", whole, given, {"advantages": advantages, "returns": returns})
    return {"kl": kl, "advantages": advantages, "returns": returns}
