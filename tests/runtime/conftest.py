"""One training process, alone, for the tests that need no peers."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from verification.ranks.pool import RankPool

NEEDED = {"megatron": "megatron-core", "reasoning_gym": "reasoning-gym", "safetensors": "safetensors"}


def pytest_ignore_collect() -> bool | None:
    """Without what a run is made of there is nothing to collect here."""
    return True if any(importlib.util.find_spec(name) is None for name in NEEDED) else None


# Megatron's row-parallel layer warns, at every forward pass, of an argument that it itself leaves out.
OF_MEGATRON = "ignore:Warning. tp_group is None:DeprecationWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lets that one warning pass in the tests of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(OF_MEGATRON))


@pytest.fixture(scope="module")
def alone() -> Iterator[None]:
    """The groups of megatron for this process, until the module's last test."""
    from relax.backends.megatron.ranks import ranks

    with ranks():
        yield


@pytest.fixture(scope="session")
def pool() -> Iterator[RankPool]:
    """Ranks for the tests that need peers."""
    with RankPool() as found:
        yield found
