"""Process subjects: every way in which a child may end, and that nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.verification.player import gone, is_alive, loss, play
from verification.cases.case import Case
from verification.revisions.checkout import Checkout
from verification.subjects.process import BUNDLE, SubjectFailed

pytestmark = pytest.mark.usefixtures("cache")

ROOT = Checkout.here().root


@pytest.mark.parametrize(
    ("number", "reason"),
    [(1, "died of SIGSEGV.*Segmentation fault"), (2, "took longer than 3 seconds.*reduce_loss"), (3, "with status 7")],
)
def test_a_child_that_dies_or_hangs_is_reported_with_the_case(player, number, reason):
    """The error names the subject and exactly the case, with the last words; the subject can be used again."""
    cases = [play(10), play(11), play(number, "at-fault"), play(12)]
    with pytest.raises(SubjectFailed, match=f"(?s)^checkout .*player .*{reason}") as failed:
        player.run_all(cases)
    assert failed.value.case == "loss.reduce/grpo/at-fault"
    assert "on case loss.reduce/grpo/at-fault" in str(failed.value)
    assert loss(player.run(play(10))) == 20


def test_a_child_that_ignores_its_own_deadline_is_killed(player, monkeypatch):
    """A process that is stopped can neither answer nor end itself."""
    monkeypatch.setattr("verification.subjects.child_process._GRACE", 0.5)
    player.started()
    pid = player.pid
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(SubjectFailed, match="gave no answer within 3 seconds and was killed"):
        player.run(play(10))
    assert not is_alive(pid)


def test_prints_of_the_code_do_not_disturb_the_protocol(player):
    """Standard output, the descriptor beneath it and that of a grandchild are not the line that answers go through."""
    assert loss(player.run(play(4))) == 8
    assert loss(player.run(play(10))) == 20


def test_an_exit_of_the_code_is_a_failure_of_the_case(player):
    """SystemExit is what the command line of relax gives, and ends no child."""
    outcome = player.run(play(7))
    assert outcome is not None
    assert outcome.failure is not None
    assert outcome.failure.kind == "SystemExit(enough)"


def test_a_case_that_cannot_travel_is_named(player):
    """A live object in a case has no exact form: the error says which case and where."""
    odd = Case("loss.reduce/grpo/live", "loss.reduce", "grpo", {"values": [object()]})
    with pytest.raises(SubjectFailed, match=r"cannot be given a case: loss\.reduce/grpo/live: inputs\['values'\]\[0\]"):
        player.run_all([*(play(number) for number in range(10, 10 + BUNDLE)), odd])
    assert loss(player.run(play(200))) == 400  # and not the answer to the bundle before


def test_closing_ends_the_process_and_removes_its_folder(player):
    """Nothing is left: neither the process nor the files that it was given; the next call starts another."""
    player.run(play(10))
    pid, folder = player.pid, player.folder
    assert is_alive(pid)
    assert folder.is_dir()
    assert sorted(path.name for path in folder.iterdir()) == ["stderr"]
    player.close()
    assert not is_alive(pid)
    assert not folder.exists()
    assert loss(player.run(play(10))) == 20
    assert player.pid != pid


PARENT = """
import sys
from pathlib import Path
from tests.verification.player import play
from verification.revisions.source import of_folder
from verification.subjects.process import ProcessSubject
subject = ProcessSubject(of_folder(Path(sys.argv[1]))).started()
print(subject.pid, subject.folder, flush=True)
subject.run(play(int(sys.argv[2])))
print("done", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [10, 2])
def test_the_child_ends_with_its_parent(player, number):
    """The parent is killed, the child idle or in the middle of a case that hangs: no process and no folder is left."""
    folder = player.source.root
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder), str(number)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert parent.stdout is not None
    pid, temporary = parent.stdout.readline().split()
    if number == 10:
        assert parent.stdout.readline() == "done\n"
    else:
        time.sleep(1)
    assert is_alive(int(pid))
    parent.kill()
    parent.communicate()
    assert gone(int(pid))
    assert not Path(temporary).exists()
