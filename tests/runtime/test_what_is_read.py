"""What the command line says of options without effect is so of runs: what they read, and what their numbers are."""

from __future__ import annotations

from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from relax.option_ranges import attribute_of
from relax.train import _checked
from relax.unread_options import READ_WITH
from tests.runtime.in_process import InProcess, tiny

pytestmark = pytest.mark.usefixtures("alone")

# Options with a value; a mode is looked at in every run, if only to see that it is off.
VALUES = {attribute_of(option) for option in READ_WITH} - {"fully_async", "hybrid", "true_on_policy_mode"}
OF_THE_POLICY = {attribute_of(option) for option, readers in READ_WITH.items() if "--loss-type policy_loss" in readers}
# Of the warm-up's optimizer, which an actor makes with and without steps to do.
MADE_ANYWAY = {"sft_lr", "sft_lr_warmup_steps"}
SUPERVISED = ("--loss-type", "sft_loss", "--sft-steps", "2", "--sft-batch-size", "8")


class Noticed(Namespace):
    """Options that keep the names of those that were read."""

    def __init__(self, args: Namespace) -> None:
        super().__init__(**vars(args), read=set())

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not name.startswith("_") and name != "read":
            super().__getattribute__("read").add(name)
        return found


def read(*options: str) -> set[str]:
    """What a run with ``options`` reads."""
    args = Noticed(tiny("grpo", *options))
    InProcess(args).run()
    return args.read


def test_without_their_readers() -> None:
    """A run whose readers are off reads none of the options that it warns of, and a supervised one none of a policy."""
    plain = read()
    assert "lr" in plain
    assert plain & (VALUES - OF_THE_POLICY) == MADE_ANYWAY
    supervised = read(*SUPERVISED)
    assert "sft_lr" in supervised
    assert supervised & (OF_THE_POLICY & VALUES) == set()


@pytest.mark.filterwarnings("ignore:--use-tis .on. and --fully-async")
def test_beside_their_readers() -> None:
    """A run with every reader on reads all of them."""
    corrections = ("--use-opsm", "--use-tis", "--use-kl-loss", "--kl-loss-coef", "0.1")
    assert read("--fully-async", *corrections, "--sft-steps", "2", "--sft-batch-size", "8") >= VALUES


@pytest.mark.parametrize(
    ("mode", "corrects"),
    [(("--hybrid",), True), (("--fully-async",), False), (("--hybrid", "--true-on-policy-mode"), False)],
)
@pytest.mark.filterwarnings("ignore:--use-tis .on. and --")
def test_weights_of_the_importance_correction(mode: tuple[str, ...], corrects: bool) -> None:
    """With stale rollouts weights differ from 1 in hybrid mode; where a warning says so all are 1, to the bit here."""
    run = InProcess(tiny("grpo", *mode, "--use-tis", "--max-staleness", "2", "--num-rollout", "4")).run()
    weights = [facts["metrics"]["tis_weight"] for facts in run.of("train on batch")]
    assert len(weights) == 8
    assert any(weight != 1.0 for weight in weights) is corrects


def test_trace_before_the_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that goes on after the rollout to trace says that there will be no trace; one that comes to it does not."""
    saved = ("--save", str(tmp_path / "saved"), "--save-interval", "2", "--num-rollout", "4")
    InProcess(tiny("grpo", *saved[:-1], "2")).run()
    for rollout, said in (("1", 1), ("2", 0)):
        traced = ("--trace-rollout", rollout, "--trace-folder", str(tmp_path / rollout))
        with ExitStack() as held:
            checkpoint = _checked(tiny("grpo", *saved, "--load", str(tmp_path / "saved"), *traced), held)
        assert checkpoint is not None
        err = capsys.readouterr().err
        assert err.count("\n") == said
        assert ("--trace-rollout 1 and --load" in err and "goes on with rollout 2; give that or" in err) is bool(said)
