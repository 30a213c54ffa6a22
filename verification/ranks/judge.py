"""The judge of rank cases: every rank ended well, peers agree, and the whole batch is what one rank gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from verification.judges.bits import first_difference, judge_bits, place, shown
from verification.judges.comparison import Comparison
from verification.judges.ulps import ulp
from verification.ranks.assemble import Misfit, assemble
from verification.ranks.bounds import bound_of
from verification.ranks.cases import RankCase
from verification.ranks.findings import EVERY_RANK, FROZEN, JUDGE, ONE_RANK, OTHER_RANKS, Judged, compared
from verification.ranks.reference import Reference
from verification.ranks.refusals import judge_refusals
from verification.ranks.results import RankRun
from verification.report.summary import Measured
from verification.subjects.outcome import Outcome

FROZEN_PREFIX = "frozen."
Arrays = Mapping[str, torch.Tensor]


def judge_run(rank_case: RankCase, run: RankRun, expected: Callable[[], Reference]) -> Judged:
    """Judge how the ranks of one task ended, and what they gave; ``expected`` is asked for where they gave something.

    A rank that died, hung or left is a difference with its report, and so is an exception that no malformed input
    asked for. Malformed input fails every rank alike.
    """
    malformed = rank_case.case.error is not None
    right = ("value", "failure") if malformed else ("value",)
    wrong = [rank for rank in run.ranks if rank.ended not in right]
    if wrong:
        return Judged([compared(rank_case, EVERY_RANK, f"rank {rank.rank}", rank.describe()) for rank in wrong])
    if malformed:
        return Judged(judge_refusals(rank_case, run.ranks))
    arrays = [rank.value["arrays"] for rank in run.ranks]
    changed = _changed([rank.value["mutated"] for rank in run.ranks])
    found = Judged([compared(rank_case, EVERY_RANK, "mutated inputs", changed)])
    found.comparisons += _peers(rank_case, arrays)
    found.comparisons += _frozen(rank_case, arrays)
    try:
        whole = assemble(rank_case, [_live(own) for own in arrays])
    except Misfit as error:
        found.comparisons.append(compared(rank_case, ONE_RANK, "parts", str(error)))
        return found
    _one_rank(rank_case, whole, expected(), found)
    return found


def _live(own: Arrays) -> Arrays:
    return {name: tensor for name, tensor in own.items() if not name.startswith(FROZEN_PREFIX)}


def _changed(mutated: Sequence[Sequence[str]]) -> str:
    return "; ".join(f"rank {rank} changed {', '.join(names)}" for rank, names in enumerate(mutated) if names)


def _peers(rank_case: RankCase, arrays: Sequence[Arrays]) -> list[Comparison]:
    """Ranks with the same tokens agree to the bit; a pipeline stage that is not the last has done nothing."""
    layout = rank_case.layout
    leaders: dict[tuple[int, int], Arrays] = {}
    found: list[Comparison] = []
    for rank, own in enumerate(arrays):
        tp, cp, dp, pp = layout.coordinates(rank)
        if pp != layout.pp - 1:
            detail = f"rank {rank} is in stage {pp} of {layout.pp} and wrote {', '.join(own)}" if own else ""
            found.append(compared(rank_case, OTHER_RANKS, "stages before the last", detail))
            continue
        alike = {name: tensor for name, tensor in own.items() if tensor.dim() < 3}
        if tp == 0:
            leaders[cp, dp] = alike
        else:
            found += _same_bits(rank_case, OTHER_RANKS, alike, leaders[cp, dp])
    return found


def _frozen(rank_case: RankCase, arrays: Sequence[Arrays]) -> list[Comparison]:
    """Where the program ran the frozen copy too: each rank's own arrays have its bits."""
    found = []
    for own in arrays:
        frozen = {name.removeprefix(FROZEN_PREFIX): own[name] for name in own if name.startswith(FROZEN_PREFIX)}
        live = {name: own[name] for name in frozen if name in own}
        if frozen:
            found += _same_bits(rank_case, FROZEN, live, frozen)
    return found


