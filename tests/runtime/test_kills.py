"""A process of a run is killed: one clear error that names it, nothing left behind, and the bits of a run that was
never killed when it goes on with ``--load``.

The driver and a storage unit are taken from runs of the command line, each of which goes on from what the one before
it left; they run beside the other tests, since a start and an end wait more than they work. The actor and the
advantages replica are taken from runs on the Ray and the queue of all tests. All are taken before a unit of the
schedule or in the middle of it, so that each test is the same every time.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from relax.arguments import parse_args
from relax.core.checkpoint import checkpoints, open_checkpoint
from relax.core.cluster import processes_of_ray
from relax.core.controller import STOP_BEFORE, STOPPED_FILE, Controller
from relax.core.counts import Counted
from relax.core.deadline import in_thread
from relax.core.execution import RunError
from relax.core.processes import is_running
from relax.core.rows import rollout_keys
from relax.transport.queue import Queue
from tests.runtime.in_process import TINY, InProcess
from tests.runtime.killed_runs import Kill, contents, kill_at, run, wait_for
from tests.runtime.real_run import real_run

pytestmark = pytest.mark.usefixtures("alone")

ROLLOUTS, SAMPLES = 3, 48
GDPO = ["--advantage-estimator", "gdpo", "--gdpo-reward-keys", "correctness", "format", "--global-batch-size", "8"]
COLOCATED = [*GDPO, "--num-rollout", str(ROLLOUTS)]
ASYNCHRONOUS = [
    *(*COLOCATED, "--fully-async", "--true-on-policy-mode", "--max-staleness", "2"),
    *("--num-iters-per-train-update", "2", "--storage-units", "1"),
]

WITH_CRITIC = [
    *("--advantage-estimator", "ppo", "--reward-key", "total", "--global-batch-size", "8"),
    *("--num-rollout", str(ROLLOUTS)),
]


def arguments(options: list[str], folder: Path) -> Namespace:
    """The options of a run that saves after each rollout."""
    return parse_args([*TINY, *options, "--save", str(folder), "--save-interval", "1"])


@pytest.fixture(scope="module")
def uninterrupted(alone: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The checkpoints of runs that nothing happened to, in one process."""
    folders = {}
    for name, options in (("colocated", COLOCATED), ("asynchronous", ASYNCHRONOUS), ("critic", WITH_CRITIC)):
        folders[name] = tmp_path_factory.mktemp(name)
        InProcess(arguments(options, folders[name])).run()
    return folders


def killed_drivers(folder: Path) -> None:
    """Runs that go on from one another, each of which loses its driver: the guard says so, and how to go on."""
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


def killed_storage_units(folder: Path) -> None:
    """As above, each of which loses a storage unit, idle or at work: it ends with one line that names the unit."""
    kills = [
        Kill("generate rollout 0", amid=True),
        Kill("prepare batch 0", amid=True),
        Kill("train on batch 1"),
        Kill("batch 3 dropped", amid=True),
        Kill("checkpoint 3, part actor"),
    ]
    for number, kill in enumerate(kills):
        _fails(COLOCATED, folder, f"storage unit {number % 2}", kill, "died, and what it held is lost")


def killed_parts(folder: Path) -> None:
    """As above, for the roles and Ray's own processes: it ends with one line that names what died."""
    killed = "it was killed, or ran out of memory"
    idle = f"died between two units of work: {killed}"
    _fails(ASYNCHRONOUS, folder, "actor", Kill("train on batch 0", amid=True), f"died at 'train on batch 0': {killed}")
    _fails(ASYNCHRONOUS, folder, "rollout", Kill("generate rollout 1"), f"died at 'generate rollout 1': {killed}")
    kill = Kill("advantages of slice 1 of batch 1", amid=True)
    lost = "died, and the rows that it had gathered are lost"
    _fails(ASYNCHRONOUS, folder, "advantages", kill, lost, name="the advantages replica")
    _fails(ASYNCHRONOUS, folder, "Ray's node (raylet)", Kill("checkpoint 2 committed"), idle)
    _fails(ASYNCHRONOUS, folder, "Ray's head (gcs_server)", Kill("train on batch 4"), idle)


