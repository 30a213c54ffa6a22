"""The process around a role: its failures are data, and what it hands over comes apart from them."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from relax.core.processes import RoleFailure, is_running, raising, starts_of
from relax.core.role_process import Failure, RoleProcess, Start
from tests.runtime.local_queue import LocalQueue


class Parrot:
    """A role that repeats what it is told."""

    def __init__(self, args: Namespace, queue: LocalQueue, *, voice: str = "plain") -> None:
        if voice == "broken":
            raise RuntimeError("no voice\nat all")
        self.voice = voice

    def say(self, word: str, weights: Mapping[str, Any] | None = None) -> list[Any]:
        """The word, in its voice, and what came as weights."""
        return [word, self.voice, weights]

    def fail(self) -> None:
        """Raises."""
        raise KeyError("word")

    def leave(self) -> None:
        """Ends the program, or would like to."""
        sys.exit(3)


@pytest.fixture
def started(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has joined its ranks already, as the tests' own has."""
    monkeypatch.setattr("relax.backends.megatron.ranks.start_ranks", lambda **place: None)
    monkeypatch.setattr("relax.core.random_states.seed_random_states", lambda seed: None)


def process(**options: Any) -> RoleProcess:
    """A parrot's."""
    args = Namespace(call_timeout=10.0, seed=0)
    path = "tests.runtime.test_role_process:Parrot"
    return RoleProcess(Start("parrot", path, options=options), args, LocalQueue())


@pytest.mark.usefixtures("started")
def test_calls() -> None:
    """Arguments and weights reach the method; a role is made with its own options."""
    role = process(voice="loud")
    assert role.ready() == os.getpid()
    assert role.call("say", {"word": "a"}) == ["a", "loud", None]
    assert role.call("say", {"word": "a"}, {"w": 1}) == ["a", "loud", {"w": 1}]
    assert role.give("say", {"word": "b"}) == (None, ["b", "loud", None])


@pytest.mark.usefixtures("started")
def test_failures() -> None:
    """An exception comes back as texts that travel: one line, and the traceback apart."""
    failure = process().call("fail", {})
    assert {str} == set(map(type, vars(failure).values()))
    assert (failure.kind, failure.message) == ("KeyError", "'word'")
    assert 'raise KeyError("word")' in failure.trace
    assert (process().call("leave", {}).kind, process().call("leave", {}).message) == ("SystemExit", "3")
    assert (failure.kind, None) == (process().give("fail", {})[0].kind, process().give("fail", {})[1])


@pytest.mark.usefixtures("started")
def test_a_role_that_cannot_be_made() -> None:
    """The process lives to tell why, in one line."""
    failure = process(voice="broken").ready()
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.message) == ("RuntimeError", "no voice at all")


def test_raising() -> None:
    """A failure that was given back is raised by whoever waits for it; all else passes."""
    outcomes = [Future[Any](), Future[Any](), Future[Any]()]
    waiting = [raising(outcome) for outcome in outcomes]
    outcomes[0].set_result(3)
    outcomes[1].set_exception(OSError("gone"))
    outcomes[2].set_result(Failure("KeyError", "'word'", "Traceback"))
    assert waiting[0].result() == 3
    with pytest.raises(OSError, match="gone"):
        waiting[1].result()
    with pytest.raises(RoleFailure, match="KeyError: 'word'"):
        waiting[2].result()


def test_starts(tmp_path: Path) -> None:
    """A process a role, and one a rank of the actor, which meet in the run's folder; the reference has its column."""
    roles = {"actor": "a:Actor", "rollout": "r:Rollout", "reference": "f:ActorFwd"}
    starts = starts_of(Namespace(data_parallel_size=2), roles, tmp_path)
    assert [start.name for start in starts] == ["actor rank 0", "actor rank 1", "rollout", "reference"]
    assert [(start.rank, start.size) for start in starts] == [(0, 2), (1, 2), (0, 1), (0, 1)]
    assert {start.rendezvous for start in starts[:2]} == {f"file://{tmp_path}/actor-ranks"}
    assert [dict(start.options) for start in starts[2:]] == [{}, {"column": "ref_log_probs"}]
    (alone, *_) = starts_of(Namespace(data_parallel_size=1), roles, tmp_path)
    assert (alone.name, alone.rendezvous) == ("actor", None)


def test_is_running() -> None:
    """A process that ended is not, though nobody has asked for its end yet."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert is_running(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_running(child.pid)
    child.communicate()
    assert not is_running(child.pid)
