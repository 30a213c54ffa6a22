"""Real runs on Ray, with a process a role: the bits of the same roles within one process, and of one another."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

from relax.algorithms.spec import list_algorithm_names
from relax.core.checkpoint import checkpoints, open_checkpoint
from relax.core.trace import INDEX
from relax.transport.queue import Queue
from tests.runtime.in_process import InProcess, tiny
from tests.runtime.real_run import Rows, real_run
from verification.cli import main

pytestmark = pytest.mark.usefixtures("alone")

ASYNCHRONOUS = ("--fully-async", "--max-staleness", "3", "--num-iters-per-train-update", "2")


def saved(folder: Path, step: int) -> dict[str, bytes]:
    """The files of a checkpoint."""
    return {path.name: path.read_bytes() for path in open_checkpoint(folder, step).folder.iterdir()}


def tensors(folder: Path, step: int) -> dict[str, bytes]:
    """The weights and moments of a checkpoint's parts."""
    checkpoint = open_checkpoint(folder, step)
    return {
        f"{part}/{name}": tensor.numpy().tobytes()
        for part in sorted(checkpoint.parts() & {"actor", "critic", "published"})
        for name, tensor in checkpoint.tensors(part).items()
        if not name.startswith("random/")
    }


def run_into(folder: Path, algorithm: str, *options: str) -> Namespace:
    """Four rollouts that leave a checkpoint after every second."""
    save = ("--num-rollout", "4", "--save", str(folder), "--save-interval", "2", "--eval-problems", "4")
    return tiny(algorithm, *save, *options)


KL = ("--use-kl-loss", "--kl-loss-coef", "0.1")
COLOCATED = ("--sft-steps", "3", "--sft-batch-size", "8")
HYBRID = ("--hybrid", "--max-staleness", "2", *KL)
ON_POLICY = ("--true-on-policy-mode",)
ASYNCHRONOUS_ON_POLICY = ("--fully-async", *ON_POLICY, *KL)
SPANNING = (*ASYNCHRONOUS, "--global-batch-size", "32")  # two rollouts each, which the service whitens together
RUNS = {
    "gdpo": SPANNING,
    "grpo": COLOCATED,
    "gspo": ASYNCHRONOUS_ON_POLICY,
    "sapo": SPANNING,
    "cispo": HYBRID,
    "ppo": HYBRID,
    "reinforce_plus_plus": ON_POLICY,
    "reinforce_plus_plus_baseline": HYBRID,
    "rloo": COLOCATED,
}

TRACED = {
    ("--data-parallel-size", "2"): {"rollout", "actor-0", "actor-1"},
    ASYNCHRONOUS: {"rollout", "advantages", "actor-0"},
}
"""By the mode of a run, the processes that keep the calls of a rollout."""


