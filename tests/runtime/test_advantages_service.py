"""The advantages role behind Ray Serve: the bits of the role itself and of two ranks, errors as data, and its death."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from relax.components.advantages import Advantages
from relax.components.advantages_service import AdvantagesService, ServiceError, deploy_advantages, stop_advantages
from relax.core.role_process import Failure
from relax.core.rows import batch_keys, rollout_keys
from relax.transport.queue import Queue
from relax.transport.values import to_bytes
from tests.runtime.advantage_rows import WRITTEN, bits_of, filled, options

ARGS = options("gdpo", "--num-iters-per-train-update", "4")
INPUTS = ("rewards", "response_lengths", "loss_masks", "rollout_log_probs", "log_probs", "ref_log_probs")


@pytest.fixture(scope="module")
def service(queue: Queue) -> Iterator[AdvantagesService]:
    """One replica for the tests of this module, whose rows are in the queue."""
    local = filled(ARGS)
    keys = [key for rollout in range(2) for key in rollout_keys(ARGS, rollout)]
    queue.put(keys, local.get(keys, INPUTS))
    yield deploy_advantages(ARGS, queue)
    stop_advantages()
    queue.drop(keys)


def test_bits(service: AdvantagesService, queue: Queue) -> None:
    """Slices in any order give each row of a batch the bits that the role gives it in this process."""
    local = filled(ARGS)
    for batch in range(2):
        keys = batch_keys(ARGS, batch)
        role = Advantages(ARGS, local)
        for slice in range(4):
            role.add(batch, slice)
        calls = [service.call("add", {"batch": batch, "slice": slice}) for slice in (2, 0, 3, 1)]
        whitened = [call.result(timeout=60)["whitened"] for call in calls]
        assert max(whitened) == 8 * (batch + 1)
        found = queue.get(keys, WRITTEN)
        columns = [{name: to_bytes(found[name][row]) for name in WRITTEN} for row in range(len(keys))]
        assert bits_of(local, keys) == columns


def test_failure(service: AdvantagesService) -> None:
    """What the role refuses comes back as data, and the service goes on."""
    found = service.call("add", {"batch": 1, "slice": 0}).result(timeout=60)
    assert isinstance(found, Failure)
    assert found.kind == "ValueError"
    assert found.message.startswith("slice 0 of batch 1 was given to the advantages before")
    assert service.process != os.getpid()
    service.require_alive()


def test_death(service: AdvantagesService) -> None:
    """A replica that was killed is one clear error at once, and still when Serve has started another."""
    os.kill(service.process, signal.SIGKILL)
    begun = time.monotonic()
    expected = rf"the advantages replica \(process {service.process}\) died, and the rows that it had gathered are lost"
    with pytest.raises(ServiceError, match=expected):
        service.call("add", {"batch": 2, "slice": 0}).result(timeout=60)
    assert time.monotonic() - begun < 10
    with pytest.raises(ServiceError, match=expected):
        service.require_alive()
    another = service.handle.process.remote().result(timeout_s=60)
    assert another != service.process
    assert service.handle.call.remote(service.process, "add", {"batch": 2, "slice": 0}).result(timeout_s=60) == (
        another,
        None,
    )
