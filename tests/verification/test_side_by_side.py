"""Two subjects side by side: what they give, and that neither outlives a failure of the other or an interrupt."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest

from tests.verification.player import PLAYER, REDUCERS, is_alive, loss, play, source_of
from verification.revisions.checkout import Checkout
from verification.subjects.process import ProcessSubject, SubjectFailed
from verification.subjects.side_by_side import side_by_side

pytestmark = pytest.mark.usefixtures("cache")

ROOT = Checkout.here().root


ENOUGH = 20.0  # seconds, a third of what a case may take: the hanging side did not run out of its time


def sides(folder: Path) -> tuple[ProcessSubject, ProcessSubject]:
    """Two that have started; where the first exits, at 3, the second sleeps."""
    files = {
        "exits": PLAYER,
        "sleeps": PLAYER.replace("if number == 3: os._exit(7)", "if number == 3: time.sleep(600)"),
    }
    one, other = (ProcessSubject(source_of(folder / name, {REDUCERS: text})) for name, text in files.items())
    return one.started(), other.started()


def test_both_give_their_outcomes_and_the_count_is_of_both(tmp_path):
    """Each its own, in the order of the subjects; progress ends with the cases of both."""
    told: list[tuple[int, int]] = []
    tripled = source_of(tmp_path / "tripled", {REDUCERS: PLAYER.replace("2 * values", "3 * values")})
    doubled = source_of(tmp_path / "doubled", {REDUCERS: PLAYER})
    with ProcessSubject(doubled) as one, ProcessSubject(tripled) as other:
        first, second = side_by_side(one, other, [play(10)], lambda done, total: told.append((done, total)))
    assert (loss(first[play(10).id]), loss(second[play(10).id])) == (20, 30)
    assert told == [(1, 2), (2, 2)]


@pytest.mark.parametrize("swapped", [False, True])
def test_the_failure_of_one_side_ends_the_process_of_the_other(tmp_path, swapped):
    """The error is that of the side that failed, whichever it is; the other, in the middle of a case, is gone."""
    exits, sleeps = sides(tmp_path)
    pid, began = sleeps.pid, time.monotonic()
    with pytest.raises(SubjectFailed, match="exits ended with status 7"):
        side_by_side(*((sleeps, exits) if swapped else (exits, sleeps)), [play(3)])
    assert not is_alive(pid)
    assert time.monotonic() - began < ENOUGH


def test_an_interrupt_ends_both_processes(tmp_path):
    """Ctrl-C while both sides work: it goes through at once, and neither process is left."""
    both = sides(tmp_path)
    pids, began = [one.pid for one in both], time.monotonic()
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(1.0, signal.pthread_kill, (main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        side_by_side(*both, [play(2)])
    assert [is_alive(pid) for pid in pids] == [False, False]
    assert time.monotonic() - began < ENOUGH
