"""The recorded exact GDPO values of ``data/gdpo-vectors.json`` as cases; what each must give stands beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from verification.cases.batches import batch_case
from verification.cases.case import Case
from verification.cases.components import gdpo_case
from verification.cases.samples import component_rewards

PATH = Path(__file__).parent / "data" / "gdpo-vectors.json"


@lru_cache(maxsize=1)
def recorded() -> dict[str, Any]:
    """The file as it is: ``combine`` (steps 1 and 2) and ``whiten`` (step 3), every number a hex text."""
    return json.loads(PATH.read_text(encoding="utf-8"))


def vector_cases() -> Iterator[Case]:
    """One case a vector, in the order of the file."""
    for vector in recorded()["combine"]:
        yield combine_case(vector)
    for vector in recorded()["whiten"]:
        values = [float.fromhex(text) for text in vector["values"]]
        yield batch_case(vector_name(vector), values, [len(values)], lengths=[1] * len(values))


def combine_case(vector: dict[str, Any]) -> Case:
    """Steps 1 and 2 of whole prompt groups."""
    weights = [float.fromhex(text) for text in vector["weights"]]
    keys = tuple(f"r{index}" for index in range(len(weights)))
    groups = []
    for rows in vector["groups"]:  # [G][K]
        columns = zip(*rows, strict=True)
        groups.append(component_rewards({k: [*map(float.fromhex, c)] for k, c in zip(keys, columns, strict=True)}))
    return gdpo_case(vector_name(vector), groups, weights=weights, keys=keys)


def vector_name(vector: dict[str, Any]) -> str:
    """``combine-0000-common`` as the rest of an id: ``vector-0000-common``."""
    number, kind = vector["name"].split("-", 2)[1:]
    return f"vector-{number}-{kind.replace('_', '-')}"


def expected_values() -> dict[str, list[float]]:
    """For each vector's case, by id: the scores of its samples, or the advantages, in order."""
    expected = {}
    for vector in recorded()["combine"]:
        identity = f"reward.normalize/gdpo/{vector_name(vector)}"
        expected[identity] = [float.fromhex(text) for group in vector["expected"] for text in group]
    for vector in recorded()["whiten"]:
        identity = f"advantage.estimate/gdpo/{vector_name(vector)}"
        expected[identity] = [float.fromhex(text) for text in vector["expected"]]
    return expected
