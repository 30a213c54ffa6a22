"""Named cases of ``reward.normalize`` for GDPO: several reward components, each standardised within its group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from verification.cases.case import Case
from verification.cases.integers import Integers
from verification.cases.reward_columns import FINITE, FLOAT32_MAX, Column, anti_ordered, float32_max
from verification.cases.samples import component_rewards, normalize_case, samples_of

COLUMNS: dict[str, Column] = {**FINITE, "f32max": float32_max}

WEIGHTS: dict[str, dict[int, list[float]]] = {
    "equal": {2: [1.0, 1.0], 3: [1.0, 1.0, 1.0], 5: [1.0] * 5},
    "unequal": {2: [1.0, 0.3], 3: [1.0, 0.5, 0.2], 5: [1.0, 0.7, 0.1, 2.0, 0.25]},
    "zero": {2: [0.0, 1.0], 3: [1.0, 0.0, 0.5], 5: [0.0, 1.0, 0.0, 0.0, 2.0]},
    "negative": {2: [1.0, -0.25], 3: [1.0, -1.0, 0.1], 5: [1.0, -0.5, 0.25, -0.125, 0.1]},
    "neighbours": {2: [16777216.0, 16777217.0], 3: [16777216.0, 16777217.0, -33554433.0], 5: [9007199254740991.0] * 5},
    "decades": {2: [1e6, 1e-6], 3: [1e8, 1.0, 1e-8], 5: [1e4, 1e2, 1.0, 1e-2, 1e-4]},
}

KEYS = ("correct", "format", "length", "style", "brevity")

MIXES: tuple[tuple[str, ...], ...] = (
    ("binary", "halves"),
    ("tenths", "lengths"),
    ("scores", "flat"),
    ("offset", "tiny"),
    ("outlier", "nearties"),
    ("subnormal", "f32max"),
    ("binary", "halves", "lengths"),
    ("scores", "tenths", "flat"),
    ("offset", "subnormal", "binary"),
    ("binary", "halves", "tenths", "scores", "lengths"),
)


def component_cases() -> Iterator[Case]:
    """All of them."""
    yield from mixes()
    yield from sizes()
    yield from structures()
    yield from number_types()
    yield from refusals()


def gdpo_case(
    rest: str,
    groups: Sequence[Sequence[Any]],
    *,
    weights: Sequence[float],
    keys: Sequence[str] = KEYS,
    labels: Sequence[Any] | None = None,
    group_size: int | None = None,
    error: tuple[str, ...] | None = None,
    note: str = "",
    order: Sequence[int] | None = None,
) -> Case:
    """A GDPO case of reward groups; the first ``len(weights)`` of ``keys`` are its components."""
    samples = samples_of(groups, labels=labels)
    samples = samples if order is None else [samples[position] for position in order]
    return normalize_case(
        "gdpo",
        rest,
        samples,
        group_size=len(groups[0]) if group_size is None else group_size,
        error=error,
        note=note,
        gdpo_reward_keys=list(keys[: len(weights)]),
        gdpo_reward_weights=list(weights),
    )


def group_of(stream: Integers, mix: Sequence[str], size: int) -> list[dict[str, Any]]:
    """One group whose k-th component is a column of the k-th kind of ``mix``."""
    return component_rewards({key: COLUMNS[kind](stream, size) for key, kind in zip(KEYS, mix, strict=False)})


def mixes() -> Iterator[Case]:
    """Every mix of kinds under every kind of weights, two groups of eight."""
    for mix in MIXES:
        for name, by_count in WEIGHTS.items():
            stream = Integers(f"components/{mix}/{name}")
            groups = [group_of(stream, mix, 8) for _ in range(2)]
            yield gdpo_case(f"{'+'.join(mix)}-g8-{name}", groups, weights=by_count[len(mix)])


def sizes() -> Iterator[Case]:
    """Group sizes from two to sixty-four."""
    for size in (2, 3, 4, 5, 16, 17, 32, 64):
        for mix in (("binary", "lengths"), ("scores", "tenths", "halves")):
            stream = Integers(f"components/sizes/{size}")
            groups = [group_of(stream, mix, size) for _ in range(2)]
            yield gdpo_case(f"{'+'.join(mix)}-g{size}", groups, weights=WEIGHTS["unequal"][len(mix)])
    stream = Integers("components/many")
    many = [group_of(stream, ("binary", "halves", "lengths"), 8) for _ in range(24)]
    yield gdpo_case("binary+halves+lengths-24-groups-g8", many, weights=[1.0, 0.5, -0.1])


def structures() -> Iterator[Case]:
    """Columns that cancel, correlate or are flat; interleaved groups; equal prompts."""
    stream = Integers("components/structures")
    rising = [position / 4 for position in range(8)]
    falling = anti_ordered(stream, 8)
    constant_sum = component_rewards({"correct": rising, "format": [2.5 - x for x in rising]})
    opposite = component_rewards({"correct": rising, "format": falling})
    same = component_rewards({"correct": rising, "format": [3.0 * x for x in rising]})
    tenths = [k / 10 for k in (0, 1, 2, 3, 4, 5, 6, 7)]
    nearly_constant = component_rewards({"correct": tenths, "format": [0.7 - x for x in tenths]})
    all_flat = component_rewards({"correct": [0.2] * 8, "format": [0.1] * 8})
    one_flat = component_rewards({"correct": [0.2] * 8, "format": rising})
    permuted = component_rewards({"correct": [0.0, 1.0, 1.0, 0.0], "format": [1.0, 0.0, 0.0, 1.0]})
    named = {
        "constant-sum": constant_sum,
        "opposite": opposite,
        "same": same,
        "nearly-constant-sum": nearly_constant,
        "all-flat": all_flat,
        "one-flat": one_flat,
        "permuted": permuted,
    }
    for name, group in named.items():
        for kind in ("equal", "unequal", "neighbours", "negative"):
            yield gdpo_case(f"{name}-{kind}", [group], weights=WEIGHTS[kind][2])
    groups = [group_of(stream, ("scores", "halves"), 4) for _ in range(3)]
    interleaved = [group * 4 + member for member in range(4) for group in range(3)]
    yield gdpo_case("grouped-g4", groups, weights=[1.0, 0.3])
    yield gdpo_case("interleaved-g4", groups, weights=[1.0, 0.3], order=interleaved)
    yield gdpo_case("shuffled-g4", groups, weights=[1.0, 0.3], order=stream.shuffled(range(12)))
    yield gdpo_case("labels-g4", groups, weights=[1.0, 0.3], labels=(9, -1, 4))
    extra = [[{**reward, "unused": None} for reward in group] for group in groups]
    yield gdpo_case("unused-key-g4", extra, weights=[1.0, 0.3], note="a key that is no component is not looked at")
    yield gdpo_case("key-order-g4", groups, weights=[0.3, 1.0], keys=("format", "correct"))
    full = component_rewards({"correct": [FLOAT32_MAX, -FLOAT32_MAX, 0.0, 1.0], "format": [0.0, 1.0, 1.0, 0.0]})
    yield gdpo_case("both-ends-g4", [full], weights=[1.0, 1.0])
    yield gdpo_case("huge-weights-g4", [permuted], weights=[2.0**100, 2.0**99])
    yield gdpo_case("tiny-weights-g4", [permuted], weights=[2.0**-149, 2.0**-150])


def number_types() -> Iterator[Case]:
    """Real numbers of other types than float are numbers."""
    column = [0, 1, 1, 3]
    halves = [0.5, 0.0, 1.0, 0.5]
    types: dict[str, list[Any]] = {
        "int": column,
        "fraction": [Fraction(k, 4) for k in column],
        "numpy-float32": [np.float32(k / 8) for k in column],
        "numpy-float64": [np.float64(k / 10) for k in column],
        "numpy-int64": [np.int64(k) for k in column],
        "numpy-float16": [np.float16(k / 2) for k in column],
    }
    for name, values in types.items():
        group = component_rewards({"correct": values, "format": halves})
        yield gdpo_case(f"type-{name}", [group], weights=[1.0, 0.5])


def refusals() -> Iterator[Case]:
    """Each entry of the input contract: the message names component, sample position and group."""
    bad: dict[str, Any] = {
        "none": None,
        "true": True,
        "numpy-bool": np.bool_(True),
        "text": "1.0",
        "nan": float("nan"),
        "inf": float("inf"),
        "minus-inf": float("-inf"),
        "1e300": 1e300,
        "just-beyond-f32": FLOAT32_MAX * (1 + 2.0**-50),
        "complex": complex(1.0, 0.0),
        "list": [1.0],
        "numpy-nan": np.float32("nan"),
        "huge-int": 10**400,
    }
    for name, value in bad.items():
        yield gdpo_case(
            f"bad-{name}", planted({"correct": 1.0, "format": value}), weights=[1.0, 1.0], labels=(40, 41),
            error=("format", "sample 6", "41"),
        )  # fmt: skip
    whole: dict[str, Any] = {"number": 1.0, "none": None, "text": "good", "list": [1.0, 0.5], "tuple": (1.0, 0.5)}
    for name, value in whole.items():
        yield gdpo_case(
            f"reward-is-{name}", planted(value), weights=[1.0, 1.0], labels=(40, 41), error=("sample 6", "41")
        )
    yield gdpo_case(
        "missing-key", planted({"correct": 1.0}), weights=[1.0, 1.0], labels=(40, 41),
        error=("format", "sample 6", "41"),
    )  # fmt: skip
    good = [component_rewards({"correct": [0.0, 1.0, 1.0, 0.0], "format": [1.0, 0.5, 0.0, 1.0]}) for _ in range(2)]
    yield gdpo_case("no-group", good, weights=[1.0, 1.0], labels=(4, None), error=("group_index",))
    yield gdpo_case("size-g4-of-3", good, weights=[1.0, 1.0], group_size=3, error=("4", "3"))
    yield gdpo_case("split-label", good, weights=[1.0, 1.0], labels=(7, 7), group_size=4, error=("7", "8", "4"))
    yield gdpo_case(
        "overflow", good, weights=[1.0, 1e39], error=("format",),
        note="the combined value leaves float32: the component that dominates is named",
    )  # fmt: skip


def planted(reward: Any) -> list[list[Any]]:
    """Two groups of four in which the third sample of the second group has ``reward``."""
    good = component_rewards({"correct": [0.0, 1.0, 1.0, 0.0], "format": [1.0, 0.5, 0.0, 1.0]})
    return [list(good), [*good[:2], reward, good[3]]]
