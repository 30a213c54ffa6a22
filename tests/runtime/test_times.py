"""Where the time of a run goes: clocks, the driver's timer of steps, and shares that add up."""

from __future__ import annotations

import time
from argparse import Namespace
from contextlib import suppress
from typing import Any

import pytest

from relax.core.clock import Clock
from relax.core.step_timer import StepTimer
from relax.core.units import Unit
from relax.progress.times import OTHER, PARTS, Times
from tests.runtime.in_process import InProcess, tiny


class Watch:
    """A clock that goes on when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """In place of the processor's."""
    return Watch(monkeypatch)


class TestClock:
    def test_names(self, watch: Watch) -> None:
        """Time is added up by name, also where a block raises, and starts anew when it was taken."""
        clock = Clock()
        for seconds in (1, 2):
            with clock("a"):
                watch.now += seconds
        with suppress(KeyError), clock("b"):
            watch.now += 4
            raise KeyError
        assert clock.take() == {"a": 3, "b": 4}
        assert clock.take() == {}

    def test_nested(self, watch: Watch) -> None:
        """What is spent in a block within another one is the inner one's alone, at any depth."""
        clock = Clock()
        with clock("outer"):
            watch.now += 1
            with clock("inner"):
                watch.now += 2
                with clock("innermost"):
                    watch.now += 4
            watch.now += 8
            with clock("inner"):
                watch.now += 16
        assert clock.take() == {"outer": 9, "inner": 18, "innermost": 4}


def options(**others: Any) -> Namespace:
    """What a timer reads of a run."""
    return Namespace(**{"loss_type": "policy_loss", "hybrid": False, "fully_async": False, **others})


def timed(watch: Watch, args: Namespace) -> Times:
    """A warm-up of 5 s, an evaluation of 3 s, a step of 16 s on two ranks, and a checkpoint of 2 s inside it."""
    timer = StepTimer(args)
    watch.now += 50
    timer.begin()

    def unit(role: str, call: str, seconds: float, *clocks: dict[str, float]) -> None:
        watch.now += seconds
        timer.take(Unit(call, role, call), [{"seconds": clock} for clock in clocks] or [None])

    unit("actor", "learn", 5, {"loss": 4.0})
    timer.supervised_row()
    unit("rollout", "evaluate", 3, {"evaluate": 3.0})
    unit("rollout", "generate", 4, {"sample": 2.0, "rewards": 1.0, "transport": 0.5})
    unit("actor", "save", 2)
    unit("actor", "train", 10, {"loss": 6.0, "optimizer": 2.0}, {"loss": 8.0, "optimizer": 1.0, "ranks": 1.0})
    unit("controller", "drop", 2, {"drop": 1.5})
    timer.row()
    return timer.times()


def test_in_turn(watch: Watch) -> None:
    """One role at a time: the parts of all roles add up to the steps, without warm-up, evaluation and checkpoint."""
    times = timed(watch, options())
    assert (times.elapsed, times.warm_up, times.aside, times.steps) == (26, 5, 5, 16)
    parts = {
        "sampling": 2.0,
        "rewards": 1.0,
        "transport": 2.0,
        "loss, gradients": 7.0,
        "optimizer": 1.5,
        OTHER: 2.5,
    }
    assert times.parts() == {"": parts}
    assert list(times.of_the_steps()) == [*parts.items(), ("the steps", 16)]
    assert list(times.of_the_run()) == [
        ("warm-up", 5),
        ("evaluations, checkpoints", 5),
        ("steps", 16),
        ("the run", 26),
    ]


@pytest.mark.parametrize("mode", ["hybrid", "fully_async"])
def test_at_the_same_time(mode: str, watch: Watch) -> None:
    """Where roles overlap, the parts of each add up to the steps, beside which checkpoints are written."""
    times = timed(watch, options(**{mode: True}))
    assert (times.aside, times.steps) == (3, 18)
    assert times.parts()["rollout"] == {"sampling": 2.0, "rewards": 1.0, "transport": 0.5, OTHER: 14.5}
    assert times.parts()["actor"] == {"loss, gradients": 7.0, "optimizer": 1.5, OTHER: 9.5}
    assert ("actor: optimizer", 1.5) in list(times.of_the_steps())


def test_supervised_run(watch: Watch) -> None:
    """The steps of a run that is supervised alone are its supervised steps."""
    timer = StepTimer(options(loss_type="sft_loss"))
    for _ in range(2):
        watch.now += 4
        timer.take(Unit("learn", "actor", "learn"), [{"seconds": {"loss": 3.0}}])
        timer.supervised_row()
    assert timer.times().parts() == {"actor": {"loss, gradients": 6.0, OTHER: 2.0}}


KL = ("--use-kl-loss", "--kl-loss-coef", "0.1")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("mode", ["--colocate", "--fully-async"])
def test_roles(mode: str) -> None:
    """All that the roles count has a place among the parts of a step, but for ranks that wait for one another."""
    args = tiny("ppo", mode, "--num-rollout", "1", "--sft-steps", "1", "--sft-batch-size", "8", *KL)
    run = InProcess(args)
    run.run()
    counted = {name for facts in run.facts.values() for name in (facts or {}).get("seconds", {})}
    assert counted - {name for names in PARTS.values() for name in names} == {"ranks"}
