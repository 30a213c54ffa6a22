"""A Ray of this run's own on this machine: started quietly, ended without a trace, its failures said in one line."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from pathlib import Path

from relax.core.one_line import kind_and_line

DEADLINE = 60.0  # seconds for Ray to start; 5 are usual
ENDING = 30.0  # seconds for Ray to end; 2 are usual
LONGEST_FOLDER = 40  # bytes; Ray adds 65 for its sockets, and Linux ends a socket's path at 107
LEAST_SPACE = 256 * 2**20  # bytes free in the temporary folder: Ray's logs, and what it spills there
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # tells nobody
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # prints none of its own
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a role without a GPU of Ray's still sees those of its environment
    "OMP_NUM_THREADS": "1",  # one thread a role: there are more roles than cores, and sums keep their order
    "TQ_LOGGING_LEVEL": "CRITICAL",  # TransferQueue logs what is raised anyway
    "TQ_NUM_THREADS": "1",
    "TQ_CLIENT_ZMQ_IO_THREADS": "1",
}


class ClusterError(RuntimeError):
    """Ray cannot be started here, or did not start; one line with the remedy."""


@contextlib.contextmanager
def cluster(
    logical_cpus: int,
    *,
    needed: int = 1,
    deadline: float = DEADLINE,
    announce: Callable[[Path], None] = lambda folder: None,
) -> Iterator[Path]:
    """Runs a Ray with ``logical_cpus``, of which what is to be started reserves ``needed``; gives its folder.

    A logical CPU is a place for a process, not a core: Ray starts no more processes than it has places for, and what
    finds none waits without a word. No port is fixed, and nothing outlives the block, the folder included;
    ``announce`` is told of the folder before Ray starts, so that somebody can remove it if this process is killed.
    """
    _require_places(logical_cpus, needed)
    _require_no_other()
    os.environ.update({name: value for name, value in SETTINGS.items() if name not in os.environ})
    folder = _folder()
    try:
        announce(folder)
        with _ray(logical_cpus, folder, deadline):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _require_places(logical_cpus: int, needed: int) -> None:
    if logical_cpus < needed:
        raise ClusterError(
            f"{needed} processes of this run need a logical CPU of Ray each, and it is to have {logical_cpus}: pass "
            f"--ray-logical-cpus {needed} or more (they may be more than the machine has cores)"
        )


def _require_no_other() -> None:
    address = os.environ.get("RAY_ADDRESS")
    if address:
        raise ClusterError(
            f"RAY_ADDRESS is {address!r}, and a run starts a Ray of its own on this machine: unset RAY_ADDRESS"
        )
    import ray

    if ray.is_initialized():
        raise ClusterError("a Ray runs in this process already: a run starts its own, one at a time")


def _folder() -> Path:
    """A new folder for Ray, where it fits."""
    parent = Path(tempfile.gettempdir())
    free = shutil.disk_usage(parent).free
    if free < LEAST_SPACE:
        raise ClusterError(
            f"the temporary folder {parent} has {free // 2**20} MiB free and Ray needs {LEAST_SPACE // 2**20}: free "
            "some, or set TMPDIR to a folder with more"
        )
    folder = Path(tempfile.mkdtemp(prefix="relax-"))
    if len(os.fsencode(folder)) > LONGEST_FOLDER:
        folder.rmdir()
        raise ClusterError(
            f"the path of the temporary folder {parent} is too long for Ray's sockets: set TMPDIR to a path of at "
            f"most {LONGEST_FOLDER - len(folder.name) - 1} bytes, such as /tmp"
        )
    return folder


@contextlib.contextmanager
def _ray(logical_cpus: int, folder: Path, deadline: float) -> Iterator[None]:
    """Ray, started and ended by a thread of its own, so that a start that hangs is an error too.

    The thread stays until the end: Linux ends Ray's processes when the thread that started them does.
    """
    started: Future[None] = Future()
    over = threading.Event()
    thread = threading.Thread(target=_run_ray, args=(logical_cpus, folder, started, over), daemon=True)
    thread.start()
    try:
        if not wait([started], timeout=deadline).done:
            raise ClusterError(
                f"Ray did not start within {deadline:g} s: this machine is busy, or short of memory or of processes; "
                "start again when it has some"
            )
        error = started.exception()
        if error is not None:
            raise ClusterError(f"Ray did not start: {kind_and_line(error)}") from error
        yield
    finally:
        over.set()
        thread.join(ENDING)


def _run_ray(logical_cpus: int, folder: Path, started: Future[None], over: threading.Event) -> None:
    import ray

    try:
        ray.init(
            address="local",
            num_cpus=logical_cpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=str(folder),
        )
        ray._private.worker._worker_logs_enabled = (
            False  # else Ray prints a page where a process dies: no option does it
        )
        started.set_result(None)
        over.wait()
    except BaseException as error:
        started.set_exception(error)
    finally:
        ray.shutdown()


def processes_of_ray() -> dict[str, int]:
    """The ids of the two processes that a Ray started here cannot be without, by what an error calls them (Linux)."""
    named = {"gcs_server": "Ray's head (gcs_server)", "raylet": "Ray's node (raylet)"}
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            program = Path(os.fsdecode((folder / "cmdline").read_bytes().split(b"\0")[0])).name
            if parent == os.getpid() and program in named:
                found[named[program]] = int(folder.name)
    return found
