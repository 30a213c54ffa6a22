"""Samples as the reward stage takes them: mappings with the fields of ``Sample``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verification.cases.case import Case


def samples_of(
    groups: Sequence[Sequence[Any]], *, labels: Sequence[Any] | None = None, **columns: Sequence[Any]
) -> list[dict[str, Any]]:
    """One sample for each reward of ``groups``, group after group; ``labels`` are the groups' indices.

    ``columns`` add a field to every sample, one value each, in the order of the samples.
    """
    labels = range(len(groups)) if labels is None else labels
    samples: list[dict[str, Any]] = []
    for label, group in zip(labels, groups, strict=True):
        for reward in group:
            samples.append({"index": len(samples), "group_index": label, "reward": reward, "response_length": 4})
    for name, values in columns.items():
        for sample, value in zip(samples, values, strict=True):
            sample[name] = value
    return samples


def component_rewards(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """The rewards of one group from its columns: ``{"a": [1, 2]}`` gives ``[{"a": 1}, {"a": 2}]``."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def normalize_case(
    algorithm: str,
    rest: str,
    samples: Sequence[Mapping[str, Any]],
    *,
    group_size: int,
    error: tuple[str, ...] | None = None,
    note: str = "",
    tags: tuple[str, ...] = (),
    **options: Any,
) -> Case:
    """A case of ``reward.normalize``."""
    return Case(
        id=f"reward.normalize/{algorithm}/{rest}",
        stage="reward.normalize",
        algorithm=algorithm,
        inputs={"samples": tuple(samples)},
        options={"n_samples_per_prompt": group_size, **options},
        error=error,
        note=note,
        tags=tags,
    )


def signal_case(
    algorithm: str,
    rest: str,
    samples: Sequence[Mapping[str, Any]],
    *,
    error: tuple[str, ...] | None = None,
    note: str = "",
    tags: tuple[str, ...] = (),
    **options: Any,
) -> Case:
    """A case of ``reward.signal``: the samples are one group."""
    return Case(
        id=f"reward.signal/{algorithm}/{rest}",
        stage="reward.signal",
        algorithm=algorithm,
        inputs={"samples": tuple(samples)},
        options={"n_samples_per_prompt": len(samples), **options},
        error=error,
        note=note,
        tags=tags,
    )
