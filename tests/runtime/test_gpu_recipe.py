"""The recipe for a GPU: its file is in force as it stands, and a tiny model trains through the same code on the CPU."""

from __future__ import annotations

import math
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from relax.arguments import parse_args
from relax.backends.megatron.build import build_policy
from relax.backends.megatron.qwen3_shape import Qwen3Shape
from relax.backends.megatron.weights import weights_of
from relax.rollout.own_functions import load_function
from relax.tasks.gsm8k import gsm8k_task
from relax.tasks.text_tokenizer import TextTokenizer
from relax.types import Sample
from tests.runtime.gsm8k_files import write_jsonl, write_tokenizer
from tests.runtime.in_process import InProcess
from tests.runtime.qwen3_folder import qwen3_folder, write_config

pytestmark = pytest.mark.usefixtures("alone")

RECIPE = Path(__file__).parents[2] / "examples" / "gdpo" / "gpu.yaml"
# Of the released config.json of Qwen3-0.6B.
RELEASED = {
    "head_dim": 128,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "vocab_size": 151936,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the recipe asks to be on disk, tiny: a model with its tokenizer, and a few problems."""
    pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install 'relax-verification[qwen]'")
    size = TextTokenizer.read(write_tokenizer(tmp_path)).size
    # As in the released model, there are rows beyond the tokenizer's.
    qwen3_folder(tmp_path, vocab_size=size + 5, max_position_embeddings=1024)
    write_jsonl(tmp_path / "train.jsonl")
    return tmp_path


def recipe(folder: Path, *changes: str) -> Namespace:
    """The recipe's options with a folder's files, on the CPU."""
    given = ["--hf-checkpoint", str(folder), "--task-data", str(folder / "train.jsonl"), "--device", "cpu"]
    return parse_args(["--config", str(RECIPE), *given, *changes])


def test_parses() -> None:
    """The file is accepted as it stands, on a machine without what it names; its batches and lengths fit together."""
    args = parse_args(["--config", str(RECIPE)])
    assert (args.advantage_estimator, args.device) == ("gdpo", "cuda")
    assert args.gdpo_reward_keys == ["correctness", "format"]
    assert args.rollout_batch_size * args.n_samples_per_prompt == 2 * args.global_batch_size
    assert load_function(args.task_path) is gsm8k_task
    rewards = load_function(args.custom_rm_path)(args, Sample(metadata={"response": "7", "answer": "7"}))
    assert {*args.gdpo_reward_keys} < rewards.keys()


def test_size_of_the_model(tmp_path: Path) -> None:
    """The released sizes make 596,049,920 parameters, in 28 layers of eleven tensors."""
    sizes = write_config(tmp_path, **RELEASED).tensors().values()
    assert sum(math.prod(size) for size in sizes) == 596_049_920
    assert len(sizes) == 28 * 11 + 2


def test_builds(folder: Path) -> None:
    """The recipe's own lengths make task and model, and the model has the folder's sizes, not those of the options."""
    args = recipe(folder)
    task = load_function(args.task_path)(args)
    model = build_policy(args, task)
    shape = Qwen3Shape.read(folder / "config.json")
    assert {torch.device("cpu")} == {one.device for one in model.parameters()}
    assert sum(math.prod(size) for size in shape.tensors().values()) == sum(one.numel() for one in model.parameters())
    assert args.max_length == model.max_sequence_length == 704


@pytest.mark.parametrize("algorithm", [[], ["--advantage-estimator", "ppo", "--reward-key", "total"]])
def test_trains(folder: Path, algorithm: list[str]) -> None:
    """Warm-up, two rollouts and a checkpoint, by the recipe: all is finite, and every sample is trained on once.

    So too with a critic from the same folder.
    """
    few = ["--num-rollout", "2", "--rollout-batch-size", "4", "--n-samples-per-prompt", "4", "--global-batch-size", "8"]
    short = ["--max-length", "256", "--max-new-tokens", "6", "--eval-problems", "2", "--lr", "1e-3"]
    warm = ["--sft-steps", "2", "--sft-batch-size", "4", "--custom-rm-path", "tests.runtime.small_run:varied_rewards"]
    args = recipe(folder, *algorithm, *few, *short, *warm, "--save", str(folder / "saved"), "--save-interval", "2")
    run = InProcess(args)
    before = weights_of(run.roles["actor"].model)
    run.run()
    trained = list(run.of("train on batch"))
    assert [facts["trained"].samples for facts in trained] == [8] * 4
    for facts in trained:
        assert all(math.isfinite(value) for value in facts["metrics"].values())
        assert facts["metrics"]["grad_norm"] > 1e-2
        assert facts["metrics"]["train_rollout_log_prob_difference"] == 0  # on a CPU: sampled and scored to the bit
    assert any(not torch.equal(before[name], now) for name, now in weights_of(run.roles["actor"].model).items())
    resumed = InProcess(args, load=folder / "saved")
    assert run.bits() == resumed.bits()
