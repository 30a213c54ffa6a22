"""The step that the bench times is the one that the roles make, bit for bit, and its rows compare equal things."""

from __future__ import annotations

import pytest
import torch

from tests.runtime.in_process import InProcess, tiny
from verification.bench import training_rows
from verification.bench.example import Example
from verification.bench.training_rows import gdpo, registry

OPTIONS = ("--num-rollout", "2", "--sft-steps", "2", "--sft-batch-size", "8", "--reward-key", "total")

pytestmark = pytest.mark.usefixtures("alone")


def test_step() -> None:
    """Two steps leave the weights of a colocated run of two rollouts."""
    args = tiny("gdpo", *OPTIONS, "--weight-decay", "0.1", "--lr-warmup-steps", "1")
    example = Example(args)
    for _ in range(2):
        example.step()
    run = InProcess(args)
    run.run()
    expected = dict(run.roles["actor"].model.named_parameters())
    for name, parameter in example.model.named_parameters():
        assert torch.equal(expected[name], parameter), name


@pytest.mark.parametrize("row", [gdpo, registry])
def test_rows(row, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both rows time what there is of a small example, one round; the registry's checks that both sides agree."""
    monkeypatch.setattr(training_rows, "ROUNDS", 1)
    found = row(Example(tiny("gdpo", *OPTIONS)))
    assert (found.measure, found.rounds, found.target) == ("% of a step", 1, 1.0)
    assert found.seconds > 0
    assert found.reference_seconds > 0