@pytest.fixture(scope="module")
def chains(uninterrupted: dict[str, Path]) -> Iterator[dict[str, Future[None]]]:
    """What comes of the runs of the command line: they are on their way, two at a time, since one alone waits a lot."""

    def follow(robbed: Callable[[Path], None], options: list[str], expected: Path) -> None:
        with tempfile.TemporaryDirectory(dir="/tmp", prefix="k-") as folder:  # short enough for Ray's sockets
            robbed(Path(folder))
            _goes_on(options, Path(folder), expected)

    pool = ThreadPoolExecutor(2)
    yield {
        "driver": pool.submit(follow, killed_drivers, ASYNCHRONOUS, uninterrupted["asynchronous"]),
        "storage unit": pool.submit(follow, killed_storage_units, COLOCATED, uninterrupted["colocated"]),
        "each part": pool.submit(follow, killed_parts, ASYNCHRONOUS, uninterrupted["asynchronous"]),
    }
    pool.shutdown(cancel_futures=True)


def test_driver(chains: dict[str, Future[None]]) -> None:
    """Killed five times over, and on to the bits of the uninterrupted run; nothing but the checkpoints is left."""
    chains["driver"].result()


def test_storage_unit(chains: dict[str, Future[None]]) -> None:
    """Killed five times over, and on to the bits of the uninterrupted run."""
    chains["storage unit"].result()


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
def test_actor(kill: Kill, tmp_path: Path, queue: Queue, uninterrupted: dict[str, Path]) -> None:
    """The error names the actor, its process and its work; the run goes on to the bits of the uninterrupted one."""
    said, process = _failed(COLOCATED, "actor", kill, tmp_path, queue)
    assert said == f"actor (process {process}) died at '{kill.unit}': it was killed, or ran out of memory"
    _goes_on_in_process(COLOCATED, tmp_path, uninterrupted["colocated"])


def test_one_rank(tmp_path: Path, queue: Queue) -> None:
    """Of two ranks the one that was killed is named, and not the one that waited for it in vain; both go on to the
    bits of two that nothing happened to."""
    options, kill = [*COLOCATED, "--data-parallel-size", "2"], Kill("train on batch 3", amid=True)
    said, process = _failed(options, "actor rank 1", kill, tmp_path, queue)
    assert said == f"actor rank 1 (process {process}) died at '{kill.unit}': it was killed, or ran out of memory"
    assert checkpoints(tmp_path / "saved") == [0, 1]
    real_run(arguments(options, tmp_path / "expected"), queue)
    again = arguments([*options, "--load", str(tmp_path / "saved")], tmp_path / "saved")
    summary = real_run(again, queue)
    assert summary.counts == {"generated": SAMPLES, "enqueued": SAMPLES, "trained": SAMPLES}
    assert summary.nothing_lost
    assert contents(tmp_path / "saved", ROLLOUTS) == contents(tmp_path / "expected", ROLLOUTS)


def test_critic(tmp_path: Path, queue: Queue, uninterrupted: dict[str, Path]) -> None:
    """The error names the critic; actor and critic, each at its place of the same batch, go on to the same bits."""
    kill = Kill("train the critic on batch 3", amid=True)
    said, process = _failed(WITH_CRITIC, "critic", kill, tmp_path, queue)
    assert said == f"critic (process {process}) died at '{kill.unit}': it was killed, or ran out of memory"
    _goes_on_in_process(WITH_CRITIC, tmp_path, uninterrupted["critic"])


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
def test_advantages(kill: Kill, tmp_path: Path, queue: Queue, uninterrupted: dict[str, Path]) -> None:
    """The error names the replica, whether it had gathered rows or not; the run goes on as if nothing had been."""
    said, process = _failed(ASYNCHRONOUS, "advantages", kill, tmp_path, queue)
    assert said == (f"the advantages replica (process {process}) died, and the rows that it had gathered are lost")
    _goes_on_in_process(ASYNCHRONOUS, tmp_path, uninterrupted["asynchronous"])


def test_each_part(chains: dict[str, Future[None]]) -> None:
    """Each of them killed, and on to the bits of the uninterrupted run."""
    chains["each part"].result()


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


class Silent:
    """A progress that nobody looks at."""

    def step(self, row: dict[str, float | int]) -> None:
        """Nothing."""


def _failed(options: list[str], who: str, kill: Kill, folder: Path, queue: Queue) -> tuple[str, int]:
    """The error of a run in the Ray of the tests from which ``who`` is taken, and the process that it was."""
    stopped = folder / "stopped.json"
    controller = Controller(arguments(options, folder / "saved"), queue, Silent(), folder)
    killing: Future[dict[str, int]] = in_thread(lambda: kill_at(stopped, who, kill))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(STOP_BEFORE, kill.unit)
        environment.setenv(STOPPED_FILE, str(stopped))
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
