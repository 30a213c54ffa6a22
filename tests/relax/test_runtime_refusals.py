"""What a run refuses of its options alone is refused by whoever reads them: one line with the remedy."""

from __future__ import annotations

import pytest

from relax.arguments import parse_args
from tests.relax.command_lines import line, refused

REFUSALS = {
    "heads": (["--hidden-size", "10", "--num-attention-heads", "4"], ["--hidden-size 10", "--num-attention-heads 4"]),
    "no room": (["--max-length", "14"], ["--max-new-tokens 14", "--max-length 14", "prompt"]),
    "ranks": (["--data-parallel-size", "3"], ["--data-parallel-size 3", "--global-batch-size 256"]),
    "supervised ranks": (
        ["--data-parallel-size", "2", "--sft-steps", "1", "--sft-batch-size", "5"],
        ["--data-parallel-size 2", "--sft-batch-size 5"],
    ),
    "interval": (["--save-interval", "2"], ["--save-interval 2", "--save (not given)"]),
    "keep": (["--keep-checkpoints", "2"], ["--keep-checkpoints 2", "--save (not given)"]),
    "no folder": (["--trace-rollout", "0"], ["--trace-rollout 0", "--trace-folder (not given)"]),
    "no rollout": (["--trace-folder", "x"], ["--trace-folder x", "--trace-rollout (not given)"]),
    "late trace": (["--trace-rollout", "1", "--trace-folder", "x"], ["--trace-rollout 1", "--num-rollout 1"]),
    "saved samples": (
        ["--save-debug-rollout-data", "x"],
        ["--save-debug-rollout-data x", "--debug-rollout-only (off)"],
    ),
    "loaded samples": (["--load-debug-rollout-data", "x"], ["--load-debug-rollout-data x", "--debug-train-only (off)"]),
    "demonstrations alone": (
        ["--debug-train-only", "--loss-type", "sft_loss", "--sft-steps", "1"],
        ["--debug-train-only (on) and --loss-type sft_loss: its data are demonstrations", "drop --debug-train-only"],
    ),
    "no supervised steps": (
        ["--loss-type", "sft_loss"],
        ["--sft-steps 0 and --loss-type sft_loss: there is nothing to train on; give the steps"],
    ),
    "no critic": (
        line("ppo", "--debug-train-only"),
        ["--debug-train-only (on) and --advantage-estimator ppo: it needs the values of a critic"],
    ),
    "staleness in turn": (
        ["--max-staleness", "1"],
        ["--max-staleness 1 and --colocate: its roles work in turn", "give --hybrid or --fully-async"],
    ),
    "nothing to save": (
        ["--debug-rollout-only", "--save", "x"],
        ["--debug-rollout-only (on) and --save x: nothing is trained; drop --save"],
    ),
    "part of a batch": (
        ["--fully-async", "--global-batch-size", "512", "--num-rollout", "3"],
        ["--num-rollout 3 and --global-batch-size 512: 3 rollouts of 256 samples fill no whole number of"],
    ),
    "saved within a batch": (
        ["--fully-async", "--global-batch-size", "512", "--num-rollout", "6", "--save", "x", "--save-interval", "3"],
        ["--save-interval 3 and --global-batch-size 512: an optimizer batch holds the samples of 2 rollouts"],
    ),
    "device": (["--device", "tpu"], ["--device", "tpu", "cuda"]),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A contradiction is one line that names both options, their values and the remedy."""
    argv, words = REFUSALS[name]
    message = refused(argv, capsys)
    assert [word for word in words if word not in message] == []


def test_batches_of_several_rollouts() -> None:
    """Rollouts that fill whole batches, and checkpoints between these, are accepted; sampling alone needs neither."""
    spanning = ["--fully-async", "--global-batch-size", "512"]
    saved = ["--save", "x", "--save-interval", "2"]
    assert parse_args([*spanning, "--num-rollout", "4", *saved]).save_interval == 2
    assert parse_args([*spanning, "--num-rollout", "3", "--debug-rollout-only"]).num_rollout == 3
    assert parse_args(["--hybrid", "--max-staleness", "1"]).max_staleness == 1
