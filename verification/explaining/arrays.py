"""One array of several subjects: which have the same bits, how far the others are apart, and from the exact value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import torch

from verification.cases.case import Case
from verification.judges.bits import first_difference, pattern, place
from verification.judges.rounding import judge_rounding
from verification.judges.ulps import FORMATS, ulp_distance
from verification.oracle.exact import Exact
from verification.subjects.outcome import Outcome


@dataclass(frozen=True)
class Alike:
    """Subjects whose array has the same bits; ``tensor`` is None for those that lack it.

    ``ulps`` and ``beyond`` are what the rounding judge says: the largest distance to the exact value, and what breaks
    the bound; None and empty where there is nothing to measure or to object to.
    """

    subjects: tuple[str, ...]
    tensor: torch.Tensor | None
    ulps: float | None = None
    beyond: str = ""

    @property
    def name(self) -> str:
        return " = ".join(self.subjects)


@dataclass(frozen=True)
class Apart:
    """Two groups of one dtype and shape whose bits differ. ``ulps`` is None for what is no float."""

    one: Alike
    other: Alike
    count: int
    first: int
    ulps: float | None


@dataclass(frozen=True)
class Array:
    """One named array as all subjects have it, the group of the first subject in front."""

    name: str
    groups: tuple[Alike, ...]
    exact: Exact | None = None

    @property
    def shape(self) -> torch.Size:
        """The shape that the first group has."""
        return next(group.tensor.shape for group in self.groups if group.tensor is not None)

    @property
    def comparable(self) -> tuple[Alike, ...]:
        """The groups that share the dtype and shape of the first one."""
        whole = [group for group in self.groups if group.tensor is not None]
        return tuple(group for group in whole if _kind(group) == _kind(whole[0]))

    def apart(self) -> Iterator[Apart]:
        """Every pair of comparable groups: how many elements differ, where first, and how far at most."""
        for one, other in combinations(self.comparable, 2):
            assert one.tensor is not None
            assert other.tensor is not None
            first = first_difference(one.tensor, other.tensor)
            assert first is not None  # equal ones are one group
            count = int((pattern(one.tensor) != pattern(other.tensor)).any(dim=-1).sum())
            measured = one.tensor.dtype in FORMATS
            ulps = float(ulp_distance(one.tensor, other.tensor).max()) if measured else None
            yield Apart(one, other, count, first, ulps)

    def place(self, index: int) -> str:
        """A flat index as the indices of the shape."""
        return place(index, self.shape)


def arrays(case: Case, outcomes: Mapping[str, Outcome], exact: Mapping[str, Exact]) -> Iterator[Array]:
    """Every array of any of the outcomes, in their order, the first outcome's first."""
    for name in dict.fromkeys(name for outcome in outcomes.values() for name in outcome.arrays):
        groups = _grouped({who: outcome.arrays.get(name) for who, outcome in outcomes.items()})
        real = exact.get(name)
        yield Array(name, tuple(_measured(case, name, group, real) for group in groups), real)


def changed_inputs(outcomes: Mapping[str, Outcome]) -> Iterator[Array]:
    """The new value of every input that a call changed, as an array; None for the subjects that left it alone."""
    for path in dict.fromkeys(path for outcome in outcomes.values() for path in outcome.mutated):
        yield Array(path, tuple(_grouped({who: outcome.mutated.get(path) for who, outcome in outcomes.items()})))


def _grouped(tensors: Mapping[str, torch.Tensor | None]) -> list[Alike]:
    groups: list[tuple[list[str], torch.Tensor | None]] = []
    for who, tensor in tensors.items():
        for names, first in groups:
            if _same(tensor, first):
                names.append(who)
                break
        else:
            groups.append(([who], tensor))
    return [Alike(tuple(names), tensor) for names, tensor in groups]


def _same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return first_difference(one, other) is None and one.shape == other.shape and one.dtype == other.dtype


def _measured(case: Case, name: str, group: Alike, exact: Exact | None) -> Alike:
    if exact is None or group.tensor is None:
        return group
    (found,) = judge_rounding(case, Outcome(arrays={name: group.tensor}), {name: exact})
    return Alike(group.subjects, group.tensor, found.ulps, found.detail)


def _kind(group: Alike) -> tuple[torch.dtype, torch.Size]:
    assert group.tensor is not None
    return group.tensor.dtype, group.tensor.shape
