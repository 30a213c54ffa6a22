"""Every algorithm in every mode: the bits of the reference run, or a refusal in one line. One process, no Ray."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relax.algorithms.spec import get_algorithm, list_algorithm_names
from relax.core.checkpoint import CheckpointError, open_checkpoint
from relax.core.registry import process_role
from relax.core.run_refusals import refuse_run
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
    args = tiny(algorithm, "--debug-train-only", "--load-debug-rollout-data", folder)
    if get_algorithm(algorithm).needs_critic:
        with pytest.raises(ValueError, match=rf"--debug-train-only \(on\) and --advantage-estimator {algorithm}: it"):
            refuse_run(args, None)
        return
    refuse_run(args, None)
    alone = InProcess(args).run()
    assert list(alone.roles) == ["actor"]
    assert both.bits() == alone.bits()
    assert alone.queue.keys() == []


def test_rollouts_that_are_not_there(tmp_path: Path) -> None:
    """Training on more rollouts than were kept, or on rollouts of another size, is refused."""
    folder = str(tmp_path / "data")
    InProcess(tiny("gdpo", "--debug-rollout-only", "--save-debug-rollout-data", folder)).run()
    load = ("--debug-train-only", "--load-debug-rollout-data", folder)
    with pytest.raises(CheckpointError, match="data holds no rollout 1: give --load-debug-rollout-data"):
        refuse_run(tiny("gdpo", *load, "--num-rollout", "2"), None)
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
    with pytest.raises(ValueError, match="--loss-type sft_loss: supervised training is saved at its end"):
        refuse_run(tiny("gdpo", *supervised, "--load", str(tmp_path)), open_checkpoint(tmp_path))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--loss-type", "sft_loss"), "--sft-steps 0 and --loss-type sft_loss: there is nothing to train on"),
        (
            ("--loss-type", "sft_loss", "--sft-steps", "1", "--debug-train-only"),
            r"--debug-train-only \(on\) and --loss-type sft_loss: its data are demonstrations",
        ),
        (("--max-staleness", "1"), "--max-staleness 1 and --colocate: its roles work in turn"),
        (("--debug-rollout-only", "--save", "there"), r"--debug-rollout-only \(on\) and --save there: nothing is"),
        (
            ("--fully-async", "--global-batch-size", "32", "--num-rollout", "3"),
            "--num-rollout 3 and --global-batch-size 32: 3 rollouts of 16 samples fill no whole number",
        ),
        (
            ("--fully-async", "--global-batch-size", "32", "--num-rollout", "6", "--save", "x", "--save-interval", "3"),
            "--save-interval 3 and --global-batch-size 32: an optimizer batch holds the samples of 2 rollouts",
        ),
    ],
)
def test_refused(options: tuple[str, ...], said: str) -> None:
    """What no run can do is refused before anything starts, naming the options."""
    with pytest.raises(ValueError, match=said):
        refuse_run(tiny("gdpo", *options), None)
