"""The trace of a rollout: what a real run computed is what an offline replay computes, for every algorithm."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

from relax.algorithms.spec import list_algorithm_names
from relax.core.trace import seal_trace, start_trace, tracing
from tests.runtime.in_process import InProcess, tiny
from tests.runtime.small_run import SmallRun, arguments
from verification.cli import main
from verification.ranks.layout import Layout
from verification.ranks.pool import RankPool

pytestmark = pytest.mark.usefixtures("alone")


def traced_run(algorithm: str, folder: Path) -> Namespace:
    """A run of two rollouts whose second one is traced; its options."""
    args = arguments(algorithm)
    args.trace_rollout, args.trace_folder = 1, str(folder)
    run = SmallRun(args)
    run.warm_up(3)
    start_trace(args)
    for rollout in range(2):
        with tracing(args, [rollout], "actor-0"):
            run.train(run.sample())
    seal_trace(args)
    return args


@pytest.mark.parametrize("algorithm", list_algorithm_names())
def test_replay(algorithm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The live code, the frozen copies and the exact values agree with what the run computed of its inputs."""
    args = traced_run(algorithm, tmp_path / "trace")
    assert main(["replay", str(tmp_path / "trace"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["verdict"], report["differences"]) == ("VERDICT equivalent", [])
    counts = {row["stage"]: row["cases"] for row in report["stages"]}
    # Sixteen samples in micro-batches of eight.
    normalized = {"advantage.normalize": 1} if args.normalize_advantages else {}
    assert counts == {"reward.normalize": 1, "advantage.estimate": 1, **normalized, "policy.loss": 2}
    against = {row["against"] for row in report["judges"]}
    assert {"live", "oracle", "reward.normalize", "advantage.estimate", *normalized} <= against


@pytest.mark.filterwarnings("ignore:--use-tis .on. and --true-on-policy-mode")
@pytest.mark.parametrize(
    ("algorithm", "mode"),
    [
        ("gdpo", ["--fully-async", "--num-iters-per-train-update", "2"]),
        ("gdpo", ["--fully-async", "--global-batch-size", "32"]),  # two rollouts in a batch
        ("ppo", ["--hybrid", "--max-staleness", "2", "--kl-coef", "0.1"]),
        ("grpo", ["--fully-async", "--true-on-policy-mode", "--use-tis"]),
        ("reinforce_plus_plus_baseline", ["--colocate", "--max-staleness", "0"]),
    ],
)
def test_modes(algorithm: str, mode: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The roles of every mode keep all three stages, the advantages service among them."""
    folder = str(tmp_path / "trace")
    args = tiny(algorithm, *mode, "--num-rollout", "2", "--trace-rollout", "1", "--trace-folder", folder)
    start_trace(args)
    InProcess(args).run()
    seal_trace(args)
    assert main(["replay", folder, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    counts = {row["stage"]: row["cases"] for row in report["stages"]}
    assert counts["reward.normalize"] == 1
    links = {row["against"]: row["comparisons"] for row in report["judges"] if "." in row["against"]}
    normalized = {"advantage.normalize": max(16, args.global_batch_size)} if args.normalize_advantages else {}
    assert links == {"reward.normalize": 16, "advantage.estimate": max(16, args.global_batch_size), **normalized}
    # One for each whole batch in the service, one for the rollout in the actor; losses by micro-batches of eight.
    batch, in_service = args.global_batch_size, args.fully_async
    assert counts["advantage.estimate"] == (max(1, 16 // batch) if in_service else 1)
    assert counts["policy.loss"] == max(16, batch) // 8


@pytest.mark.parametrize(("algorithm", "calls"), [("gdpo", 1), ("grpo", 2), ("reinforce_plus_plus", 2)])
def test_data_parallel(
    algorithm: str, calls: int, pool: RankPool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ranks' calls are one where rewards are whitened over both, with the bits of one rank; else two.

    Tokens that both normalised together are one call too, whose float32 sums are held against the exact values alone.
    """
    args = arguments(algorithm)
    args.trace_rollout, args.trace_folder = 0, str(tmp_path / "ranks")
    start_trace(args)
    task = "tests.runtime.rank_tasks:traced_rollout"
    pool.run(task, [(algorithm, args.trace_folder)] * 2, layout=Layout(dp=2), megatron=True, deadline=120.0).values()
    seal_trace(args)
    assert main(["replay", args.trace_folder, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    counts = {row["stage"]: row["cases"] for row in report["stages"]}
    assert counts["advantage.estimate"] == calls
    assert counts.get("advantage.normalize", 0) == int(args.normalize_advantages)
    assert {"reward.normalize", "advantage.estimate"} <= {row["against"] for row in report["judges"]}
