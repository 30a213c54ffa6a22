"""A process of a run is killed: one clear error that names it, nothing left behind, and the bits of a run that was
never killed when it goes on with ``--load``.

The driver and a storage unit are taken from runs of the command line, each of which goes on from what the one before
it left; the actor and the advantages replica from runs on the Ray and the queue of all tests. They are taken before a
unit of the schedule or in the middle of it, so that each test is the same every time.
"""

from __future__ import annotations

import shutil
from argparse import Namespace
from concurrent.futures import Future
from pathlib import Path

import pytest

from relax.arguments import parse_args
from relax.core.checkpoint import checkpoints, open_checkpoint
from relax.core.cluster import processes_of_ray
from relax.core.controller import Controller
from relax.core.counts import Counted
from relax.core.deadline import in_thread
from relax.core.execution import RunError
from relax.core.processes import is_running
from relax.core.rows import rollout_keys
from relax.transport.queue import Queue
from tests.runtime.in_process import TINY, InProcess
from tests.runtime.killed_runs import STOPPED_FILE, Kill, contents, kill_at, run, wait_for

pytestmark = pytest.mark.usefixtures("alone")

ROLLOUTS, SAMPLES = 3, 48
GDPO = ["--advantage-estimator", "gdpo", "--gdpo-reward-keys", "correctness", "format", "--global-batch-size", "8"]
COLOCATED = [*GDPO, "--num-rollout", str(ROLLOUTS)]
ASYNCHRONOUS = [
    *(*COLOCATED, "--fully-async", "--true-on-policy-mode", "--max-staleness", "2"),
    *("--num-iters-per-train-update", "2"),
]


def arguments(options: list[str], folder: Path) -> Namespace:
    """The options of a run that saves after each rollout."""
    return parse_args([*TINY, *options, "--save", str(folder), "--save-interval", "1"])


