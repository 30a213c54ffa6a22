"""What a run computed against the live code and the frozen copies on the same inputs, and against the exact values."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from verification.bundles import read_cases, write_cases
from verification.check import environment
from verification.examine import FROZEN, LIVE, Examined, guarded, rounded, subject_named
from verification.judges.bits import judge_bits
from verification.report.summary import Report, merge_measured
from verification.subjects.outcome import Outcome
from verification.traced.cases import Traced, traced_cases, whole_calls
from verification.traced.links import links
from verification.traced.read import Trace, TraceRefused

RUN = "the run"


def replay(trace: Trace, bundle: Path | None = None, progress: Callable[[int, int], None] | None = None) -> Report:
    """Every call of the trace replayed, and what it was given held against what the stage before it gave. The cases
    go through a bundle, which is left in ``bundle`` where it is given.

    The arrays that the run recorded are compared, and no others: a stage's replay gives gradients too, of a sum that
    the run never formed.
    """
    started = time.monotonic()
    calls = whole_calls(trace)
    found = Examined(comparisons=links(trace.rollout, calls))
    traced = _through_bundle(traced_cases(trace.rollout, calls), bundle)
    for number, one in enumerate(traced):
        if progress is not None:
            progress(number, len(traced))
        _examine(found, one)
    return Report(
        subject=RUN,
        comparisons=tuple(found.comparisons),
        problems=tuple(found.problems),
        cases=len(traced),
        formulas=merge_measured(found.measured),
        absent=found.absent,
        environment=environment(),
        elapsed=time.monotonic() - started,
    )


def elsewhere(trace: Trace) -> str:
    """How the machine of the run differs from this one in what bits depend on; empty where it does not."""
    here = {"torch": environment()["torch"], "cpu": _cpu()}
    odd = [f"{name} {was}, here {here[name]}" for name, was in trace.made_on.items() if here.get(name, was) != was]
    return "; ".join(odd)


def _cpu() -> str:
    import torch

    return torch.backends.cpu.get_cpu_capability()


def _through_bundle(traced: list[Traced], bundle: Path | None) -> list[Traced]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) if bundle is None else bundle
        try:
            write_cases(folder, [one.case for one in traced])
        except OSError as error:
            raise TraceRefused(f"{folder} cannot be written: {error.strerror or error}") from None
        return [replace(one, case=case) for one, case in zip(traced, read_cases(folder), strict=True)]


def _examine(found: Examined, traced: Traced) -> None:
    case, recorded = traced.case, traced.recorded
    of_case = Examined()
    for name in (LIVE, FROZEN):
        if not traced.bits:
            of_case.absent[name] = 1
            continue
        replayed = guarded(of_case, case, name, partial(subject_named(name).run, case))
        if replayed is not None:
            of_case.comparisons += judge_bits(case, recorded, _numbers(replayed, recorded), name)
        elif not of_case.problems:
            of_case.absent[name] = 1
    guarded(of_case, case, "rounding", partial(rounded, of_case, case, recorded))
    of_case.comparisons = [one for one in of_case.comparisons if one.what in {*recorded.arrays, "failure"}]
    found.add(of_case)


def _numbers(replayed: Outcome, recorded: Outcome) -> Outcome:
    """Of what a replay gave, its failure, or the arrays that the run recorded."""
    if replayed.failure is not None:
        return replayed
    return Outcome(arrays={name: tensor for name, tensor in replayed.arrays.items() if name in recorded.arrays})
