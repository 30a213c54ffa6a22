"""One optimizer step: what it computes, what it refuses, and that it does both the same way every time."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from relax.backends.megatron.forward import output_of
from relax.backends.megatron.loss import policy_loss_function
from relax.backends.megatron.model import critic_model, policy_model
from relax.backends.megatron.optimizer import Optimizer, OptimizerSettings
from relax.backends.megatron.scoring import score_log_probs, score_values
from relax.backends.megatron.supervised import supervised_loss_function, value_loss_function
from relax.backends.megatron.train_step import NonFiniteGradient, Update, train_step
from relax.backends.megatron.weights import weights_of
from relax.rollout.collect import demonstrations
from relax.rollout.columns import sequence_columns, take
from relax.tasks.sums import Sums
from tests.runtime.small_run import SHAPE, arguments

pytestmark = pytest.mark.usefixtures("alone")

ARGS = arguments("grpo")


def batch(samples: int = 8) -> dict[str, list[Any]]:
    """Demonstrations with the columns of every loss; responses are of several lengths."""
    columns = sequence_columns(demonstrations(Sums(), range(samples)))
    lengths = columns["response_lengths"]
    columns["log_probs"] = [torch.full((length,), -3.0) for length in lengths]
    columns["advantages"] = [torch.full((length,), 1.5 - number % 4) for number, length in enumerate(lengths)]
    columns["returns"] = [torch.full((length,), float(number % 3)) for number, length in enumerate(lengths)]
    return columns


def step(
    columns: dict[str, list[Any]], *, micro_batch_size: int = 8, args: Any = ARGS, **settings: Any
) -> tuple[Update, torch.nn.Module]:
    """One step of a new model on the policy's loss, and the model after it."""
    model = policy_model(SHAPE, seed=1)
    optimizer = Optimizer(model, OptimizerSettings(**settings))
    return train_step(args, model, optimizer, columns, policy_loss_function, micro_batch_size=micro_batch_size), model


def gradient(args: Any, columns: dict[str, list[Any]]) -> torch.Tensor:
    """The gradient of the whole batch in one pass, not divided."""
    model = policy_model(SHAPE, seed=1)
    loss, _ = policy_loss_function(args, columns, output_of(args, model, columns))
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])


def flat(model: torch.nn.Module) -> torch.Tensor:
    """All weights end to end."""
    return torch.cat([one.detach().flatten() for one in model.parameters()])


@pytest.mark.parametrize("per_token", [False, True])
def test_mean(per_token: bool) -> None:
    """The loss is a mean over samples, or over unmasked tokens, and the norm that of its gradient."""
    args = arguments("grpo", calculate_per_token_loss=per_token)
    columns = batch()
    columns["loss_masks"][3][:2] = 0
    update, _ = step(columns, args=args)
    tokens = sum(columns["response_lengths"]) - 2
    whole = gradient(args, columns).double() / (tokens if per_token else 8)
    # reason: one float32 division of each element apart
    assert update.grad_norm == pytest.approx(float(whole.norm()), rel=1e-6)
    assert update.metrics["loss"] == update.metrics["pg_loss"] != 0


def test_micro_batches() -> None:
    """Slices of any size give the update of the whole batch, up to the rounding of their sum."""
    whole, expected = step(batch(), micro_batch_size=8)
    assert whole.rows == ()
    keys = [f"row {number}" for number in range(8)]
    for size in (1, 3, 4):
        update, model = step({**batch(), "keys": keys}, micro_batch_size=size)
        assert keys == list(update.rows)
        assert update.metrics == pytest.approx(whole.metrics, rel=1e-5, abs=1e-7)  # reason: float32 sums in slices
        assert update.grad_norm == pytest.approx(whole.grad_norm, rel=1e-5)  # reason: as above
        # reason: Adam's first step is the gradient's sign, which a rounding turns where the gradient is next to 0
        assert float(((flat(model) - flat(expected)).abs() > 1e-4).double().mean()) < 1e-2


def test_same_bits() -> None:
    """The same step twice gives the same bits, and another batch other ones."""
    first, again, other = step(batch()), step(batch()), step(batch(7))
    assert first[0] == again[0]
    assert torch.equal(flat(first[1]), flat(again[1]))
    assert first[0].grad_norm != other[0].grad_norm


def test_direction() -> None:
    """A step against the gradient lowers the loss that it was computed from."""
    columns = batch()
    model = policy_model(SHAPE, seed=1)
    log_probs = score_log_probs(ARGS, model, columns, micro_batch_size=8)
    expected = -sum(float(tokens.double().mean()) for tokens in log_probs) / 8
    optimizer = Optimizer(model, OptimizerSettings(1e-3))
    losses = [
        train_step(ARGS, model, optimizer, columns, supervised_loss_function, micro_batch_size=8).metrics["loss"]
        for _ in range(5)
    ]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] == pytest.approx(expected, rel=1e-6)  # reason: float32 means, in float64 here
    assert losses[4] < 0.97 * losses[0]


