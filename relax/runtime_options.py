"""The options of running a training: task, model, optimizer, phases, checkpoints, cluster and what is written down."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from relax.option_ranges import COUNT, NOT_NEGATIVE, POSITIVE, Range
from relax.options import add_value

DEVICES = ("cpu", "cuda")
DEFAULT_TASK = "relax.tasks.sums:sums_task"

RUNTIME_RANGES: Mapping[str, Range] = {
    "--max-new-tokens": COUNT,
    "--eval-problems": NOT_NEGATIVE,
    "--max-length": Range(2),  # a prompt and a response
    "--num-layers": COUNT,
    "--hidden-size": COUNT,
    "--num-attention-heads": COUNT,
    "--ffn-hidden-size": COUNT,
    "--lr": POSITIVE,
    "--critic-lr": POSITIVE,
    "--lr-warmup-steps": NOT_NEGATIVE,
    "--weight-decay": NOT_NEGATIVE,
    "--clip-grad": NOT_NEGATIVE,
    "--micro-batch-size": COUNT,
    "--sft-steps": NOT_NEGATIVE,
    "--sft-batch-size": COUNT,
    "--sft-lr": POSITIVE,
    "--sft-lr-warmup-steps": NOT_NEGATIVE,
    "--data-parallel-size": COUNT,
    "--storage-units": COUNT,
    "--ray-logical-cpus": COUNT,
    "--call-timeout": POSITIVE,
    "--save-interval": NOT_NEGATIVE,
    "--keep-checkpoints": COUNT,
    "--trace-rollout": NOT_NEGATIVE,
}
RUNTIME_MAY_BE_LEFT_OUT = frozenset({"--critic-lr", "--ray-logical-cpus", "--keep-checkpoints", "--trace-rollout"})
RUNTIME_NEVER_BLANK = (
    "--task-path",
    "--task-data",
    "--hf-checkpoint",
    "--log-dir",
    "--trace-folder",
    "--save-debug-rollout-data",
    "--load-debug-rollout-data",
)


def add_runtime_options(parser: argparse.ArgumentParser) -> None:
    """Adds them to the options of ``relax.options``."""
    add_value(
        parser.add_argument_group("configuration"),
        "--config",
        str,
        None,
        "YAML file of options, which those of the command line override",
        metavar="FILE",
    )
    for add in (_task, _model, _optimizer, _supervised, _cluster, _checkpoints, _records):
        add(parser)


def _task(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("task")
    add_value(
        group, "--task-path", str, DEFAULT_TASK, "function of the options that gives the task, as module:function"
    )
    add_value(group, "--task-data", str, None, "file that the task reads its problems from", metavar="FILE")
    add_value(group, "--max-new-tokens", int, 14, "tokens of the longest response")
    add_value(
        group,
        "--eval-problems",
        int,
        0,
        "problems answered with the likeliest tokens, and scored, before the first and after the last rollout",
    )


def _model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    add_value(
        group, "--hf-checkpoint", str, None, "folder with the weights to start from: its sizes hold", metavar="FOLDER"
    )
    add_value(group, "--max-length", int, 32, "tokens of the longest sequence, prompt and response together")
    add_value(group, "--num-layers", int, 2, "layers")
    add_value(group, "--hidden-size", int, 64, "width of a layer")
    add_value(group, "--num-attention-heads", int, 4, "attention heads, which divide the width")
    add_value(group, "--ffn-hidden-size", int, 256, "width inside a layer's feed-forward part")
    add_value(group, "--device", str, "cpu", "where models are held and trained", choices=DEVICES)


def _optimizer(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("optimizer")
    add_value(group, "--lr", float, 5e-4, "learning rate of the actor")
    add_value(group, "--critic-lr", float, None, "learning rate of the critic (default: that of --lr)")
    add_value(group, "--lr-warmup-steps", int, 0, "optimizer steps over which the rates grow to their full value")
    add_value(group, "--weight-decay", float, 0.0, "decay of the weights of matrices")
    add_value(
        group, "--clip-grad", float, 1.0, "a gradient of a larger norm is shortened to it; 0 leaves all as they are"
    )
    add_value(group, "--micro-batch-size", int, 64, "samples that go through a model at once in training")


def _supervised(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("supervised warm-up")
    add_value(group, "--sft-steps", int, 0, "optimizer steps on the task's demonstrations before the first rollout")
    add_value(group, "--sft-batch-size", int, 64, "demonstrations in one of these steps")
    add_value(group, "--sft-lr", float, 3e-3, "learning rate of these steps")
    add_value(group, "--sft-lr-warmup-steps", int, 20, "steps over which that rate grows to its full value")


def _cluster(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("cluster")
    add_value(group, "--data-parallel-size", int, 1, "ranks of the actor, each with its share of an optimizer batch")
    add_value(group, "--storage-units", int, 2, "processes that hold the samples on their way to training")
    add_value(
        group,
        "--ray-logical-cpus",
        int,
        None,
        "logical CPUs that Ray is started with (default: as many as the run needs)",
    )
    add_value(group, "--call-timeout", float, 300.0, "seconds that one call of a role may take")


def _checkpoints(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("checkpoints")
    add_value(
        group,
        "--save-interval",
        int,
        0,
        "rollouts from one checkpoint to the next; 0: one at the end, where --save is given",
    )
    add_value(group, "--keep-checkpoints", int, None, "how many of the latest checkpoints to keep (default: all)")


def _records(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("records")
    add_value(group, "--log-dir", str, None, "folder for metrics.csv and TensorBoard", metavar="FOLDER")
    add_value(group, "--trace-rollout", int, None, "rollout whose rewards, advantages and losses are kept to the bit")
    add_value(
        group, "--trace-folder", str, None, "folder for that trace; relax-verify replay reads it", metavar="FOLDER"
    )
    add_value(
        group,
        "--save-debug-rollout-data",
        str,
        None,
        "folder for the samples of --debug-rollout-only",
        metavar="FOLDER",
    )
    add_value(
        group,
        "--load-debug-rollout-data",
        str,
        None,
        "folder of samples that --debug-train-only reads",
        metavar="FOLDER",
    )
