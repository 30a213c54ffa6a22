"""The stages of a trace as a chain: what one stage gave a sample is what the next was given of it, to the bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from relax.core.rows import row_keys
from verification.judges.bits import judge_bits
from verification.judges.comparison import Comparison
from verification.subjects.outcome import Outcome
from verification.subjects.stages import as_tensors
from verification.traced.cases import case_of, told
from verification.traced.read import Call, TraceRefused

REWARDS, ESTIMATE, NORMALIZE, LOSS = "reward.normalize", "advantage.estimate", "advantage.normalize", "policy.loss"


def links(rollout: int, calls: Sequence[Call]) -> list[Comparison]:
    """One a sample and pair of stages that follow one another: rewards, advantages, normalised ones, the loss.

    A stage that no process had is passed over. A `TraceRefused` where of two such stages one has a sample of the
    rollout that the other has not, or has one twice.
    """
    by_stage: dict[str, list[Call]] = {}
    for call in calls:
        by_stage.setdefault(call.stage, []).append(call)
    chain = [stage for stage in (ESTIMATE, NORMALIZE, LOSS) if stage in by_stage]
    pairs = [(before, after, "advantages") for before, after in pairwise(chain)]
    if {REWARDS, ESTIMATE} <= by_stage.keys():
        pairs.append((REWARDS, ESTIMATE, "rewards"))
    found: list[Comparison] = []
    for before, after, name in pairs:
        given = _by_row(rollout, by_stage[before], name, lambda call: call.results)
        taken = _by_row(rollout, by_stage[after], name, lambda call: call.inputs)
        _require_all(rollout, given, taken, after)
        _require_all(rollout, taken, given, before)
        for call in by_stage[after]:
            # Rows of another rollout, whose stage before was not traced, have nothing to be held against.
            rows = [row for row in _rows(rollout, call) if row in given]
            got, expected = ({f"{name} of row {row}": side[row][1] for row in rows} for side in (taken, given))
            compared = judge_bits(case_of(rollout, call), Outcome(arrays=got), Outcome(arrays=expected), before)
            found += [comparison for comparison in compared if comparison.what in got]
    return found


def _by_row(
    rollout: int, calls: Sequence[Call], name: str, side: Callable[[Call], Mapping[str, Any]]
) -> dict[str, tuple[Call, torch.Tensor]]:
    """The call that each row is in, and what is called ``name`` of it on one ``side`` of the call."""
    found: dict[str, tuple[Call, torch.Tensor]] = {}
    for call in calls:
        rows, values = _rows(rollout, call), side(call).get(name)
        if not isinstance(values, list) or len(values) != len(rows):
            raise TraceRefused(f"{told(call)}: its {name} are not those of its {len(rows)} rows")
        for row, value in zip(rows, values, strict=True):
            if row in found and call.stage != REWARDS:  # which ranks may each have computed of all samples
                raise TraceRefused(f"{told(call)}: row {row} is in {told(found[row][0])} too")
            try:
                (tensor,) = as_tensors(name, value).values()
            except (TypeError, ValueError):
                raise TraceRefused(f"{told(call)}: its {name} of row {row} are no numbers") from None
            found[row] = call, tensor
    return found


def _rows(rollout: int, call: Call) -> list[str]:
    if call.stage != REWARDS:
        if call.rows is None:
            raise TraceRefused(f"{told(call)}: it does not tell whose rows it has")
        return list(call.rows)
    indices = [sample.get("index") for sample in call.inputs.get("samples", ())]
    if not all(type(index) is int for index in indices):
        raise TraceRefused(f"{told(call)}: its samples have no numbers")
    return row_keys(rollout, indices)


def _require_all(
    rollout: int, rows: Mapping[str, tuple[Call, Any]], others: Mapping[str, tuple[Call, Any]], stage: str
) -> None:
    """That of ``rows`` those of the rollout are among ``others``, which are those of ``stage``."""
    number, _, _ = row_keys(rollout, [0])[0].partition("/")
    missing = sorted(row for row in rows.keys() - others.keys() if row.partition("/")[0] == number)
    if missing:
        raise TraceRefused(f"{told(rows[missing[0]][0])}: row {missing[0]} is in no call of {stage}")
