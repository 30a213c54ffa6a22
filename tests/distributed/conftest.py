"""One pool of ranks for all tests of a session."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from verification.ranks.pool import RankPool


@pytest.fixture(scope="session")
def pool() -> Iterator[RankPool]:
    """Worlds that stay warm from test to test."""
    with RankPool() as ranks:
        yield ranks


@pytest.fixture(scope="session")
def megatron() -> None:
    """Taken by a test that needs megatron's groups; pure data parallelism does without."""
    if importlib.util.find_spec("megatron") is None:
        pytest.skip("megatron-core is not installed: pip install -e '.[megatron]'")
