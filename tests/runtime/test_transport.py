"""The queue's contract, of the real one and of the one that tests without Ray use."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from typing import Any

import pytest
import torch

from relax.core.rows import row_keys
from relax.transport.queue import Queue, TransportError, start_queue
from relax.transport.values import to_bytes
from tests.runtime.local_queue import LocalQueue

VALUES: list[Any] = [
    torch.tensor([0.0, -0.0, float("nan"), float("-inf"), 1e-45]),
    torch.tensor([0x7F800001, -1], dtype=torch.int32).view(torch.float32),  # nans of other bits
    torch.empty(0),
    torch.empty(2, 0, 3, dtype=torch.float64),
    torch.tensor(7, dtype=torch.int64),
    torch.tensor([1.5, -2.25], dtype=torch.bfloat16),
    torch.tensor([[True], [False]]),
    torch.tensor([1 + 2j]),
    -(2**62) - 1,
    -0.0,
    5e-324,
    struct.unpack("<d", bytes.fromhex("010000000000f87f"))[0],
]


@pytest.fixture(params=["in one process", "TransferQueue"])
def rows(request: pytest.FixtureRequest) -> Queue | LocalQueue:
    """Both queues, one after the other."""
    return LocalQueue() if request.param == "in one process" else request.getfixturevalue("queue")


def test_bits(rows: Queue) -> None:
    """Values of every kind, ragged and empty, beside one another in one column, come back in any order to the bit."""
    keys = row_keys(1, range(len(VALUES)))
    rows.put(keys, {"any": VALUES, "number": list(range(len(VALUES)))})
    found = rows.get(keys[::-1], ["number", "any"])
    assert list(found) == ["number", "any"]
    assert list(range(len(VALUES)))[::-1] == found["number"]
    assert [to_bytes(value) for value in VALUES[::-1]] == [to_bytes(value) for value in found["any"]]


def test_columns_of_two_roles(rows: Queue) -> None:
    """Columns are added to rows there are, to some of them first, and one that is there is replaced."""
    keys = row_keys(2, range(4))
    rows.put(keys, {"tokens": [torch.arange(n) for n in range(4)]})
    rows.put(keys[2:], {"values": [0.5, 1.5]})
    rows.put(keys[:2], {"values": [2.5, 3.5], "tokens": [torch.arange(9), torch.arange(8)]})
    found = rows.get([keys[3], keys[0]], ["tokens", "values"])
    assert [[0, 1, 2], list(range(9))] == [tokens.tolist() for tokens in found["tokens"]]
    assert found["values"] == [1.5, 2.5]


def test_keys_and_drop(rows: Queue) -> None:
    """The rows held are listed in order; dropped ones are gone, and the others keep their values."""
    keys = row_keys(3, [2, 10, 0])
    rows.put(keys, {"number": [2, 10, 0]})
    own = [key for key in rows.keys() if key.startswith("000003/")]  # noqa: SIM118
    assert own == ["000003/000000", "000003/000002", "000003/000010"]
    rows.drop(keys[:1])
    assert [key for key in rows.keys() if key in keys] == ["000003/000000", "000003/000010"]  # noqa: SIM118
    assert rows.get(keys[1:], ["number"]) == {"number": [10, 0]}
    rows.drop(keys[1:])
    assert [key for key in rows.keys() if key in keys] == []  # noqa: SIM118


def test_nothing_asked_for(rows: Queue) -> None:
    """No rows, or no columns, are no work."""
    rows.put([], {"number": []})
    rows.drop([])
    assert rows.get([], ["number"]) == {"number": []}


def test_missing_row(rows: Queue) -> None:
    """A row that is not there is named: among others, alone, and after it was dropped."""
    keys = row_keys(4, range(3))
    rows.put(keys[:2], {"number": [0, 1]})
    expected = r"row '000004/000002' is not in the queue: it was never put, or it was dropped"
    for asked in (keys, keys[2:]):
        with pytest.raises(TransportError, match=expected):
            rows.get(asked, ["number"])
    with pytest.raises(TransportError, match=expected):
        rows.drop(keys)
    assert rows.get(keys[:2], ["number"]) == {"number": [0, 1]}
    rows.drop(keys[:1])
    with pytest.raises(TransportError, match="row '000004/000000' is not in the queue"):
        rows.get(keys[:2], ["number"])


def test_missing_column(rows: Queue) -> None:
    """A column that no row has, or that one row lacks, is named with that row."""
    keys = row_keys(5, range(3))
    rows.put(keys, {"number": [0, 1, 2]})
    rows.put(keys[:2], {"values": [0.5, 1.5]})
    with pytest.raises(TransportError, match="row '000005/000000' of the queue has no column 'kl'"):
        rows.get(keys, ["number", "kl"])
    with pytest.raises(TransportError, match="row '000005/000002' of the queue has no column 'values'"):
        rows.get(keys, ["number", "values"])


def test_refused(rows: Queue) -> None:
    """A row named twice, a column of another length and a value that cannot travel are refused, by their names."""
    keys = row_keys(6, range(2))
    with pytest.raises(TransportError, match="twice in one put"):
        rows.put([keys[0], keys[0]], {"number": [0, 1]})
    with pytest.raises(TransportError, match="column 'number' has 3 values for 2 rows of the queue"):
        rows.put(keys, {"number": [0, 1, 2]})
    with pytest.raises(TransportError, match=r"column 'text' of row '000006/000001' cannot be .* not str"):
        rows.put(keys, {"text": [0, "one"]})


def test_two_processes(queue: Queue) -> None:
    """What one process puts another gets to the bit, and the answer is there for the first."""
    import ray

    keys = row_keys(7, range(len(VALUES)))
    queue.put(keys, {"any": VALUES})
    assert ray.get(ray.remote(num_cpus=0)(_answer).remote(queue, keys), timeout=60) != 0
    found = queue.get(keys, ["any", "answer"])
    assert [to_bytes(value) for value in VALUES] == [to_bytes(value) for value in found["answer"]]


def _answer(queue: Queue, keys: list[str]) -> int:
    import os

    queue.put(keys, {"answer": queue.get(keys, ["any"])["any"]})
    return os.getpid()


def test_parts(queue: Queue) -> None:
    """Each process of the queue has a name, a handle and its process id, and all of them live."""
    assert list(queue.handles) == ["the queue's controller", "storage unit 0", "storage unit 1"]
    assert len(set(queue.processes.values())) == 3
    queue.require_alive()


def test_second_queue(queue: Queue) -> None:
    """One Ray has one queue at a time."""
    with pytest.raises(TransportError, match="a queue runs in this Ray already"), start_queue(1):
        raise AssertionError("started")


KILLS = """
import json, os, signal, time
from relax.core.cluster import cluster
from relax.transport.queue import TransportError, start_queue

