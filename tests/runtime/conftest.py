"""What the tests of the runtime share: one training process without peers, ranks, a Ray and its queue."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from relax.transport.queue import Queue
from verification.ranks.pool import RankPool

NEEDED = {"megatron": "megatron-core", "reasoning_gym": "reasoning-gym", "safetensors": "safetensors"}
WITH_RAY = {
    "test_transport.py",
    "test_cluster.py",
    "test_advantages_service.py",
    "test_kills.py",
    "test_real_runs.py",
    "test_controller.py",
    "test_gdpo_example_runs.py",
    "test_train_command.py",
    "test_train_errors.py",
    "test_train_odd_rewards.py",
}
LOGICAL_CPUS = 16


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Without what a run is made of there is nothing to collect here, and without Ray not what needs it."""
    if any(importlib.util.find_spec(name) is None for name in NEEDED):
        return True
    without_ray = any(importlib.util.find_spec(name) is None for name in ("ray", "transfer_queue"))
    return True if without_ray and collection_path.name in WITH_RAY else None


# Megatron's row-parallel layer warns, at every forward pass, of an argument that it itself leaves out.
OF_MEGATRON = "ignore:Warning. tp_group is None:DeprecationWarning"
# Ray Serve declares its options in a way that pydantic would like to see changed.
OF_SERVE = "ignore:Using extra keyword arguments on `Field`:DeprecationWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lets those warnings pass in the tests of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(OF_MEGATRON, OF_SERVE))


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


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One Ray for every test of this process that needs one."""
    from relax.core.cluster import cluster

    with cluster(LOGICAL_CPUS):
        yield


@pytest.fixture(scope="session")
def queue(ray_cluster: None) -> Iterator[Queue]:
    """One queue for every test of this process that needs one: each test has keys of its own."""
    from relax.transport.queue import start_queue

    with start_queue(2) as found:
        yield found