@pytest.mark.parametrize("algorithm", list_algorithm_names())
def test_bits(tmp_path: Path, queue: Queue, algorithm: str) -> None:
    """What a process a role does, in whatever order they come to it, has the bits of one process in turn."""
    mode = RUNS.get(algorithm, ())
    args = run_into(tmp_path / "real", algorithm, *mode)
    expected = InProcess(run_into(tmp_path / "here", algorithm, *mode)).run()
    rows = Rows()
    summary = real_run(args, queue, rows)
    assert tensors(tmp_path / "here", 4) == tensors(tmp_path / "real", 4)
    assert summary.counts == {"generated": 64, "enqueued": 64, "trained": 64}
    assert summary.nothing_lost
    span = max(1, args.global_batch_size // 16)  # rollouts that are trained on and shown together
    expected_rows = [(rollout, (rollout + 1) * 16 // args.global_batch_size) for rollout in range(span - 1, 4, span)]
    assert expected_rows == [(row["rollout"], row["step"]) for row in rows.rows if "rollout" in row]
    for when in ("start", "end"):
        (facts,) = expected.of(f"evaluation at the {when}")
        assert facts["rewards"] == summary.evaluations[when]
    assert queue.keys() == []


def test_resume(tmp_path: Path, queue: Queue) -> None:
    """Six processes side by side, stale, and continued from the middle: the checkpoint at the end is the same."""
    whole = real_run(run_into(tmp_path / "whole", "ppo", *ASYNCHRONOUS), queue)
    again = run_into(tmp_path / "again", "ppo", *ASYNCHRONOUS)
    again.load = str(tmp_path / "whole" / "step-00000002")
    rows = Rows()
    resumed = real_run(again, queue, rows)
    assert checkpoints(tmp_path / "whole") == [0, 2, 4]
    assert saved(tmp_path / "whole", 4) == saved(tmp_path / "again", 4)
    assert whole.counts == resumed.counts == {"generated": 64, "enqueued": 64, "trained": 64}
    assert whole.evaluations == resumed.evaluations
    assert {rollout: whole.fingerprints[rollout] for rollout in (2, 3)} == resumed.fingerprints
    assert [row["rollout"] for row in rows.rows if "rollout" in row] == [2, 3]
    InProcess(run_into(tmp_path / "here", "ppo", *ASYNCHRONOUS)).run()
    assert tensors(tmp_path / "here", 4) == tensors(tmp_path / "whole", 4)


def test_resume_on_two_ranks(tmp_path: Path, queue: Queue) -> None:
    """With two ranks of the actor, from the middle, to the same checkpoint."""
    ranks = ("--data-parallel-size", "2")
    whole = real_run(run_into(tmp_path / "whole", "gdpo", *ranks), queue)
    again = run_into(tmp_path / "again", "gdpo", *ranks)
    again.load = str(tmp_path / "whole" / "step-00000002")
    resumed = real_run(again, queue)
    assert saved(tmp_path / "whole", 4) == saved(tmp_path / "again", 4)
    assert whole.nothing_lost
    assert whole.counted == resumed.counted


def test_same_advantages(queue: Queue) -> None:
    """On the same rollouts two ranks have the advantages of one, and the service those of the actor: the same bits."""
    stale = ("--num-rollout", "3", "--max-staleness", "9")  # all sampled with the first weights
    found = [
        real_run(tiny("gdpo", *stale, *mode), queue).fingerprints
        for mode in (
            ("--hybrid",),
            ("--hybrid", "--data-parallel-size", "2"),
            ("--fully-async", "--data-parallel-size", "2", "--num-iters-per-train-update", "2"),
        )
    ]
    assert len({number for rollout in found[0].values() for number in rollout.values()}) == 6
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(("mode", "parts"), TRACED.items())
def test_traced(
    tmp_path: Path, queue: Queue, capsys: pytest.CaptureFixture[str], mode: tuple[str, ...], parts: set[str]
) -> None:
    """What several processes, the replica of the service among them, wrote of one rollout is replayed to the bit."""
    folder = tmp_path / "trace"
    traced = ("--num-rollout", "3", "--trace-rollout", "1", "--trace-folder", str(folder))
    real_run(tiny("gdpo", *mode, *traced), queue)
    calls = [path.name.split(".") for path in folder.glob("*.json") if path.name != INDEX]
    assert parts == {part for part, *_ in calls}
    assert main(["replay", str(folder), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["verdict"], report["differences"]) == ("VERDICT equivalent", [])
    compared = {row["against"]: row["comparisons"] for row in report["judges"] if "." in row["against"]}
    assert compared == {"reward.normalize": 16, "advantage.estimate": 16}  # each sample of the rollout, on its way


def test_rollout_and_training_apart(tmp_path: Path, queue: Queue) -> None:
    """The debug modes: rollouts into files, and training on them, with the samples counted in each."""
    folder = str(tmp_path / "data")
    sampling = tiny("rloo", "--debug-rollout-only", "--save-debug-rollout-data", folder, "--num-rollout", "2")
    assert real_run(sampling, queue).counts == {"generated": 32, "enqueued": 32}
    training = tiny("rloo", "--debug-train-only", "--load-debug-rollout-data", folder, "--num-rollout", "2")
    assert real_run(training, queue).counts == {"generated": 32, "enqueued": 32, "trained": 32}
