"""The invariance judge: an implementation against itself, on input changed in a way that must not matter, in bits."""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import torch

from verification.cases.case import Case
from verification.judges.bits import first_difference, judge_bits
from verification.judges.comparison import Comparison
from verification.judges.reward_transformations import reward_transformations
from verification.judges.thread_mode import flush_denormal
from verification.judges.token_transformations import response_lengths, token_transformations
from verification.judges.transformation import Arrays, Relation, Run, Transformation, put_back
from verification.subjects.outcome import Outcome

JUDGE = "invariance"
SHARE = 3
THREADS = 2  # of the second call
Made = dict[tuple[int, bool], Outcome]
NO_TENSORS = ("arguments.validate", "roles.resolve")


class Runner(Protocol):
    """Runs a case on the implementation under examination; ``watch`` off: its results alone are of interest."""

    def __call__(self, case: Case, *, threads: int = 1, watch: bool = True) -> Outcome | None: ...


def judge_invariance(
    case: Case, outcome: Outcome, run: Runner, chosen: Sequence[Transformation] | None = None
) -> list[Comparison]:
    """Run ``case`` transformed in every way that must not matter and compare with ``outcome``, what it gave as it is.

    A failure has no invariance to show. A second call, on `THREADS` threads, is the plainest transformation: neither
    what the first left behind nor the number of threads may count. ``chosen``: what `chosen_transformations` gave,
    where it was asked before.
    """
    if outcome.failure is not None:
        return []
    found = _second_call(case, run(case, threads=THREADS) or Outcome(), outcome)
    made: Made = {}
    for transformation in chosen_transformations(case, outcome) if chosen is None else chosen:
        found += _transformed(case, outcome, transformation, run, made)
    return found


def chosen_transformations(case: Case, outcome: Outcome) -> list[Transformation]:
    """The transformations that are run of a case.

    Of the many cases that are alike (recorded groups, vectors) each shows a few, chosen by its id, so that all together
    show all.
    """
    holding = list(transformations(case, outcome))
    if len(holding) > SHARE and _one_of_many(case):
        start = zlib.crc32(case.id.encode()) % len(holding)
        holding = (holding + holding)[start : start + SHARE]
    return holding


def _one_of_many(case: Case) -> bool:
    return "real" in case.tags or case.id.rpartition("/")[2].startswith("vector-")


def transformations(case: Case, outcome: Outcome) -> Iterator[Transformation]:
    """Every transformation that holds by design for this case."""
    if case.error is not None or case.stage in NO_TENSORS:
        return iter(())
    if case.stage.startswith("reward."):
        return reward_transformations(case, outcome.arrays)
    return token_transformations(case, outcome.arrays)


def _against(case: Case, got: Outcome | None, expected: Outcome, name: str) -> list[Comparison]:
    return judge_bits(case, got or Outcome(), expected, name, judge=JUDGE)


def _second_call(case: Case, again: Outcome, outcome: Outcome) -> list[Comparison]:
    name = "second call on two threads"
    if again.failure is not None:
        return _against(case, again, outcome, name)
    rest = _against(case, replace(again, arrays={}), replace(outcome, arrays={}), name)
    return _compared(case, again.arrays, outcome.arrays, name) + rest


def _transformed(
    case: Case, outcome: Outcome, transformation: Transformation, run: Runner, made: Made
) -> list[Comparison]:
    """``made``: what was run already, by the case object: two transformations may look at one run."""
    keys = [(id(one.case), transformation.flush_denormal) for one in transformation.runs]
    with flush_denormal() if transformation.flush_denormal else contextlib.nullcontext(True) as possible:
        if not possible:
            return []
        for key, one in zip(keys, transformation.runs, strict=True):
            if key not in made:
                made[key] = run(one.case, watch=False) or Outcome()
    outcomes = [made[key] for key in keys]
    for failed in outcomes:
        if failed.failure is not None:
            return _against(case, failed, replace(outcome, mutated={}), transformation.name)
    arrays = put_back([one.arrays for one in outcomes], transformation.runs, _item_lengths(case, transformation.runs))
    viewed, expected = _related(transformation.viewed, arrays), _related(transformation.expected, outcome.arrays)
    return _compared(case, viewed, expected, transformation.name, one_nan=True)


def _compared(case: Case, viewed: Arrays, expected: Arrays, name: str, *, one_nan: bool = False) -> list[Comparison]:
    """One comparison a result: all its responses together while they agree, one by one where one differs.

    ``one_nan``: any NaN equals any other, since which one a routine gives may depend on its place in a vector.
    """
    found = []
    for result in dict.fromkeys(array.partition("[")[0] for array in (*expected, *viewed)):
        mine = {array: tensor for array, tensor in viewed.items() if array.partition("[")[0] == result}
        theirs = {array: tensor for array, tensor in expected.items() if array.partition("[")[0] == result}
        same = _same(mine, theirs)
        if one_nan and not same:
            mine, theirs = _one_nan(mine), _one_nan(theirs)
            same = _same(mine, theirs)
        if same:
            ulps = 0.0 if all(tensor.is_floating_point() for tensor in mine.values()) else None
            found.append(Comparison(case.id, case.stage, case.algorithm, JUDGE, name, result, True, ulps))
            continue
        judged = _against(case, Outcome(arrays=mine), Outcome(arrays=theirs), name)
        found.extend(one for one in judged if one.what in mine or one.what in theirs)
    return found


def _related(relation: Relation, arrays: Arrays) -> dict[str, torch.Tensor]:
    related = {name: relation(name, tensor) for name, tensor in arrays.items()}
    return {name: tensor for name, tensor in related.items() if tensor is not None}


def _same(mine: Arrays, theirs: Arrays) -> bool:
    return mine.keys() == theirs.keys() and all(
        first_difference(tensor, theirs[name]) is None for name, tensor in mine.items()
    )


def _one_nan(arrays: Arrays) -> dict[str, torch.Tensor]:
    """Every NaN as the same NaN."""
    return {
        name: torch.where(torch.isnan(tensor), torch.full_like(tensor, torch.nan), tensor)
        if tensor.is_floating_point()
        else tensor
        for name, tensor in arrays.items()
    }


def _item_lengths(case: Case, runs: tuple[Run, ...]) -> list[int]:
    """Elements of each item in a flat result: tokens of a response, or one for a sample."""
    if case.stage.startswith("reward."):
        items = itertools.chain.from_iterable(run.items for run in runs)
        return [1] * (1 + max(items, default=0))
    return response_lengths(case)
