"""The example of GDPO on a CPU: its configuration says what its README promises, for every algorithm."""

from __future__ import annotations

import os
import shlex
import warnings
from pathlib import Path

import pytest

from examples.gdpo.reward import rewards, rewards_with_length
from relax.algorithms.spec import get_algorithm, list_algorithm_names
from relax.arguments import parse_args
from relax.core.preflight import preflight
from relax.core.rows import samples_of_rollout, steps_before
from relax.tasks.sums import Sums
from relax.types import Sample
from tests.relax.command_lines import LEAST

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "gdpo"
CONFIG = ["--config", str(EXAMPLE / "cpu.yaml")]


def more_of(algorithm: str) -> list[str]:
    """What the README says that this algorithm's command line needs beside its name."""
    least = [] if get_algorithm(algorithm).uses_reward_components else LEAST[algorithm]
    return [*least, *(["--global-batch-size", "256"] if get_algorithm(algorithm).requires_on_policy_updates else [])]


def test_promises() -> None:
    """GDPO over two components, 120 optimizer steps, two a rollout, with the prompts and the responses in bounds."""
    args = parse_args(CONFIG)
    assert get_algorithm(args.advantage_estimator).uses_reward_components
    assert args.gdpo_reward_keys == ["correctness", "format"]
    assert samples_of_rollout(args) == 2 * args.global_batch_size
    assert steps_before(args, args.num_rollout) == 120


@pytest.mark.parametrize("algorithm", list_algorithm_names())
def test_every_algorithm(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same file serves every algorithm, and nothing is missing that can be seen before a run."""
    monkeypatch.chdir(ROOT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        preflight(parse_args([*CONFIG, "--advantage-estimator", algorithm, *more_of(algorithm)]))


def test_rewards() -> None:
    """The components of the reward are the two that are weighed, and their sum; the length where it is asked for."""
    problem = Sums().problem(3)
    args, answers = parse_args(CONFIG), {"answer": problem.answer, "response": f"<a>{problem.answer}</a>"}
    assert rewards(args, Sample(metadata=answers)) == {"correctness": 1.0, "format": 1.0, "total": 2.0}
    assert rewards(args, Sample(metadata={**answers, "response": "<a>"})) == {
        "correctness": 0.0,
        "format": 0.0,
        "total": 0.0,
    }
    assert rewards_with_length(args, Sample(metadata=answers))["length"] == 1.0


def test_figure_is_small() -> None:
    """The figure beside the README is a PNG that a checkout need not mind."""
    figure = EXAMPLE / "rewards.png"
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert os.path.getsize(figure) < 100_000


def readme_commands(module: str) -> list[list[str]]:
    """The options of the README's commands that run ``module``; of ``relax.train --check`` by that name."""
    start = f"$ python -m {module} "
    lines = (EXAMPLE / "README.md").read_text().splitlines()
    commands = [shlex.split(line.removeprefix(start)) for line in lines if line.startswith(start)]
    return [argv for argv in commands if "--check" not in argv]


def test_readme_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of the README that trains is accepted; the last goes on with the run of the one before it."""
    monkeypatch.chdir(ROOT)
    *_, killed, on = [vars(parse_args(argv)) for argv in readme_commands("relax.train")]
    assert {**killed, "load": killed["save"]} == on
    assert None not in (killed["save"], killed["log_dir"], killed["save_interval"])


def test_readme_refusal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The README names every algorithm that the fully asynchronous mode refuses, with the line that says so."""
    monkeypatch.chdir(ROOT)
    refused = [name for name in list_algorithm_names() if not get_algorithm(name).supports_fully_async]
    readme = (EXAMPLE / "README.md").read_text()
    assert f"every algorithm but {', '.join(f'`{name}`' for name in refused)} |" in readme
    (argv,) = readme_commands("relax.train --check")
    with pytest.raises(SystemExit):
        parse_args(argv)
    assert f"\n{capsys.readouterr().err}" in readme
