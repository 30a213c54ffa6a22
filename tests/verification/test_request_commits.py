"""The request check on commits of small scratch repositories, from git to the exit status."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from tests.verification.repository import git
from verification.cases import corpus
from verification.cases.case import Case
from verification.cli import main
from verification.goldens.changes import CHANGED, GONE, INPUTS, NEW, REWRITTEN
from verification.goldens.compare import golden_of
from verification.goldens.parse import GoldenFormatError
from verification.goldens.text import render
from verification.request import command
from verification.request.changed import changed
from verification.request.command import request_check
from verification.request.statement import NOTHING_DIFFERS, RECORDED, STATED, UNCHANGED
from verification.revisions.checkout import Checkout, CheckoutError
from verification.subjects.live import live_subject
from verification.subjects.outcome import Failure, Outcome

ROOT = Path(__file__).resolve().parents[2]
SIGNAL, REWARD = "reward.signal/grpo/one-winner-g4", "reward.normalize/grpo/halves-g8"
CASES = tuple(case for case in corpus() if case.id in (SIGNAL, REWARD))
BY_ID = {case.id: case for case in CASES}


class Scratch:
    """A git repository with ``relax/`` and goldens."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.checkout = Checkout(root)
        root.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        return git(self.root, *arguments)

    def commit(self, message: str) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def write(self, path: str, text: str) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def record(self, case: Case, outcome: Outcome | None = None) -> Path:
        """The golden of ``case`` on this platform, of what the working tree of the tests gives unless told."""
        outcome = outcome or live_subject().run(case)
        assert outcome is not None
        golden = golden_of(case, outcome)
        stage, algorithm, name = case.id.split("/")
        return self.write(f"golden/{stage}/{algorithm}/{golden.platform}/{name}.txt", render(golden))


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    monkeypatch.setenv("RELAX_VERIFY_CACHE", str(tmp_path / "cache"))
    return Scratch(tmp_path / "repository")


@pytest.fixture
def with_relax(scratch: Scratch) -> Scratch:
    """A copy of the tracked files of ``relax/`` with two goldens of what it gives, committed."""
    tracked = subprocess.run(["git", "-C", str(ROOT), "ls-files", "relax"], capture_output=True, text=True, check=True)
    for path in tracked.stdout.splitlines():
        (scratch.root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, scratch.root / path)
    for case in CASES:
        scratch.record(case)
    scratch.commit("base")
    return scratch


def moved(case: Case) -> Outcome:
    """What the case gives with the epsilon that `edit_epsilon` writes."""
    from relax.algorithms.formulas import group

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group, "EPSILON", 0.5)
        found = live_subject().run(case)
    assert found is not None
    return found


def edit_epsilon(scratch: Scratch) -> None:
    path = scratch.root / "relax/algorithms/formulas/group.py"
    assert "EPSILON = 1e-6\n" in path.read_text()
    path.write_text(path.read_text().replace("EPSILON = 1e-6\n", "EPSILON = 0.5\n"))


def test_every_kind_of_golden_change_is_told_apart(scratch: Scratch):
    """New, gone, another outcome, other inputs and other text are read from two commits; provenance is no golden."""
    names = ("stays", "goes", "moves", "asks", "reads")
    cases = {name: Case(f"loss.reduce/grpo/{name}", "loss.reduce", "grpo", {"values": [1]}) for name in names}
    one, other = (Outcome(arrays={"loss": torch.tensor(value)}) for value in (1.0, 2.0))
    for case in cases.values():
        scratch.record(case, one)
    scratch.record(cases["reads"], Outcome(failure=Failure("ValueError", "said")))
    scratch.write("golden/loss.reduce/grpo/any/provenance.json", "{}")
    scratch.write("relax/x.py", "1\n")
    base = scratch.commit("base")
    new = Case("loss.reduce/grpo/comes", "loss.reduce", "grpo", {"values": [1]})
    scratch.record(new, one)
    scratch.record(cases["goes"], one).unlink()
    scratch.record(cases["moves"], other)
    scratch.record(Case(cases["asks"].id, "loss.reduce", "grpo", {"values": [2]}), one)
    scratch.record(cases["reads"], Outcome(failure=Failure("ValueError", "said otherwise")))
    scratch.write("golden/loss.reduce/grpo/any/provenance.json", "{} ")
    scratch.write("verification/frozen/kl.py", "2\n")
    scratch.write("relax/x.py", "2\n")
    found = changed(scratch.checkout, base, scratch.commit("head"))
    kinds = {change.case.rpartition("/")[2]: change.kind for change in found.goldens}
    assert kinds == {"comes": NEW, "goes": GONE, "moves": CHANGED, "asks": INPUTS, "reads": REWRITTEN}
    (told,) = [change.detail for change in found.goldens if change.kind == CHANGED]
    assert "got 2 (0x40000000), expected 1 (0x3f800000)" in told
    assert (found.frozen, found.relax) == (("verification/frozen/kl.py",), ("relax/x.py",))
    assert found.reference_moved
    assert set(found.recorded) == {case.id for case in (*cases.values(), new)} - {cases["goes"].id}