def test_adam() -> None:
    """Moments and weights after two steps are those of Adam's formulas, in float64 from the same gradients."""
    model = policy_model(SHAPE, seed=1)
    optimizer = Optimizer(model, OptimizerSettings(1e-2, clip_grad=0.0, weight_decay=0.1))
    weights, size = flat(model).double(), len(flat(model))
    decayed = torch.cat([torch.full((one.numel(),), 0.1 * (one.dim() > 1)) for one in model.parameters()]).double()
    first = second = torch.zeros(size, dtype=torch.float64)
    for number in (1, 2):
        slope = torch.linspace(-1, 1, size) * number
        optimizer.step(slope, float(slope.norm()))
        wide = slope.double()
        first, second = 0.9 * first + 0.1 * wide, 0.999 * second + 0.001 * wide**2
        root = (second / (1 - 0.999**number)).sqrt() + 1e-8
        weights = weights * (1 - 1e-2 * decayed) - 1e-2 * first / (1 - 0.9**number) / root
    assert torch.allclose(flat(model).double(), weights, rtol=0, atol=1e-6)  # reason: some ten float32 roundings
    assert optimizer.steps == 2


def test_clip() -> None:
    """A gradient longer than the bound enters the moments at that length, and the norm that is told is its own."""
    columns = batch()
    norms = {}
    for bound in (0.0, 1e-3, 1e3):
        model = policy_model(SHAPE, seed=1)
        optimizer = Optimizer(model, OptimizerSettings(clip_grad=bound))
        update = train_step(ARGS, model, optimizer, columns, policy_loss_function, micro_batch_size=8)
        moments = [tensor for name, tensor in optimizer.state().items() if name.startswith("exp_avg/")]
        norms[bound] = float(torch.cat([one.flatten() for one in moments]).double().norm()) / 0.1
        assert update.grad_norm > 1e-2
    # reason: a tenth of each element in float32
    assert norms[1e-3] == pytest.approx(1e-3, rel=1e-5)
    assert norms[0.0] == norms[1e3] == pytest.approx(update.grad_norm, rel=1e-5)  # reason: as above


def test_warm_up() -> None:
    """The rate grows in equal steps and then stays."""
    model = policy_model(SHAPE, seed=1)
    optimizer = Optimizer(model, OptimizerSettings(0.8, warmup_steps=4))
    rates = [
        train_step(ARGS, model, optimizer, batch(2), supervised_loss_function, micro_batch_size=2).learning_rate
        for _ in range(6)
    ]
    assert [0.2, 0.4, pytest.approx(0.6), 0.8, 0.8, 0.8] == rates  # reason: 0.6 is no double


def test_critic_learns() -> None:
    """A critic's values come closer to the returns, and its loss is half their mean squared distance."""
    columns = batch()
    critic = critic_model(SHAPE, seed=2)
    optimizer = Optimizer(critic, OptimizerSettings(1e-2))
    updates = [train_step(ARGS, critic, optimizer, columns, value_loss_function, micro_batch_size=8) for _ in range(30)]
    assert updates[0].metrics["loss"] == sum((number % 3) ** 2 / 2 for number in range(8)) / 8
    assert updates[-1].metrics["loss"] < updates[0].metrics["loss"] / 2
    values = score_values(ARGS, critic, columns, micro_batch_size=3)
    assert columns["response_lengths"] == [len(one) for one in values]
    assert float(torch.cat(values).mean()) > 0.3


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_not_finite(bad: float) -> None:
    """An advantage that is not finite stops the step by name, with every weight and moment as before."""
    columns = batch()
    columns["advantages"][2][1] = bad
    model = policy_model(SHAPE, seed=1)
    optimizer = Optimizer(model, OptimizerSettings())
    before = weights_of(model)
    with pytest.raises(NonFiniteGradient, match=r"optimizer step 0: the gradient of \S*embedding\S* is not finite"):
        train_step(ARGS, model, optimizer, columns, policy_loss_function, micro_batch_size=8)
    assert all(torch.equal(before[name], now) for name, now in weights_of(model).items())
    assert (optimizer.steps, optimizer.state()) == (0, {})


def test_nothing_to_learn() -> None:
    """A batch without a sample is refused, and so is one whose tokens are all masked where tokens are counted."""
    with pytest.raises(ValueError, match="this rank has no sample"):
        step(take(batch(), []))
    columns = batch()
    columns["loss_masks"] = [torch.zeros_like(mask) for mask in columns["loss_masks"]]
    with pytest.raises(ValueError, match="no unmasked token on any rank"):
        step(columns, args=arguments("grpo", calculate_per_token_loss=True))
