"""The calls of a trace as cases of the corpus's kind, each with what the run had of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from relax.algorithms.spec import get_algorithm
from verification.cases.arguments import DEFAULTS
from verification.cases.case import SAMPLE_FIELDS, Case
from verification.subjects.outcome import Outcome
from verification.subjects.stages import STAGE_CALLS, as_tensors
from verification.traced.read import Call, Trace, TraceRefused


@dataclass(frozen=True)
class Traced:
    """A case, and the arrays that the run computed for it."""

    case: Case
    recorded: Outcome
    bits: bool
    """Whether one process gives the same bits: not where ranks added their float32 sums."""


def whole_calls(trace: Trace) -> list[Call]:
    """The calls, in the order of the stages; those in which ranks shared a statistic put together to one of all."""
    merged: dict[tuple[str, int], list[Call]] = defaultdict(list)
    calls = []
    for call in trace.calls:
        if call.ranks > 1 and _shares(call):
            merged[call.stage, call.number].append(call)
        else:
            calls.append(call)
    calls += [_together(found) for found in merged.values()]
    order = list(STAGE_CALLS)
    return sorted(calls, key=lambda call: (order.index(call.stage), call.part, call.number))


def traced_cases(rollout: int, calls: Sequence[Call]) -> list[Traced]:
    """One a call."""
    return [Traced(case_of(rollout, call), _recorded(call), call.exact) for call in calls]


def _shares(call: Call) -> bool:
    if call.stage == "advantage.normalize":
        return True
    algorithm = call.options.get("advantage_estimator")
    try:
        return call.stage == "advantage.estimate" and get_algorithm(str(algorithm)).uses_reward_components
    except ValueError as error:
        raise TraceRefused(f"{told(call)}: {error}") from None


def _together(calls: Sequence[Call]) -> Call:
    """The call that one rank would have made: of each optimizer batch every rank's samples, in order of rank."""
    calls = sorted(calls, key=lambda call: call.rank)
    first = calls[0]
    if [call.rank for call in calls] != list(range(first.ranks)):
        there = ", ".join(str(call.rank) for call in calls)
        raise TraceRefused(f"{told(first)}: of {first.ranks} ranks that shared the batch only {there} kept the call")
    exact = first.stage == "advantage.estimate"
    if exact:
        sizes: list[list[int]] = [call.inputs.get("mini_batch_sizes") or [] for call in calls]
    else:
        sizes = [[len(call.inputs.get("advantages") or [])] for call in calls]
    if len({len(one) for one in sizes}) > 1:
        raise TraceRefused(f"{told(first)}: the ranks tell of different optimizer batches")
    inputs = _joined([call.inputs for call in calls], sizes)
    if exact:
        inputs["mini_batch_sizes"] = [sum(of_ranks) for of_ranks in zip(*sizes, strict=True)]
    rows = _joined([{"rows": call.rows} for call in calls], sizes)["rows"]
    return Call(
        part="all-ranks",
        stage=first.stage,
        number=first.number,
        rank=0,
        ranks=1,
        rows=None if rows is None else tuple(rows),
        options=first.options,
        inputs=inputs,
        results=_joined([call.results for call in calls], sizes),
        exact=exact,
    )


def _joined(columns: Sequence[Mapping[str, Any]], sizes: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Columns of one entry a sample, batch by batch and in each rank by rank; None stays None."""
    joined: dict[str, Any] = {}
    for name in columns[0]:
        of_ranks: list[list[Any]] = [one[name] for one in columns if one.get(name) is not None]
        if len(of_ranks) < len(columns):
            joined[name] = None
            continue
        starts = [0] * len(of_ranks)
        joined[name] = []
        for batch in range(len(sizes[0])):
            for rank, column in enumerate(of_ranks):
                end = starts[rank] + sizes[rank][batch]
                joined[name] += column[starts[rank] : end]
                starts[rank] = end
    return joined


def case_of(rollout: int, call: Call) -> Case:
    """What the call was given, as a case."""
    stage = STAGE_CALLS[call.stage]
    algorithm = str(call.options.get("advantage_estimator"))
    names = ("samples",) if "samples" in stage.first else stage.keywords
    inputs = {name: _plain(call.inputs[name]) for name in names if name in call.inputs}
    if "samples" in inputs:
        inputs["samples"] = tuple(_sample(fields, call) for fields in inputs["samples"])
    return Case(
        id=f"{call.stage}/{algorithm}/rollout-{rollout}-{call.part}-{call.number}",
        stage=call.stage,
        algorithm=algorithm,
        inputs=inputs,
        options={name: value for name, value in call.options.items() if name in DEFAULTS and value != DEFAULTS[name]},
        note=f"call {call.number} of {call.part} in rollout {rollout} of a run",
    )


def _recorded(call: Call) -> Outcome:
    arrays: dict[str, torch.Tensor] = {}
    for name in STAGE_CALLS[call.stage].results:
        if name not in call.results:
            raise TraceRefused(f"{told(call)}: no {name} among its results")
        try:
            arrays.update(as_tensors(name, call.results[name]))
        except TypeError as error:
            raise TraceRefused(f"{told(call)}: {error}") from None
    return Outcome(arrays=arrays)


def _sample(fields: Any, call: Call) -> dict[str, Any]:
    if not isinstance(fields, dict) or not fields.keys() <= SAMPLE_FIELDS.keys():
        raise TraceRefused(f"{told(call)}: one of its samples is none")
    return fields


def _plain(value: Any) -> Any:
    """Tensors as the numpy arrays of a case, where the bits of a bfloat16 are those of a uint16."""
    if isinstance(value, torch.Tensor):
        return (value.view(torch.uint16) if value.dtype == torch.bfloat16 else value).numpy()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def told(call: Call) -> str:
    """The call, for an error."""
    return f"call {call.number} of {call.stage} by {call.part}"