def test_a_damaged_golden_is_refused_by_name(scratch: Scratch):
    """A golden of the request that cannot be read is an error that names file and reason, not a change."""
    case = Case("loss.reduce/grpo/damaged", "loss.reduce", "grpo", {"values": [1]})
    path = scratch.record(case, Outcome(arrays={"loss": torch.tensor(1.0)}))
    base = scratch.commit("base")
    whole = path.read_text()
    path.write_text("no golden")
    damaged = scratch.commit("damaged")
    with pytest.raises(GoldenFormatError, match=r"damaged\.txt:1"):
        changed(scratch.checkout, base, damaged)
    path.write_text(whole)
    (mended,) = changed(scratch.checkout, damaged, scratch.commit("mended")).goldens
    assert mended.kind == CHANGED
    assert "what it was cannot be read" in mended.detail


def test_a_difference_needs_its_golden_in_the_same_request(with_relax: Scratch):
    """An epsilon that moves: unstated, until the golden that holds the new outcome is committed with it."""
    base = with_relax.git("rev-parse", "HEAD")
    edit_epsilon(with_relax)
    with_relax.commit("epsilon")
    silent = request_check(base, with_relax.checkout, CASES)
    assert [one.case.id for one in silent.diff.differing] == [REWARD]
    assert [(one.case, one.what) for one in silent.complaints] == [(REWARD, UNCHANGED)]
    assert silent.exit_code == 1

    with_relax.record(BY_ID[REWARD], moved(BY_ID[REWARD]))
    with_relax.commit("golden")
    told = request_check(base, with_relax.checkout, CASES)
    assert (told.exit_code, told.verdict, told.settled) == (0, "VERDICT stated (1)", {STATED: (REWARD,)})

    with_relax.record(BY_ID[SIGNAL], moved(BY_ID[REWARD]))
    with_relax.commit("one golden too many")
    much = request_check(base, with_relax.checkout, CASES)
    assert [(one.case, one.what) for one in much.complaints] == [(SIGNAL, NOTHING_DIFFERS)]


def test_the_same_tree_runs_nothing(with_relax: Scratch, monkeypatch: pytest.MonkeyPatch):
    """Without a change of relax/ no process starts; a new golden is counted, and the request holds."""
    monkeypatch.setattr("verification.subjects.process.ProcessSubject.__enter__", pytest.fail)
    base = with_relax.git("rev-parse", "HEAD")
    third = next(case for case in corpus() if case.stage == "roles.resolve")
    with_relax.record(third)
    with_relax.commit("a golden")
    found = request_check(base, with_relax.checkout, [*CASES, third])
    assert (0, "VERDICT equivalent", {RECORDED: (third.id,)}) == (found.exit_code, found.verdict, found.settled)


def test_what_others_merged_is_no_part_of_the_request(with_relax: Scratch):
    """The base stands for the commit where the request left it, however far it has gone since."""
    start = with_relax.git("rev-parse", "HEAD")
    with_relax.git("checkout", "-q", "-b", "mine")
    with_relax.write("notes.txt", "mine\n")
    with_relax.commit("mine")
    with_relax.git("checkout", "-q", "main")
    edit_epsilon(with_relax)
    with_relax.commit("theirs")
    with_relax.git("checkout", "-q", "mine")
    found = request_check("main", with_relax.checkout, CASES)
    assert (start, 0, "VERDICT equivalent") == (found.changed.base, found.exit_code, found.verdict)


def test_what_is_no_request_is_refused(with_relax: Scratch):
    """The same commit, uncommitted changes and an unknown base are refused, each with what to do."""
    base = with_relax.git("rev-parse", "HEAD")
    with pytest.raises(CheckoutError, match="there is no change to state"):
        request_check("main", with_relax.checkout, CASES)
    with_relax.write("notes.txt", "x")
    with_relax.commit("notes")
    edit_epsilon(with_relax)
    with pytest.raises(CheckoutError, match=r"relax/algorithms/formulas/group.py is not committed"):
        request_check(base, with_relax.checkout, CASES)
    with pytest.raises(CheckoutError, match="no-such-branch"):
        request_check("no-such-branch", with_relax.checkout, CASES)


def test_the_verb_reports(
    with_relax: Scratch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    """The verdict is the last line and the exit status; JSON and the summary of a CI step name the unstated case."""
    base = with_relax.git("rev-parse", "HEAD")
    edit_epsilon(with_relax)
    with_relax.commit("epsilon")
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setattr(
        command, "request_check", lambda base, here, cases, progress: request_check(base, with_relax.checkout, CASES)
    )
    assert main(["request", base, "--json", str(tmp_path / "request.json")]) == 1
    told = capsys.readouterr().out
    assert told.splitlines()[-1] == "VERDICT unstated (1)"
    assert REWARD in told
    assert "golden regen --baseline HEAD" in told
    assert json.loads((tmp_path / "request.json").read_text())["differing"] == [REWARD]
    assert REWARD in summary.read_text()
    assert main(["request", base, "--quiet"]) == 1
    assert capsys.readouterr().out == "VERDICT unstated (1)\n"
    assert main(["request", "HEAD"]) == 2
    assert "there is no change to state" in capsys.readouterr().err
