"""Every algorithm in every mode: the bits of the reference run, or a refusal in one line. One process, no Ray."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relax.algorithms.spec import get_algorithm, list_algorithm_names
from relax.core.checkpoint import CheckpointError
from relax.core.registry import process_role
from tests.relax.command_lines import line, refused
from tests.runtime.in_process import InProcess, reference, tiny

pytestmark = [
    pytest.mark.usefixtures("alone"),
    pytest.mark.filterwarnings("ignore:--normalize-advantages .on. and --fully-async"),
]

ALGORITHMS = list_algorithm_names()
TRAINED = [name for name in ALGORITHMS if not get_algorithm(name).needs_critic]
MODES = {
    "colocate": (),
    "hybrid": ("--hybrid",),
    "fully async": ("--fully-async", "--num-iters-per-train-update", "4"),
    "true on policy": ("--true-on-policy-mode",),
    "true on policy, fully async": ("--true-on-policy-mode", "--fully-async"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_mode(algorithm: str, mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without staleness every mode has the reference's bits, of advantages as the mode normalises them."""
    if "--fully-async" in MODES[mode] and not get_algorithm(algorithm).supports_fully_async:
        assert "--fully-async (on): this algorithm is not supported" in refused(line(algorithm, *MODES[mode]), capsys)
        return
    run = InProcess(tiny(algorithm, "--num-rollout", "2", *MODES[mode])).run()
    scored = sum("log_probs" in facts.get("seconds", {}) for facts in run.facts.values() if facts)
    if run.args.fully_async:
        run.args.normalize_advantages = False  # which this mode does not know
    assert reference(run).bits() == run.bits()
    assert set(process_role(run.args)) == set(run.roles)
    assert run.queue.keys() == []
    assert (scored == 0) == run.args.true_on_policy_mode


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_rollout_and_training_apart(algorithm: str, tmp_path: Path) -> None:
    """What --debug-rollout-only keeps, --debug-train-only trains on, to the bits of the run that does both."""
    both = InProcess(tiny(algorithm)).run()
    folder = str(tmp_path / "data")
    InProcess(tiny(algorithm, "--debug-rollout-only", "--save-debug-rollout-data", folder, "--num-rollout", "2")).run()
    labels = json.loads((tmp_path / "data" / "rollout-00000001.json").read_text())["facts"]["groups"]
    assert len(labels) == both.args.rollout_batch_size
    assert {"signal"} == set(labels)
    if get_algorithm(algorithm).needs_critic:
        return  # its values come of a role that training alone does not start: refused
    alone = InProcess(tiny(algorithm, "--debug-train-only", "--load-debug-rollout-data", folder)).run()
    assert list(alone.roles) == ["actor"]
    assert both.bits() == alone.bits()
    assert alone.queue.keys() == []


def test_rollouts_that_are_not_there(tmp_path: Path) -> None:
    """Training on rollouts of another size, or on some that cannot be read, is refused."""
    folder = str(tmp_path / "data")
    InProcess(tiny("gdpo", "--debug-rollout-only", "--save-debug-rollout-data", folder)).run()
    load = ("--debug-train-only", "--load-debug-rollout-data", folder)
    with pytest.raises(
        CheckpointError, match="holds 16 samples and a rollout of this run 8: give --rollout-batch-size"
    ):
        InProcess(tiny("gdpo", *load, "--rollout-batch-size", "2")).run()
    path = tmp_path / "data" / "rollout-00000000.json"
    path.write_text(path.read_text().replace("Tensor", "float"))
    with pytest.raises(CheckpointError, match=r"rollout-00000000\.json cannot be read"):
        InProcess(tiny("gdpo", *load)).run()


def test_supervised_training(tmp_path: Path) -> None:
    """--loss-type sft_loss trains on demonstrations alone, and its checkpoint is a policy run's start."""
    supervised = ("--loss-type", "sft_loss", "--sft-steps", "3", "--sft-batch-size", "8", "--save", str(tmp_path))
    run = InProcess(tiny("gdpo", *supervised)).run()
    assert {"sft", "actor"} == set(run.roles)
    whole = InProcess(tiny("gdpo", "--sft-steps", "3", "--sft-batch-size", "8")).run()
    policy = InProcess(tiny("gdpo"), load=tmp_path).run()
    assert whole.bits() == policy.bits()
