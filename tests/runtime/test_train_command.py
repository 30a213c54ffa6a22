"""``python -m relax.train`` as people meet it: what it prints, and its exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from relax.arguments import parse_args
from relax.core.guard import processes_with
from relax.core.own_folders import own_folders
from relax.progress.metrics_file import read_rows
from tests.runtime.in_process import TINY

LINE = (
    *("--advantage-estimator", "gdpo", "--gdpo-reward-keys", "correctness", "format", "--global-batch-size", "8"),
    *(*TINY, "--num-rollout", "2"),
)
HERE = "tests.runtime.test_controller"


def train(*options: str) -> subprocess.CompletedProcess[str]:
    """A finished command."""
    command = [sys.executable, "-m", "relax.train", *LINE, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_whole_run(tmp_path: Path) -> None:
    """The start, warm-up, evaluations, a line a rollout, the files, the time table and the counts; and the same command
    with --load has nothing left to do, and starts nothing."""
    log, save = tmp_path / "log", tmp_path / "save"
    warm_up = ("--sft-steps", "3", "--sft-batch-size", "8", "--eval-problems", "4")
    done = train(*warm_up, "--log-dir", str(log), "--save", str(save))
    assert done.stderr == ""
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[-1] == "generated 32 == enqueued 32 == trained 32"
    beginnings = (
        *(
            "starting Ray",
            "Ray is up after ",
            "the processes are up after ",
            "warm-up",
            "evaluation after 0 rollouts  ",
        ),
        *("rollout 0", "rollout 1", "evaluation after 2 rollouts  ", f"numbers      {log}/metrics.csv"),
        *(f"checkpoint   {save}/step-00000002", "evaluation    ", "  correctness", "  format", "where the time"),
    )
    places = [[place for place, line in enumerate(lines) if line.startswith(beginning)] for beginning in beginnings]
    assert [1] * len(beginnings) == list(map(len, places)), done.stdout
    assert sorted(places) == places
    for what in ("sampling", "transport", "loss, gradients", "optimizer", "the steps", "the run"):
        assert sum(line.startswith(f"  {what}") for line in lines) == 1, what
    rows = read_rows(log / "metrics.csv")
    assert [(row["rollout"], row["step"]) for row in rows] == [("0", "2"), ("1", "4")]
    assert all(float(row["train/grad_norm"]) > 0 for row in rows)
    assert [row["rollouts"] for row in read_rows(log / "evaluations.csv")] == ["0", "2"]
    assert (save / "step-00000002" / "actor.safetensors").is_file()
    again = train(*warm_up, "--log-dir", str(log), "--save", str(save), "--load", str(save))
    assert (again.returncode, again.stderr) == (0, "")
    first, *files = again.stdout.splitlines()
    assert first == f"nothing is left to do: all 2 rollouts are in {save}"
    assert set(files) <= set(lines)
    assert f"figure       {log}/rewards.png" in files
    assert len(read_rows(log / "evaluations.csv")) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--max-staleness", "1"), "--max-staleness 1 and --colocate: its roles work in turn"),
        (("--load", "nowhere"), "--load nowhere: there is no such folder; give the folder that --save wrote to"),
        (("--custom-rm-path", "no.such:function"), "--custom-rm-path no.such:function: there is no module 'no' here"),
    ],
)
def test_refused(options: tuple[str, ...], said: str) -> None:
    """What cannot be done is one line and status 2, before anything is started."""
    done = train(*options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_a_failure(tmp_path: Path) -> None:
    """What fails in the run is one line and status 1, and its traceback is in a file."""
    done = train("--custom-rm-path", f"{HERE}:bad_rewards", "--log-dir", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    failure = "failed at 'generate rollout 0': KeyError: 'no such entry'"
    assert f"{failure} (raised by --custom-rm-path {HERE}:bad_rewards)" in done.stderr
    assert f"(traceback in {tmp_path / 'failure.txt'})" in done.stderr
    assert "in bad_rewards" in (tmp_path / "failure.txt").read_text()


@contextmanager
def stopped_before(unit: str, folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A command that waits before a unit of its work, until the file ``folder / "stopped"`` goes."""
    stopped = folder / "stopped"
    run = subprocess.Popen(
        [sys.executable, "-m", "relax.train", *LINE, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RELAX_STOP_BEFORE": unit, "RELAX_STOPPED_FILE": str(stopped)},
        start_new_session=True,
    )
    while run.poll() is None and not stopped.exists():
        time.sleep(0.1)
    try:
        yield run
    finally:
        run.terminate()
        run.communicate(timeout=120)


@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_interrupted(tmp_path: Path, number: signal.Signals, word: str) -> None:
    """Ctrl-C, and what a batch system sends before it kills, is one line and status 130."""
    with stopped_before("train on batch 1", tmp_path) as run:
        run.send_signal(number)
        _, said = run.communicate(timeout=120)
    assert run.returncode == 130
    assert said == f"relax: error: {word}; start again; with --save and --save-interval a run can be continued\n"


def test_beside_another(tmp_path: Path) -> None:
    """The same command beside a run that lives is one line and status 2, and leaves the first run's unfinished save
    alone; of the first, the driver alone holds the folder, so that it is free as soon as that is killed."""
    save = tmp_path / "save"
    options = ("--save", str(save), "--load", str(save), "--save-interval", "1")
    with stopped_before("checkpoint 1 committed", tmp_path, *options) as run:
        done = train(*options)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"relax: error: --save {save}: another run (process {run.pid}) is writing there; give another folder, or "
            "end that run first\n"
        )
        assert sorted(path.name for path in save.iterdir()) == ["pending-00000001", "step-00000000"]
        others = processes_with("RELAX_STOPPED_FILE", str(tmp_path / "stopped"))
        holders = [pid for pid in others for file in Path(f"/proc/{pid}/fd").iterdir() if file.resolve() == save]
        assert len(others) > 5
        assert holders == [run.pid]
        run.kill()
        run.wait()
        with own_folders(parse_args([*LINE, *options])):
            assert [path.name for path in save.iterdir()] == ["step-00000000"]


def test_warnings() -> None:
    """What options warn of is a line of its own."""
    done = train("--kl-coef", "0.1", "--advantage-estimator", "grpo", "--load", "nowhere")
    first, second = done.stderr.splitlines()
    assert first.startswith("relax: warning: --kl-coef 0.1 and --advantage-estimator grpo: this algorithm reads no KL")
    assert second.startswith("relax: error: --load nowhere: there is no such folder")
