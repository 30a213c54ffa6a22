"""``python -m relax.train --check``: all that a run would refuse, and nothing that it would start or write."""

from __future__ import annotations

from pathlib import Path

import pytest

from relax.core.checkpoint import pending_folder, write_part
from relax.train import main
from tests.runtime.in_process import TINY

LINE = ("--check", "--advantage-estimator", "gdpo", "--gdpo-reward-keys", "correctness", "format", *TINY)


def test_nothing_speaks_against_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line and status 0; no folder is made, and what an unfinished save left there stays."""
    log, save = tmp_path / "log", tmp_path / "save"
    write_part(pending_folder(save, 7), "actor", tensors={}, facts={})
    assert main([*LINE, "--log-dir", str(log), "--save", str(save)]) == 0
    assert capsys.readouterr() == ("nothing speaks against this run\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["save"]
    assert [path.name for path in save.iterdir()] == ["pending-00000007"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--tensor-model-parallel-size", "2"), "--tensor-model-parallel-size 2: a run trains with whole models"),
        (("--custom-rm-path", "examples.gdpo.reward:nope"), "examples.gdpo.reward:nope: the module examples.gdpo.rew"),
        (("--load", "runs/nothere"), "--load runs/nothere: there is no such folder; give the folder that --save wrote"),
        (("--task-data", "/nope"), "--task-data /nope: there is no such file"),
        (("--log-dir", "FOLDER"), "it holds metrics.csv of another run"),
    ],
)
def test_refused(options: tuple[str, str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a run refuses of folders, functions and the machine is one line and status 2."""
    (tmp_path / "metrics.csv").write_text("rollout\n")
    assert main([*LINE, options[0], options[1].replace("FOLDER", str(tmp_path))]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err


def test_options_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """What the parser refuses it refuses here too."""
    with pytest.raises(SystemExit) as end:
        main([*LINE, "--max-staleness", "2"])
    assert end.value.code == 2
    assert "--max-staleness 2 and --colocate" in capsys.readouterr().err


def test_crowded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """More processes that compute than the cores can take in turn are a warning of one line, and no refusal."""
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    assert main([*LINE, "--data-parallel-size", "8", "--global-batch-size", "8"]) == 0
    out, err = capsys.readouterr()
    assert out == "nothing speaks against this run\n"
    assert err.startswith("relax: warning: --data-parallel-size 8: 9 processes are to compute on 2 cores, in turns")
    assert err.count("\n") == 1