def _one_rank(rank_case: RankCase, whole: Arrays, expected: Reference, found: Judged) -> None:
    """The whole batch against one rank's: bits, or the bound of the table.

    Where the tokens lie on several ranks any NaN will do: which one an operation makes depends on places in a vector.
    """
    split = rank_case.layout.dp * rank_case.layout.cp > 1
    got, right = dict(whole), {name: _alike(tensor, whole.get(name)) for name, tensor in expected.arrays.items()}
    for name in whole.keys() & right.keys():
        bound = bound_of(rank_case, name)
        if bound is not None:
            mine, theirs = got.pop(name), right.pop(name)
            scales = expected.scales.get(name, (math.inf,) * mine.numel())  # none where the oracle has no value
            distance, index = farthest(mine, theirs, scales)
            detail = _told(rank_case, mine, theirs, index) if distance > bound.ulps else ""
            unjudged = sum(map(math.isinf, scales))
            found.comparisons.append(compared(rank_case, ONE_RANK, name, detail, distance))
            found.measured.append(
                Measured(bound.formula, distance, bound.ulps, 1, rank_case.id, mine.numel(), unjudged)
            )
        elif split and first_difference(got[name], right[name]) is not None:
            got[name], right[name] = one_nan(got[name]), one_nan(right[name])
    for one in _same_bits(rank_case, ONE_RANK, got, right):
        fits = not one.agrees and one.what in got and one.what in right and got[one.what].shape == right[one.what].shape
        index = first_difference(got[one.what], right[one.what]) if fits else None
        found.comparisons.append(
            replace(one, detail=f"{one.detail}{_whose(rank_case, got[one.what], index)}") if index is not None else one
        )


def _alike(expected: torch.Tensor, got: torch.Tensor | None) -> torch.Tensor:
    """A scalar in the dtype of the ranks' sum, which is float64; any other array as it is."""
    return expected.to(got.dtype) if got is not None and expected.dim() == 0 else expected


def _told(rank_case: RankCase, got: torch.Tensor, expected: torch.Tensor, index: int | None) -> str:
    if index is None:
        return f"{got.dtype} {list(got.shape)}, expected {expected.dtype} {list(expected.shape)}"
    where = f"{place(index, got.shape)}{_whose(rank_case, got, index)}"
    return f"{where}: got {shown(got, index)}, expected {shown(expected, index)}"


def _whose(rank_case: RankCase, tensor: torch.Tensor, index: int) -> str:
    """Whose token an element of the joined responses belongs to; empty for a scalar."""
    if tensor.dim() == 0:
        return ""
    token = index // math.prod(tensor.shape[1:])
    for response, length in enumerate(rank_case.plan.response_lengths):
        if token < length:
            return f" (response {response}, token {token})"
        token -= length
    return ""


def _same_bits(rank_case: RankCase, against: str, got: Arrays, expected: Arrays) -> list[Comparison]:
    """One comparison a name of either side; what a call did to its inputs is the ranks' own affair."""
    judged = judge_bits(rank_case.about, Outcome(got), Outcome(expected), against, judge=JUDGE)
    return [one for one in judged if one.what in got or one.what in expected]


def one_nan(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with one and the same NaN for any."""
    return tensor.where(~tensor.isnan(), math.nan) if tensor.is_floating_point() else tensor


def farthest(got: torch.Tensor, expected: torch.Tensor, scales: Sequence[float]) -> tuple[float, int | None]:
    """The largest distance in float32 ulps of the elements' scales, and the flat index of it, None where there is none.

    Another dtype or shape is infinitely far, and so is a NaN or an infinity that stands on one side alone. Finite
    elements of infinite scale are not looked at.
    """
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return math.inf, None
    largest, where = 0.0, None
    pairs = zip(got.reshape(-1).tolist(), expected.reshape(-1).tolist(), scales, strict=True)
    for index, (one, other, scale) in enumerate(pairs):
        if one == other or (math.isnan(one) and math.isnan(other)):
            continue
        finite = math.isfinite(one) and math.isfinite(other)
        apart = math.inf if not finite else 0.0 if math.isinf(scale) else abs(one - other) / ulp(scale, torch.float32)
        if apart > largest:
            largest, where = apart, index
    return largest, where
