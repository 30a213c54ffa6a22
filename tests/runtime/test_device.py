"""Training on a device that is not the host: no tensor of the one is mixed with one of the other.

The device is one in software, on which the CPU computes. What a GPU's own kernels give is not tried here.
"""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from relax.backends.megatron.build import build_critic, build_policy
from relax.backends.megatron.loss import compute_advantages_and_returns, policy_loss_function
from relax.backends.megatron.optimizer import Optimizer, OptimizerSettings
from relax.backends.megatron.scoring import score_log_probs, score_values
from relax.backends.megatron.supervised import supervised_loss_function, value_loss_function
from relax.backends.megatron.train_step import train_step
from relax.backends.megatron.weights import load_weights, weights_of
from relax.rollout.collect import collect, score
from relax.rollout.columns import rollout_columns
from relax.tasks.sums import Sums
from tests.runtime.qwen3_folder import qwen3_folder
from tests.runtime.small_run import arguments
from verification.devices.pretend import Elsewhere, place, pretending

pytestmark = pytest.mark.usefixtures("alone")

TASK = Sums(seed=1)


def options(folder: Path | None, qkv_format: str) -> Namespace:
    """A PPO run, which has a critic, of a small model or of the Qwen3 in a folder."""
    args = arguments("ppo", prompts=2, group=2, qkv_format=qkv_format, use_kl_loss=True, kl_coef=0.1)
    sizes = {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "ffn_hidden_size": 64, "max_length": 32}
    for name, value in {**sizes, "hf_checkpoint": folder and str(folder), "device": "cpu"}.items():
        setattr(args, name, value)
    return args


def moved(model: torch.nn.Module) -> torch.nn.Module:
    """The model, its parameters and buffers moved to the pretended device."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            setattr(module, name, torch.nn.Parameter(place(parameter)))
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, place(buffer))
    return model


class Trained(NamedTuple):
    """What the roles get back."""

    columns: dict[str, Any]
    norms: list[float]
    """Of the first gradient of each loss."""
    states: list[torch.Tensor]
    """Weights and moments."""


def trained(args: Namespace, move: Callable[[torch.nn.Module], torch.nn.Module]) -> Trained:
    """One rollout, scored, and two steps of each loss on it; state goes out and comes back in between."""
    policy, critic = move(build_policy(args, TASK)), move(build_critic(args, TASK))
    samples = collect(args, policy, TASK, range(2), rollout=0, max_new_tokens=6)
    score(args, samples)
    columns: dict[str, Any] = rollout_columns(args, samples)
    columns["log_probs"] = columns["ref_log_probs"] = score_log_probs(args, policy, columns, micro_batch_size=3)
    columns["values"] = score_values(args, critic, columns, micro_batch_size=3)
    data = {**columns, "mini_batch_sizes": [len(samples)]}
    compute_advantages_and_returns(args, data)
    columns |= {"advantages": data["advantages"], "returns": data["returns"]}
    norms, states = [], []
    for model, loss in (
        (policy, supervised_loss_function),
        (policy, policy_loss_function),
        (critic, value_loss_function),
    ):
        optimizer = Optimizer(model, OptimizerSettings())
        updates = []
        for _ in range(2):
            updates.append(train_step(args, model, optimizer, columns, loss, micro_batch_size=3))
            optimizer.load_state(optimizer.state(), optimizer.steps)
            load_weights(model, weights_of(model))
        assert all(isfinite(value) for update in updates for value in (update.grad_norm, *update.metrics.values()))
        norms.append(updates[0].grad_norm)
        states += [*optimizer.state().values(), *weights_of(model).values()]
    return Trained(columns, norms, states)


@pytest.fixture(autouse=True)
def copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Megatron frees a tensor of its base by setting ``data``, which the pretended device has not: it copies here."""
    monkeypatch.setattr("megatron.core.utils._kernel_make_viewless_tensor", lambda inp, requires_grad: inp.clone())


@pytest.mark.parametrize("qkv_format", ["thd", "bshd"])
@pytest.mark.parametrize("kind", ["small", "qwen3"])
def test_training(tmp_path: Path, kind: str, qkv_format: str) -> None:
    """A rollout samples the host's tokens, scores and gradients have its values, and what roles get is on the host."""
    if kind == "qwen3":
        qwen3_folder(tmp_path, vocab_size=TASK.tokenizer.size)
    args = options(tmp_path if kind == "qwen3" else None, qkv_format)
    expected = trained(args, lambda model: model)
    with pretending():
        found = trained(args, moved)
    assert expected.columns.keys() == found.columns.keys()
    for name, column in expected.columns.items():
        for one, other in zip(column, found.columns[name], strict=True):
            assert not isinstance(other, Elsewhere), name
            # reason: off the host torch takes its general formulas, whose float32 sums have another order
            assert torch.allclose(torch.as_tensor(one), torch.as_tensor(other), rtol=1e-4, atol=1e-5), name
    assert not any(isinstance(tensor, Elsewhere) for tensor in found.states)
    # reason: as above
    assert pytest.approx(expected.norms, rel=1e-4) == found.norms
    assert min(expected.norms[0], expected.norms[2]) > 1e-2


def test_pretended_device_is_one(tmp_path: Path) -> None:
    """What this page rests on: a model that was moved refuses a tensor of the host."""
    model = moved(build_policy(options(None, "thd"), TASK))
    ids = torch.tensor([[random.Random("ids").randrange(9) for _ in range(8)]])
    with pretending(), pytest.raises(RuntimeError, match="mixes devices"):
        model(ids, ids, None)
