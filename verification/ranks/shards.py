"""What each rank is given of a rank case: a case of its own, with its samples, its tokens and its entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from verification.cases.case import Case
from verification.ranks.cases import RankCase
from verification.ranks.layout import Layout
from verification.ranks.packing import pack
from verification.ranks.plans import Plan, rounded_up

FILL_LOGIT = 0.25  # of the prompt's rows
Inputs = dict[str, Any]


def shards(rank_case: RankCase) -> list[Case]:
    """One case a rank, in order of rank."""
    layout, case = rank_case.layout, rank_case.case
    options = {
        **case.options,
        "tensor_model_parallel_size": layout.tp,
        "context_parallel_size": layout.cp,
        "pipeline_model_parallel_size": layout.pp,
        "qkv_format": rank_case.qkv_format,
    }
    made = []
    for rank in range(layout.world):
        tp, cp, dp, _ = layout.coordinates(rank)
        inputs = PARTS[rank_case.program](rank_case, tp, cp, dp)
        made.append(replace(case, id=rank_case.id, inputs=inputs, options=options))
    return made


def _advantages(rank_case: RankCase, tp: int, cp: int, dp: int) -> Inputs:
    """Rollout data. What a case gives as KL comes as log-probs against a reference of zeros: their k1 is the KL."""
    inputs, plan = rank_case.case.inputs, rank_case.plan
    if rank_case.culprit is not None and dp != rank_case.culprit:
        return _one_good_sample(plan.layout, cp)
    samples, rewards, sizes = plan.samples(dp), inputs["rewards"], inputs["mini_batch_sizes"]
    if rank_case.culprit is None:  # malformed lists stay as they are
        rewards = [rewards[sample] for sample in samples]
        sizes = None if sizes is None else plan.sizes(dp, sizes)
    log_probs = _own(rank_case, inputs["kl"], cp, dp)
    rollout = {
        **_lengths(rank_case, dp),
        "tokens": [np.zeros(plan.total_lengths[sample], dtype=np.int64) for sample in samples],
        "loss_masks": _whole(rank_case, inputs["loss_masks"], dp),
        "rewards": rewards,
        "log_probs": log_probs,
        "ref_log_probs": [np.zeros_like(tokens) for tokens in log_probs or ()],
        "values": _own(rank_case, inputs["values"], cp, dp),
        "mini_batch_sizes": sizes,
    }
    return {name: value for name, value in rollout.items() if value is not None}


def _one_good_sample(layout: Layout, cp: int) -> Inputs:
    """What the other ranks hold where one rank's input is malformed."""
    plan = Plan(layout, (0,), (2,), (4,), (rounded_up(4, 2 * layout.cp),), told=False)
    part = [np.array([0.5, -0.5], dtype=np.float32)[plan.own(0, cp)]]
    return {
        "tokens": [np.zeros(4, dtype=np.int64)],
        "total_lengths": [4],
        "response_lengths": [2],
        "loss_masks": [np.ones(2, dtype=np.float32)],
        "rewards": [0.5],
        **dict.fromkeys(("log_probs", "ref_log_probs", "values"), part),
        "mini_batch_sizes": [1],
    }


def _normalization(rank_case: RankCase, tp: int, cp: int, dp: int) -> Inputs:
    inputs = rank_case.case.inputs
    return {name: _own(rank_case, inputs[name], cp, dp) for name in ("advantages", "loss_masks")}


def _objective(rank_case: RankCase, tp: int, cp: int, dp: int) -> Inputs:
    inputs = rank_case.case.inputs
    tokens = ("old_log_probs", "log_probs", "advantages", "rollout_log_probs")
    return {
        **{name: _own(rank_case, inputs[name], cp, dp) for name in tokens},
        "loss_masks": _whole(rank_case, inputs["loss_masks"], dp),
        **_lengths(rank_case, dp),
    }


def _reduction(rank_case: RankCase, tp: int, cp: int, dp: int) -> Inputs:
    inputs = rank_case.case.inputs
    every_token = [np.ones(length, dtype=np.float32) for length in rank_case.plan.response_lengths]
    return {
        **{name: _own(rank_case, inputs[name], cp, dp) for name in ("values", "loss_masks")},
        "full_loss_masks": _whole(rank_case, inputs["loss_masks"] or every_token, dp),
    }


def _log_probs(rank_case: RankCase, tp: int, cp: int, dp: int) -> Inputs:
    plan = rank_case.plan
    sequences = [_sequence(rank_case, sample) for sample in range(len(plan.holders))]
    return {
        "logits": pack([logits for logits, _ in sequences], plan, rank_case.qkv_format, (tp, cp, dp)),
        "tokens": [sequences[sample][1] for sample in plan.samples(dp)],
        **_lengths(rank_case, dp),
    }


def _policy_loss(rank_case: RankCase, tp: int, cp: int, dp: int) -> Inputs:
    inputs = rank_case.case.inputs
    tokens = ("log_probs", "ref_log_probs", "rollout_log_probs", "advantages")
    own = {name: _own(rank_case, inputs.get(name), cp, dp) for name in tokens if name in inputs}
    return {
        **_log_probs(rank_case, tp, cp, dp),
        **own,
        "loss_masks": _whole(rank_case, inputs["loss_masks"], dp),
    }


PARTS: Mapping[str, Callable[[RankCase, int, int, int], Inputs]] = {
    "advantages": _advantages,
    "normalization": _normalization,
    "objective": _objective,
    "reduction": _reduction,
    "log_probs": _log_probs,
    "policy_loss": _policy_loss,
}


def _sequence(rank_case: RankCase, sample: int) -> tuple[np.ndarray, np.ndarray]:
    """The logits ``[total, V]`` and tokens ``[total]`` of prompt and response; the last row belongs to no token."""
    logits, tokens = (rank_case.case.inputs[name][sample] for name in ("logits", "tokens"))
    total, length = rank_case.plan.total_lengths[sample], len(tokens)
    rows = np.full((total, logits.shape[1]), 0, dtype=logits.dtype)
    rows[: total - length - 1] = FILL_LOGIT
    rows[total - length - 1 : total - 1] = logits
    ids = np.zeros(total, dtype=np.int64)
    ids[total - length :] = tokens
    return rows, ids


def _own(rank_case: RankCase, arrays: Sequence[np.ndarray] | None, cp: int, dp: int) -> list[np.ndarray] | None:
    """The rank's own tokens of each of its responses."""
    if arrays is None:
        return None
    plan = rank_case.plan
    return [arrays[sample][plan.own(sample, cp)] for sample in plan.samples(dp)]


def _whole(rank_case: RankCase, arrays: Sequence[np.ndarray] | None, dp: int) -> list[np.ndarray] | None:
    """Every token of each of the rank's responses."""
    return None if arrays is None else [arrays[sample] for sample in rank_case.plan.samples(dp)]


def _lengths(rank_case: RankCase, dp: int) -> Inputs:
    plan = rank_case.plan
    samples = plan.samples(dp)
    lengths = {
        "total_lengths": [plan.total_lengths[sample] for sample in samples],
        "response_lengths": [plan.response_lengths[sample] for sample in samples],
    }
    if plan.told:
        lengths["padded_total_lengths"] = [plan.sequence_lengths[sample] for sample in samples]
    return lengths