@pytest.fixture(scope="module")
def uninterrupted(alone: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The checkpoints of runs that nothing happened to, in one process."""
    folders = {}
    for name, options in (("colocated", COLOCATED), ("asynchronous", ASYNCHRONOUS)):
        folders[name] = tmp_path_factory.mktemp(name)
        InProcess(arguments(options, folders[name])).run()
    return folders


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A new folder with a path that is short enough for Ray's sockets."""
    import tempfile

    return Path(tempfile.mkdtemp(dir="/tmp", prefix="k-"))


def test_driver(uninterrupted: dict[str, Path], folder: Path) -> None:
    """Five times over: the guard says that the driver died and how to go on; nothing but the checkpoints is left."""
    kills = [
        Kill("checkpoint 0, part rollout"),
        Kill("advantages of slice 1 of batch 0"),
        Kill("train on batch 1"),
        Kill("checkpoint 2 committed"),
        Kill("rollout 2 reported"),
    ]
    for kill in kills:
        ended = run(ASYNCHRONOUS, folder, "driver", kill)
        assert ended.status == -9
        said, driver = ended.error.splitlines(), ended.processes["driver"]
        assert len(said) == 1
        assert said[0].startswith(f"relax: the driver (process {driver}) died without a word: ")
        assert said[0].endswith(f"; continue with --load {folder / 'saved'}")
    _goes_on(ASYNCHRONOUS, folder, uninterrupted["asynchronous"])


def test_storage_unit(uninterrupted: dict[str, Path], folder: Path) -> None:
    """Five times over, idle and at work: the run ends with one line that names the unit."""
    kills = [
        Kill("generate rollout 0", amid=True),
        Kill("prepare batch 0", amid=True),
        Kill("train on batch 1"),
        Kill("batch 3 dropped", amid=True),
        Kill("checkpoint 3, part actor"),
    ]
    for number, kill in enumerate(kills):
        _fails(COLOCATED, folder, f"storage unit {number % 2}", kill, "died, and what it held is lost")
    _goes_on(COLOCATED, folder, uninterrupted["colocated"])


def test_each_part(uninterrupted: dict[str, Path], folder: Path) -> None:
    """Roles and Ray's own processes too: one line that names what died, nothing left, and on it goes."""
    killed = "it was killed, or ran out of memory"
    idle = f"died between two units of work: {killed}"
    _fails(ASYNCHRONOUS, folder, "actor", Kill("train on batch 0", amid=True), f"died at 'train on batch 0': {killed}")
    _fails(ASYNCHRONOUS, folder, "rollout", Kill("generate rollout 1"), f"died at 'generate rollout 1': {killed}")
    kill = Kill("advantages of slice 1 of batch 1", amid=True)
    lost = "died, and the rows that it had gathered are lost"
    _fails(ASYNCHRONOUS, folder, "advantages", kill, lost, name="the advantages replica")
    _fails(ASYNCHRONOUS, folder, "Ray's node (raylet)", Kill("checkpoint 2 committed"), idle)
    _fails(ASYNCHRONOUS, folder, "Ray's head (gcs_server)", Kill("train on batch 4"), idle)
    _goes_on(ASYNCHRONOUS, folder, uninterrupted["asynchronous"])


def _fails(options: list[str], folder: Path, who: str, kill: Kill, died: str, *, name: str | None = None) -> None:
    """The run ends with status 1 and one line on stderr: who ``died``, how, and how to go on."""
    ended = run(options, folder, who, kill)
    line = f"relax: error: {name or who} (process {ended.processes[who]}) {died}; continue with --load"
    *others, last = ended.error.splitlines()
    assert (ended.status, last) == (1, f"{line} {folder / 'saved'}")
    # Ray's library, which no option keeps quiet, says of itself that it has lost its own processes.
    assert others == [] or who.startswith("Ray's")


def _goes_on(options: list[str], folder: Path, expected: Path) -> None:
    """The run goes on to its end: every sample counted once, and the bits of the uninterrupted run."""
    ended = run(options, folder)
    assert (ended.status, ended.error) == (0, "")
    assert ended.out.endswith(f"generated {SAMPLES} == enqueued {SAMPLES} == trained {SAMPLES}\n")
    assert contents(folder / "saved", ROLLOUTS) == contents(expected, ROLLOUTS)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "kill",
    [
        Kill("checkpoint 0, part actor"),
        Kill("prepare batch 0", amid=True),
        Kill("train on batch 1", amid=True),
        Kill("checkpoint 2, part actor", amid=True),
        Kill("weights 4"),
    ],
    ids=lambda kill: kill.unit,
)
def test_actor(
    kill: Kill, tmp_path: Path, queue: Queue, uninterrupted: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the actor, its process and its work; the run goes on to the bits of the uninterrupted one."""
    said, process = _failed(COLOCATED, "actor", kill, tmp_path, queue, monkeypatch)
    assert said == f"actor (process {process}) died at '{kill.unit}': it was killed, or ran out of memory"
    _goes_on_in_process(COLOCATED, tmp_path, uninterrupted["colocated"])


def test_one_rank(tmp_path: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two ranks the one that was killed is named, and not the one that waited for it in vain."""
    options, kill = [*COLOCATED, "--data-parallel-size", "2"], Kill("train on batch 1", amid=True)
    said, process = _failed(options, "actor rank 1", kill, tmp_path, queue, monkeypatch)
    assert said == f"actor rank 1 (process {process}) died at '{kill.unit}': it was killed, or ran out of memory"


@pytest.mark.parametrize(
    "kill",
    [
        Kill("generate rollout 0"),
        Kill("advantages of slice 0 of batch 0"),
        Kill("advantages of slice 1 of batch 1", amid=True),
        Kill("train on batch 2"),
        Kill("advantages of slice 0 of batch 4", amid=True),
    ],
    ids=lambda kill: kill.unit,
)
def test_advantages(
    kill: Kill, tmp_path: Path, queue: Queue, uninterrupted: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the replica, whether it had gathered rows or not; the run goes on as if nothing had been."""
    said, process = _failed(ASYNCHRONOUS, "advantages", kill, tmp_path, queue, monkeypatch)
    assert said == (f"the advantages replica (process {process}) died, and the rows that it had gathered are lost")
    _goes_on_in_process(ASYNCHRONOUS, tmp_path, uninterrupted["asynchronous"])


class Silent:
    """A progress that nobody looks at."""

    def step(self, row: dict[str, float | int]) -> None:
        """Nothing."""


def _failed(
    options: list[str], who: str, kill: Kill, folder: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, int]:
    """The error of a run in the Ray of the tests from which ``who`` is taken, and the process that it was."""
    stopped = folder / "stopped.json"
    monkeypatch.setenv("RELAX_STOP_BEFORE", kill.unit)
    monkeypatch.setenv(STOPPED_FILE, str(stopped))
    killing: Future[dict[str, int]] = in_thread(lambda: kill_at(stopped, who, kill))
    controller = Controller(arguments(options, folder / "saved"), queue, Silent(), folder)
    with pytest.raises(RunError) as caught:
        controller.run()
    processes = killing.result(timeout=0)
    others = {"driver", *processes_of_ray(), *queue.processes}
    own = [pid for name, pid in processes.items() if name not in others]
    wait_for(lambda: not any(map(is_running, own)), seconds=20)
    queue.drop(queue.keys())
    return str(caught.value), processes[who]


def _goes_on_in_process(options: list[str], folder: Path, expected: Path) -> None:
    """The run goes on from its latest checkpoint to the bits of the uninterrupted one; samples before it and since are
    all of them, each once."""
    saved = folder / "saved"
    done = checkpoints(saved)
    before = open_checkpoint(saved).facts("run")["counts"]["trained"] if done else {}
    resumed = InProcess(arguments(options, saved), load=saved if done else None).run()
    trained = [Counted(**before), *(facts["trained"] for facts in resumed.of("train on batch"))]
    keys = [key for rollout in range(ROLLOUTS) for key in rollout_keys(resumed.args, rollout)]
    assert Counted.all_of(trained) == Counted.of(keys)
    assert contents(saved, ROLLOUTS) == contents(expected, ROLLOUTS)
