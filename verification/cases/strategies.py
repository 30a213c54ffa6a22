"""Hypothesis strategies: reward groups of a controlled structure, ragged token tensors, shard and segment plans.

Every value is an integer over a power of two, drawn into a numpy array, so that a failing example shrinks towards
zeros, short lists and few samples, and reads the same on every machine. Malformed input is in ``malformed.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from verification.cases.batches import batch_case
from verification.cases.case import Case
from verification.cases.components import KEYS, gdpo_case
from verification.cases.malformed import MALFORMED, Malformed, malformed_input
from verification.cases.reward_columns import FLOAT32_MAX, FLOAT32_TINY
from verification.cases.samples import component_rewards, normalize_case, samples_of

Columns = list[list[float]]

GROUP_SIZES = st.sampled_from((2, 3, 4, 5, 8))


def quotients(count: int, *, low: int = -4, high: int = 4, bits: int = 8) -> st.SearchStrategy[list[float]]:
    """``count`` doubles k / 2**bits in [low, high]."""
    whole = hnp.arrays(np.int64, count, elements=st.integers(low << bits, high << bits), fill=st.nothing())
    return whole.map(lambda array: (array / (1 << bits)).tolist())


def _free(size: int) -> st.SearchStrategy[Columns]:
    return st.lists(quotients(size), min_size=2, max_size=4)


def _flat(size: int) -> st.SearchStrategy[Columns]:
    value = st.sampled_from((0.2, 0.1, 1 / 3, 0.0, 1e9 + 0.1))
    return st.tuples(quotients(size), value).map(lambda drawn: [drawn[0], [drawn[1]] * size])


def _all_flat(size: int) -> st.SearchStrategy[Columns]:
    value = st.sampled_from((0.2, 0.1, 1 / 3, 0.0, -7.0))
    return st.tuples(value, value).map(lambda drawn: [[drawn[0]] * size, [drawn[1]] * size])


def _constant_sum(size: int) -> st.SearchStrategy[Columns]:
    return quotients(size).map(lambda column: [column, [2.0 - x for x in column]])


def _correlated(size: int) -> st.SearchStrategy[Columns]:
    scale = st.sampled_from((0.5, 2.0, 3.0, 1024.0))
    return st.tuples(quotients(size), scale).map(lambda drawn: [drawn[0], [drawn[1] * x for x in drawn[0]]])


def _anti_correlated(size: int) -> st.SearchStrategy[Columns]:
    return _correlated(size).map(lambda columns: [columns[0], [-x for x in columns[1]]])


def _near_ties(size: int) -> st.SearchStrategy[Columns]:
    steps = quotients(size, low=0, high=4, bits=0)
    return st.tuples(steps, steps).map(
        lambda drawn: [[0.3 + k * 2.0**-50 for k in drawn[0]], [0.7 + k * 2.0**-26 for k in drawn[1]]]
    )


def _outlier(size: int) -> st.SearchStrategy[Columns]:
    return st.tuples(quotients(size), quotients(size), st.integers(0, size - 1)).map(
        lambda drawn: [[1e6 if k == drawn[2] else x for k, x in enumerate(drawn[0])], drawn[1]]
    )


def _offset(size: int) -> st.SearchStrategy[Columns]:
    steps = quotients(size, low=0, high=8, bits=0)
    return st.tuples(steps, steps, st.sampled_from((1e9, 1e13, -1e9))).map(
        lambda drawn: [[drawn[2] + k for k in drawn[0]], [1000.0 + k / 100 for k in drawn[1]]]
    )


def _subnormals(size: int) -> st.SearchStrategy[Columns]:
    steps = quotients(size, low=-9, high=9, bits=0)
    return st.tuples(steps, quotients(size)).map(lambda drawn: [[k * FLOAT32_TINY for k in drawn[0]], drawn[1]])


def _float32_max(size: int) -> st.SearchStrategy[Columns]:
    ends = st.sampled_from((FLOAT32_MAX, -FLOAT32_MAX, 0.0, 1.0))
    return st.lists(st.lists(ends, min_size=size, max_size=size), min_size=2, max_size=3)


STRUCTURES: dict[str, Callable[[int], st.SearchStrategy[Columns]]] = {
    "free": _free,
    "flat": _flat,
    "all-flat": _all_flat,
    "constant-sum": _constant_sum,
    "correlated": _correlated,
    "anti-correlated": _anti_correlated,
    "near-ties": _near_ties,
    "outlier": _outlier,
    "offset": _offset,
    "subnormals": _subnormals,
    "float32-max": _float32_max,
}


@st.composite
def component_columns(draw: st.DrawFn, structure: str | None = None, size: int | None = None) -> Columns:
    """The columns of one prompt group: K lists of G doubles, of a named structure or of any."""
    structure = draw(st.sampled_from(tuple(STRUCTURES))) if structure is None else structure
    return draw(STRUCTURES[structure](draw(GROUP_SIZES) if size is None else size))


def component_weights(count: int) -> st.SearchStrategy[list[float]]:
    """Weights that the contract allows: finite and not all zero; equal, signed, zero among them, nearly equal."""
    free = quotients(count, bits=2).filter(any)
    neighbours = st.just([16777216.0 + k for k in range(count)])
    return st.one_of(st.just([1.0] * count), free, neighbours)


@st.composite
def reward_groups(draw: st.DrawFn, structure: str | None = None, max_groups: int = 3) -> Case:
    """A valid GDPO case of ``reward.normalize``: groups of one structure and one size, interleaved at will."""
    name = draw(st.sampled_from(tuple(STRUCTURES))) if structure is None else structure
    first = draw(component_columns(name))
    groups = [first]
    for _ in range(draw(st.integers(0, max_groups - 1))):
        group = draw(STRUCTURES[name](len(first[0])))
        groups.append((group + first)[: len(first)])
    rewards = [component_rewards(dict(zip(KEYS, group, strict=False))) for group in groups]
    order = draw(st.permutations(range(len(rewards) * len(first[0]))))
    return gdpo_case(f"drawn-{name}", rewards, weights=draw(component_weights(len(first))), order=order)


@st.composite
def single_reward_groups(draw: st.DrawFn, algorithm: str, structure: str | None = None, max_groups: int = 3) -> Case:
    """A valid case of ``reward.normalize`` for an algorithm with one reward: the columns are its prompt groups."""
    name = draw(st.sampled_from(tuple(STRUCTURES))) if structure is None else structure
    groups = draw(component_columns(name))[:max_groups]
    samples = draw(st.permutations(samples_of(groups)))
    return normalize_case(algorithm, f"drawn-{name}", samples, group_size=len(groups[0]))


@dataclass(frozen=True)
class Tokens:
    """Ragged responses: values and masks, ``[R_i]`` each."""

    values: list[np.ndarray]
    masks: list[np.ndarray]


@st.composite
def ragged_tokens(
    draw: st.DrawFn, *, min_length: int = 0, max_length: int = 12, max_responses: int = 4, all_masked: bool = True
) -> Tokens:
    """Token tensors with masks; with ``all_masked`` False every response keeps its last token at least."""
    lengths = draw(st.lists(st.integers(min_length, max_length), min_size=1, max_size=max_responses))
    values = [np.array(draw(quotients(length)), dtype=np.float32) for length in lengths]
    masks = [
        draw(hnp.arrays(np.float32, length, elements=st.sampled_from((1.0, 0.0)), fill=st.nothing()))
        for length in lengths
    ]
    if not all_masked:
        for mask in masks:
            mask[-1:] = 1.0
    return Tokens(values, masks)


@st.composite
def segment_plans(draw: st.DrawFn, samples: int, max_segments: int = 4) -> list[int]:
    """Sample counts of the optimizer batches that one rank holds: 0 or more each, ``samples`` together."""
    cuts = sorted(draw(st.lists(st.integers(0, samples), max_size=max_segments - 1)))
    return [end - start for start, end in zip([0, *cuts], [*cuts, samples], strict=True)]


@st.composite
def shard_plans(
    draw: st.DrawFn, batches: Sequence[int], ranks: int | None = None, max_ranks: int = 4
) -> list[list[int]]:
    """How optimizer batches of the given sizes fall to ranks: ``plan[rank][batch]`` samples, empty shards included.

    ``ranks`` None is any number up to ``max_ranks``.
    """
    ranks = draw(st.integers(1, max_ranks)) if ranks is None else ranks
    columns = [draw(_parts(size, ranks)) for size in batches]
    return [[column[rank] for column in columns] for rank in range(ranks)]


@st.composite
def _parts(draw: st.DrawFn, whole: int, count: int) -> list[int]:
    cuts = sorted(draw(st.lists(st.integers(0, whole), min_size=count - 1, max_size=count - 1)))
    return [end - start for start, end in zip([0, *cuts], [*cuts, whole], strict=True)]


@st.composite
def whitening_batches(draw: st.DrawFn, max_samples: int = 12) -> Case:
    """A valid GDPO case of ``advantage.estimate``: scores, response lengths and a segment plan."""
    structure = draw(st.sampled_from(tuple(STRUCTURES)))
    rewards = draw(STRUCTURES[structure](draw(st.integers(2, max_samples))))[0]
    rewards = [float(np.float32(reward)) for reward in rewards]
    lengths = draw(st.lists(st.integers(0, 4), min_size=len(rewards), max_size=len(rewards)))
    return batch_case(f"drawn-{structure}", rewards, draw(segment_plans(len(rewards))), lengths=lengths)


def malformed(kind: str | None = None) -> st.SearchStrategy[Malformed]:
    """Input that must be refused, ``(case, words of the message)``, of a named kind or of any."""
    kinds = st.sampled_from(tuple(MALFORMED)) if kind is None else st.just(kind)
    sources: st.SearchStrategy[Random] = st.randoms(use_true_random=False, note_method_calls=False)
    return st.builds(malformed_input, kinds, sources)
