"""Reading rewards off samples: whole prompt groups, real numbers, and an error that says what, where and the remedy."""

from __future__ import annotations

import numbers
from argparse import Namespace
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from relax.component_options import check_components
from relax.types import Sample

_FLOAT32_MAX = float(np.finfo(np.float32).max)


def component_weights(args: Namespace) -> list[float]:
    """One weight for each key of ``--gdpo-reward-keys``, all 1 where none are given. Raises ValueError."""
    return check_components(args.gdpo_reward_keys, args.gdpo_reward_weights)


def picked_rewards(samples: Sequence[Sample], key: str) -> list[Any]:
    """``reward[key]`` of each sample. Raises KeyError or TypeError that name the sample."""
    rewards = []
    for position, sample in enumerate(samples):
        if not isinstance(sample.reward, Mapping):
            raise TypeError(
                f"the reward of {place(samples, position)} is {_shown(sample.reward)}: "
                f"--reward-key {key!r} needs a mapping"
            )
        if key not in sample.reward:
            error = KeyError(f"the reward of {place(samples, position)} has no key {key!r}, which --reward-key names")
            error.add_note(f"give --reward-key one of those that it has: {', '.join(map(repr, sample.reward))}")
            raise error
        rewards.append(sample.reward[key])
    return rewards


def extract_reward_components(args: Namespace, samples: Sequence[Sample]) -> np.ndarray:
    """The reward components of ``--gdpo-reward-keys``: float64 ``[n, K]``.

    Refuses, with a ValueError that names component, sample and group: a reward that is no mapping, a missing key, a
    value that is no real number (None, text, a bool), not finite, or beyond float32.
    """
    keys = args.gdpo_reward_keys or ()
    rows = []
    for position, sample in enumerate(samples):
        if not isinstance(sample.reward, Mapping):
            raise ValueError(
                f"the reward of {place(samples, position)} is {_shown(sample.reward)}: "
                f"expected a mapping with the keys {', '.join(map(repr, keys))}"
            )
        try:
            rows.append([sample.reward[key] for key in keys])
        except KeyError as error:
            raise ValueError(
                f"reward {error} of {place(samples, position)} is missing: "
                "every sample needs each key of --gdpo-reward-keys"
            ) from None
    plain = all(set(map(type, row)) <= {float, int} for row in rows)
    if plain:
        try:
            components = np.array(rows, dtype=np.float64).reshape(len(rows), len(keys))
        except OverflowError:  # an int beyond float64
            plain = False
    if plain and (np.abs(components) <= _FLOAT32_MAX).all():
        return components
    checked = [
        [finite_number(value, key, samples, position) for key, value in zip(keys, row, strict=True)]
        for position, row in enumerate(rows)
    ]
    return np.array(checked, dtype=np.float64).reshape(len(rows), len(keys))


def group_positions(samples: Sequence[Sample], group_size: int) -> np.ndarray:
    """The positions of each prompt group's samples, ascending, groups in order of first appearance: int64 ``[P, G]``.

    Raises ValueError for a missing ``group_index`` and for a group of another size than ``group_size``.
    """
    groups: dict[Hashable, list[int]] = {}
    for position, sample in enumerate(samples):
        try:
            groups.setdefault(sample.group_index, []).append(position)
        except TypeError:  # unhashable
            raise _no_group(samples, position) from None
    nameless = [members[0] for index, members in groups.items() if index is None or index != index]  # nan is not itself
    if nameless:
        raise _no_group(samples, nameless[0])
    for index, members in groups.items():
        if len(members) != group_size:
            raise ValueError(
                f"group {index} has {len(members)} samples where --n-samples-per-prompt is {group_size}: "
                "the reward stage needs whole prompt groups"
            )
    return np.array(list(groups.values()), dtype=np.int64).reshape(len(groups), group_size)


def _no_group(samples: Sequence[Sample], position: int) -> ValueError:
    return ValueError(
        f"sample {position} has no group_index (it is {_shown(samples[position].group_index)}): "
        "the reward stage needs the prompt group of each sample"
    )


def real_numbers(samples: Sequence[Sample], rewards: Sequence[Any], name: str = "reward") -> list[float]:
    """``rewards`` as floats, NaN and infinities too; a TypeError or ValueError that names what is no real number."""
    if set(map(type, rewards)) <= {float}:
        return list(rewards)
    floats = []
    for position, reward in enumerate(rewards):
        if not isinstance(reward, numbers.Real):
            raise TypeError(
                f"the {name} of {place(samples, position)} is {_shown(reward)}: expected a real number"
                + (" (--reward-key picks one of several)" if isinstance(reward, Mapping) else "")
            )
        try:
            floats.append(float(reward))
        except OverflowError:
            raise ValueError(
                f"the {name} of {place(samples, position)} is {_shown(reward)}: it must be within float64's range"
            ) from None
    return floats


def finite_number(value: Any, key: str | None, samples: Sequence[Sample], position: int) -> float:
    """``value`` as a finite double within float32's range, or a ValueError that names component, sample and group."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
    try:
        number = float(value) if real else float("nan")
    except OverflowError:
        number = float("inf")
    if abs(number) <= _FLOAT32_MAX:
        return number
    name = "the reward" if key is None else f"reward {key!r}"
    expected = "at most 3.4028235e38 in magnitude" if real and np.isfinite(number) else "a finite real number"
    raise ValueError(f"{name} of {place(samples, position)} is {_shown(value)}: a reward must be {expected}")


def place(samples: Sequence[Sample], position: int) -> str:
    """How messages name a sample."""
    return f"sample {position} (group {samples[position].group_index})"


def _shown(value: Any) -> str:
    try:
        shown = repr(value)
    except ValueError:  # an int with more digits than Python prints
        return f"an int of {value.bit_length()} bits"
    return shown if len(shown) <= 40 else f"{shown[:37]}..."
