"""A Ray of a run's own: what prevents it is one line with the remedy, and nothing of it is left."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import relax.core.cluster as cluster_module
from relax.core.cluster import ClusterError, cluster


def refused(logical_cpus: int = 4, **options: Any) -> str:
    """The error of a cluster that must not start."""
    with pytest.raises(ClusterError) as caught, cluster(logical_cpus, **options):
        raise AssertionError("started")
    said = str(caught.value)
    assert "\n" not in said
    return said


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process in which no other test has started a Ray."""
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)


def test_too_few_places() -> None:
    """Fewer logical CPUs than processes that reserve one would wait for ever: both numbers and the option are named."""
    assert refused(2, needed=7) == (
        "7 processes of this run need a logical CPU of Ray each, and it is to have 2: pass --ray-logical-cpus 7 or "
        "more (they may be more than the machine has cores)"
    )


@pytest.mark.parametrize("address", ["127.0.0.1:1", "auto", "ray://elsewhere:10001"])
def test_foreign_address(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """An address of another Ray, dead or alive, is not joined."""
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert refused() == (
        f"RAY_ADDRESS is '{address}', and a run starts a Ray of its own on this machine: unset RAY_ADDRESS"
    )


@pytest.mark.usefixtures("without_ray")
def test_full_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A temporary folder without space is said before Ray fails in it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=5 * 2**20 + 1))
    assert refused() == (
        f"the temporary folder {tmp_path} has 5 MiB free and Ray needs 256: free some, or set TMPDIR to a folder with "
        "more"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_ray")
def test_long_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A path that Ray's sockets do not fit into is said before Ray fails on it, and nothing is left there."""
    parent = tmp_path / "a-temporary-folder-with-a-long-name"
    parent.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(parent))
    assert refused() == (
        f"the path of the temporary folder {parent} is too long for Ray's sockets: set TMPDIR to a path of at most 25 "
        "bytes, such as /tmp"
    )
    assert list(parent.iterdir()) == []


@pytest.mark.usefixtures("without_ray")
def test_ray_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Ray says in lines is told in one, and the folder that was made for it is gone."""
    import ray

    def fail(**options: Any) -> None:
        folders.append(Path(options["_temp_dir"]))
        raise RuntimeError("no memory\nand a page of advice")

    folders: list[Path] = []
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray, "init", fail)
    assert refused() == "Ray did not start: RuntimeError: no memory and a page of advice"
    assert [folder.exists() for folder in folders] == [False]


@pytest.mark.usefixtures("without_ray")
def test_a_start_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told at the deadline, and is not waited for as long again."""
    import ray

    over, ended = threading.Event(), threading.Event()
    monkeypatch.setattr(cluster_module, "ENDING", 0.1)
    monkeypatch.setattr(ray, "shutdown", ended.set)
    monkeypatch.setattr(ray, "init", lambda **options: over.wait(60))
    begun = time.monotonic()
    assert refused(deadline=3.0) == (
        "Ray did not start within 3 s: this machine is busy, or short of memory or of processes; start again when it "
        "has some"
    )
    assert 3.0 < time.monotonic() - begun < 5.5
    over.set()
    assert ended.wait(10)  # or the thread would end the Ray of the next test


def test_second_ray(ray_cluster: None) -> None:
    """One process starts one Ray at a time."""
    assert refused() == "a Ray runs in this process already: a run starts its own, one at a time"


KNOWN_PORTS = (6379, 8000, 8265, 10001)  # of Ray's head, of Serve, of the dashboard, and of Ray's clients
STARTS = """
import os, sys, time
from pathlib import Path
from relax.core.cluster import ClusterError, cluster
from relax.core.guard import guarded, processes_of

def descendants():
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            pass
    found, more = set(), {os.getpid()}
    while more:
        found |= more
        more = {child for child, parent in parents.items() if parent in more}
    return found - {os.getpid()}

with guarded("") as run:
    (guard,) = descendants()
    told = []
    with cluster(3, announce=told.append) as folder:
        import ray

        @ray.remote(num_cpus=0, max_restarts=0)
        class Noisy:
            def die(self):
                import os, sys
                print("on stdout"), print("on stderr", file=sys.stderr)
                os.kill(os.getpid(), 9)

        assert [folder] == told and folder.is_dir()
        assert 3 == ray.cluster_resources()["CPU"]
        time.sleep(2)  # for those that Ray starts behind its start
        assert set(processes_of(run.name)) == descendants() - {guard}
        assert 4 < len(processes_of(run.name))
        try:
            ray.get(Noisy.remote().die.remote())
        except ray.exceptions.RayActorError:
            pass
        else:
            raise AssertionError("lives")
    assert not folder.exists()
    try:
        with cluster(3, deadline=0.01, announce=told.append):
            raise AssertionError("started")
    except ClusterError as error:
        assert "Ray did not start within 0.01 s" in str(error), error
    assert not told[1].exists()
assert [] == processes_of(run.name)
"""


def test_nothing_is_left_or_said() -> None:
    """Ray has the places it is given and prints nothing, even where a process dies; it ends with its folder, whether
    it started in time or not, and needs none of the ports that people know."""
    with contextlib.ExitStack() as taken:
        for port in KNOWN_PORTS:
            with contextlib.suppress(OSError):  # taken by somebody else: as good
                taken.enter_context(socket.create_server(("", port)))
        done = subprocess.run([sys.executable, "-c", STARTS], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
