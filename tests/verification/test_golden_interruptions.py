"""Commands on goldens that are killed at any moment, or run two at a time."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.verification import golden_work
from tests.verification.test_golden_commands import git
from verification.goldens import exchange, provenance
from verification.goldens.locked import Busy, locked
from verification.goldens.staging import staged, staged_recording
from verification.goldens.store import GoldenStore
from verification.goldens.text import render
from verification.revisions.checkout import Checkout

ROOT = Path(__file__).parents[2]
KILLS = 20


class Forks:
    """The program `golden_work` on one checkout."""

    def __init__(self, checkout: Checkout) -> None:
        command = [sys.executable, "-m", "tests.verification.golden_work", str(checkout.root)]
        self.program = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._answer() == "ready"

    def _answer(self) -> str:
        assert self.program.stdout is not None
        return self.program.stdout.readline().strip()

    def work(self, line: str, kill_after: float | None = None) -> float:
        """One process to its end, or killed so many seconds after it began; the seconds that it had."""
        assert self.program.stdin is not None
        self.program.stdin.write(f"{line}\n")
        self.program.stdin.flush()
        pid, begun = int(self._answer()), time.monotonic()
        if kill_after is not None:
            time.sleep(kill_after)
            with contextlib.suppress(ProcessLookupError):  # it was faster
                os.kill(pid, signal.SIGKILL)
        last = self._answer()
        if last == "done":
            last = self._answer()
        else:
            assert kill_after is not None, "it failed: see standard error"
        assert last == "ended"
        return time.monotonic() - begun

    def close(self) -> None:
        self.program.communicate()


def values(folder: Path) -> set[str]:
    """The recorded lines of bits, which are all the same in a set of goldens that is whole; all can be read."""
    store = GoldenStore(folder)
    texts = [render(store.read(case, platform)) for case, platform in store.entries()]
    assert len(texts) == golden_work.COUNT
    return {text.splitlines()[-1] for text in texts}


def seen(checkout: Checkout) -> set[str]:
    """What a reader finds, once provenance and git agree with it; OLD is what is committed."""
    folder = exchange.standing(checkout)
    found = values(folder)
    for leaf in {path.parent for path in folder.rglob("*.txt")}:
        named = [name for names in provenance.read(leaf).values() for name in names]
        assert sorted(named) == sorted(path.stem for path in leaf.glob("*.txt"))
    if folder == checkout.golden:
        told = checkout.changes()
        assert {line[:2] for line in told} <= {" M"}
        assert sum(line.endswith(".txt") for line in told) == (golden_work.COUNT if found == {NEW} else 0)
    return found


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout without goldens."""
    root = tmp_path_factory.mktemp("killed")
    (root / "relax").mkdir()
    (root / "relax" / "__init__.py").write_text("")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    return Checkout(root)


@pytest.fixture(scope="module")
def forks(checkout: Checkout) -> Iterator[Forks]:
    """Processes on that checkout."""
    program = Forks(checkout)
    yield program
    program.close()


OLD, NEW = "  3f800000  # 1", "  40000000  # 2"


@pytest.fixture(scope="module")
def exchanges(tmp_path_factory: pytest.TempPathFactory) -> bool:
    """Whether this system can exchange two folders in one step."""
    return exchange._exchanged(tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("other"))


def test_killed_while_recording_the_staging_is_whole(checkout, forks, exchanges):
    """Killed at twenty moments, a recording touches no golden, and what is staged is all old or all new."""
    forks.work("1.0")
    duration = forks.work("1.0")
    assert values(staged(checkout).root) == {OLD}
    moments = random.Random(7)
    for _ in range(KILLS):
        forks.work("2.0", kill_after=moments.uniform(0, duration))
        assert not checkout.golden.exists()
        if exchanges or (checkout.staging / "recorded").exists():
            assert values(staged(checkout).root) in ({OLD}, {NEW})
            assert staged_recording(checkout).baseline == checkout.commit()
    forks.work("2.0")
    assert values(staged(checkout).root) == {NEW}


@pytest.mark.parametrize("accept", ["accept", golden_work.BY_RENAMES])
def test_killed_while_accepting_the_goldens_are_old_or_new(checkout, forks, exchanges, accept):
    """Killed at twenty moments, an acceptance leaves the old set or the new one, and the next command completes."""
    forks.work("1.0")
    forks.work("accept")
    git(checkout.root, "add", "golden")
    git(checkout.root, "commit", "--allow-empty", "-qm", "goldens")
    forks.work("2.0")
    duration = forks.work(accept)
    moments, changed = random.Random(11), []
    for kill in range(KILLS):  # spread over twice the time that it takes: before, during and after the exchange
        before = seen(checkout)
        forks.work("1.0" if before == {NEW} else "2.0")
        forks.work(accept, kill_after=2 * duration * (kill + moments.random() * (kill > 0)) / KILLS)
        assert checkout.golden.is_dir() or accept == golden_work.BY_RENAMES or not exchanges
        after = seen(checkout)
        assert after in ({OLD}, {NEW}), kill
        changed.append(after != before)
    forks.work("1.0")
    forks.work(accept)
    assert seen(checkout) == {OLD}
    assert not (checkout.staging / "next").exists()
    assert not (checkout.staging / "previous").exists()
    assert False in changed  # at least the first moment lay before the exchange


def test_a_second_command_refuses_with_the_holder(checkout):
    """While one process changes the goldens, another is refused at once and told which process to wait for."""
    hold = "import sys, time; from pathlib import Path; from verification.goldens.locked import locked\n"
    hold += "from verification.revisions.checkout import Checkout\n"
    hold += "with locked(Checkout(Path(sys.argv[1]))): print('held', flush=True); time.sleep(60)"
    command = [sys.executable, "-c", hold, str(checkout.root)]
    holder = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Busy, match=rf"process {holder.pid} is changing the goldens"), locked(checkout):
            pass
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.communicate()
    with locked(checkout):
        assert (checkout.staging / ".lock").read_text() == f"{os.getpid()}\n"