def attempt(call):
    begun = time.monotonic()
    try:
        call()
    except TransportError as error:
        return str(error), time.monotonic() - begun

said = []
with cluster(4):
    try:
        with start_queue(4):
            pass
    except TransportError as error:
        said.append(["places", str(error), 0, 0])
    with start_queue(2, deadline=30) as queue:
        queue.put(["a", "b"], {"number": [1, 2]})
        for name in ("storage unit 1", "the queue's controller"):
            os.kill(queue.processes[name], signal.SIGKILL)
            for call in (
                lambda: queue.get(["a", "b"], ["number"]),
                lambda: queue.put(["a", "b"], {"other": [1, 2]}),
                lambda: queue.drop(["a", "b"]),
            ):
                text, seconds = attempt(call)
                said.append([name, text, queue.processes[name], seconds])
print(json.dumps(said))
"""


def test_dead_parts(tmp_path: Any) -> None:
    """A storage unit that died is named within seconds by each call, and so is the controller; the end is no hang."""
    done = subprocess.run([sys.executable, "-c", KILLS], capture_output=True, text=True, timeout=180, check=True)
    places, *kills = json.loads(done.stdout)
    assert places[1] == (
        "the queue needs 5 logical CPUs of Ray, one for itself and one a storage unit, and 4 are free: raise "
        "--ray-logical-cpus"
    )
    assert len(kills) == 6
    for name, said, process, seconds in kills:
        assert f"{name} (process {process}) died, and what it held is lost" == said
        assert seconds < 20
    assert done.stderr == ""
