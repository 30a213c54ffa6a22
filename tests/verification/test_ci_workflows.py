"""The workflows of continuous integration: what the data makes, and nothing that a runner should not be given."""

from __future__ import annotations

import ast
import copy
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci.workflows import FOLDER, HEADER, MATRIX, main, workflows

ROOT = Path(__file__).resolve().parents[2]
DATA = tomllib.loads(MATRIX.read_text())
FILES = sorted(FOLDER.glob("*.yml"))
JOBS = [
    pytest.param(job, id=f"{path.stem}-{name}")
    for path in FILES
    for name, job in yaml.safe_load(path.read_text())["jobs"].items()
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINNED = re.compile(r"[\w.-]+/[\w.-]+@(v\d+|[0-9a-f]{40})")


def sessions() -> dict[str, list[str]]:
    """The sessions of noxfile.py and their parameters, read without nox, which the tests do without."""
    tree = ast.parse((ROOT / "noxfile.py").read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {
        node.name: [ast.unparse(one) for one in node.decorator_list]
        for node in functions
        if any("nox.session" in ast.unparse(one) for one in node.decorator_list)
    }


def test_the_files_are_what_the_data_makes():
    """Each workflow file has the bytes that ci/matrix.toml makes, and there is no other."""
    made = workflows(DATA)
    assert {"check.yml", "request.yml", "nightly.yml"} == set(made)
    assert made == {path.name: path.read_text() for path in FILES}


def test_every_job_of_the_data_is_in_one_workflow():
    """No job is lost on the way: the workflows together hold exactly the jobs of the data."""
    held = [name for path in FILES for name in yaml.safe_load(path.read_text())["jobs"]]
    assert sorted(DATA["jobs"]) == sorted(held)


def test_every_session_exists():
    """A job runs a session of noxfile.py, and its command names that session."""
    for name, job in DATA["jobs"].items():
        assert job["session"] in sessions(), name
    commands = "".join(path.read_text() for path in FILES)
    for job in DATA["jobs"].values():
        assert re.search(rf"nox --session {job['session']}( -- \"\$ARGUMENT\")?$", commands, re.MULTILINE)


def test_the_versions_of_python_are_those_of_the_project():
    """Every version satisfies requires-python, the oldest allowed one is among them, and so is the default."""
    least = tuple(map(int, PROJECT["requires-python"].removeprefix(">=").split(".")))
    asked = {tuple(map(int, version.split("."))) for job in DATA["jobs"].values() for version in job.get("python", [])}
    assert least == min(asked)
    assert tuple(map(int, DATA["python"]["default"].split("."))) in asked
    assert asked == {(3, 11), (3, 12), (3, 13)}


def test_every_capability_meets_every_version():
    """The verdict runs on each Python version with each capability, and on an Arm runner with its own."""
    cpu = yaml.safe_load((FOLDER / "check.yml").read_text())["jobs"]["cpu"]
    axes = {"python": ["3.11", "3.12", "3.13"], "capability": ["default", "avx2", "avx512"]}
    assert axes == cpu["strategy"]["matrix"]
    assert cpu["strategy"]["fail-fast"] is False
    assert cpu["env"]["ATEN_CPU_CAPABILITY"] == "${{ matrix.capability }}"
    arm = DATA["jobs"]["arm"]
    assert arm["runner"].endswith("-arm")
    assert "ATEN_CPU_CAPABILITY" not in yaml.safe_load((FOLDER / "check.yml").read_text())["jobs"]["arm"]["env"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_workflow_may_only_read(path: Path):
    """Permissions are stated and allow reading the contents alone; a newer commit of a request ends the older run."""
    content = yaml.safe_load(path.read_text())
    assert path.read_text().startswith(HEADER)
    assert content["permissions"] == {"contents": "read"}
    assert content["concurrency"]["cancel-in-progress"] is True
    assert "pull_request.number" in content["concurrency"]["group"]
    assert "pull_request_target" not in content["on"]
    assert "secrets" not in path.read_text()
    assert "://" not in path.read_text()


@pytest.mark.parametrize("job", JOBS)
def test_a_job_is_bounded_and_pinned(job: dict[str, Any]):
    """It has a time limit and its own permissions nowhere; actions are pinned; no event's text is part of a script."""
    assert 0 < job["timeout-minutes"] <= 180
    assert "permissions" not in job
    steps = job["steps"]
    used = [step["uses"] for step in steps if "uses" in step]
    assert len(used) == 3
    assert [PINNED.fullmatch(one) is not None for one in used] == [True] * 3
    assert not [step["run"] for step in steps if "${{" in step.get("run", "")]
    checkout, python, *_, upload = steps
    assert checkout["with"]["persist-credentials"] is False
    assert python["with"]["cache"] == "pip"
    assert python["with"]["cache-dependency-path"].split() == ["constraints.txt", "pyproject.toml"]
    assert upload["if"] == "always()"
    assert upload["with"]["path"] == job["env"]["RELAX_VERIFY_REPORTS"] == "reports"


def test_what_needs_history_has_it():
    """The jobs that look at other commits fetch them all; the request job stands on the change itself."""
    for path in FILES:
        for name, job in yaml.safe_load(path.read_text())["jobs"].items():
            depth = job["steps"][0]["with"].get("fetch-depth")
            assert (depth == 0) == (name in ("cpu", "arm", "request", "golden", "mutants")), name
    request = yaml.safe_load((FOLDER / "request.yml").read_text())
    assert request["on"] == {"pull_request": {}}
    job = request["jobs"]["request"]
    assert job["steps"][0]["with"]["ref"] == "${{ github.event.pull_request.head.sha }}"
    assert job["env"]["ARGUMENT"] == "${{ github.event.pull_request.base.sha }}"
    assert job["steps"][3]["run"] == 'python -m nox --session request -- "$ARGUMENT"'


def test_no_request_reaches_a_runner_of_ones_own():
    """The job on a GPU waits for a variable that names its runner, takes no CPU index, and runs for no pull request."""
    nightly = yaml.safe_load((FOLDER / "nightly.yml").read_text())
    gpu = nightly["jobs"]["gpu"]
    assert gpu["if"] == "vars.GPU_RUNNER != ''"
    assert gpu["runs-on"] == "${{ vars.GPU_RUNNER }}"
    assert gpu["env"]["PIP_EXTRA_INDEX_URL"] == ""
    assert {"schedule", "workflow_dispatch"} == set(nightly["on"])
    others = [job for path in FILES for name, job in yaml.safe_load(path.read_text())["jobs"].items() if name != "gpu"]
    assert {"${{ vars.TORCH_CPU_INDEX }}"} == {job["env"]["PIP_EXTRA_INDEX_URL"] for job in others}


def test_a_change_of_the_data_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """--check names a file that is not what the data makes, one that is missing, and one too many."""
    monkeypatch.setattr("ci.workflows.FOLDER", tmp_path)
    assert main([]) == 0
    assert main(["--check"]) == 0
    assert capsys.readouterr().out == ""
    (tmp_path / "check.yml").write_text((tmp_path / "check.yml").read_text().replace("60", "61", 1))
    (tmp_path / "nightly.yml").unlink()
    (tmp_path / "extra.yml").write_text(HEADER)
    (tmp_path / "own.yml").write_text("name: written by hand\n")
    assert main(["--check"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert [tmp_path / name for name in ("check.yml", "extra.yml", "nightly.yml")] == [
        Path(line.split(" is not ")[0]) for line in told
    ]
    assert main([]) == 0
    assert not (tmp_path / "extra.yml").exists()
    assert (tmp_path / "own.yml").read_text() == "name: written by hand\n"
    assert main(["--chekc"]) == 2


def test_a_new_version_reaches_every_place():
    """A version and a time limit that change in the data change in the files, and nowhere else."""
    data = copy.deepcopy(DATA)
    data["python"]["default"] = "3.13"
    data["jobs"]["lint"]["minutes"] = 7
    old, new = (yaml.safe_load(workflows(one)["check.yml"])["jobs"] for one in (DATA, data))
    assert new["lint"]["timeout-minutes"] == 7
    assert new["lint"]["steps"][1]["with"]["python-version"] == "3.13"
    assert old["cpu"] == new["cpu"]
