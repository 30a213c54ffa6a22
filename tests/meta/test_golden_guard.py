"""Goldens cannot be written by accident: not under CI, not from a changed tree, not by pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.verification.repository import git
from verification.goldens.guard import WriteRefused, permit
from verification.goldens.snapshot import GoldenSnapshotExtension
from verification.revisions.checkout import Checkout, CheckoutError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """Two commits; the second is checked out."""
    git(tmp_path, "init", "-q")
    for content in ("one", "two"):
        (tmp_path / "code.py").write_text(content)
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-qm", content)
    return Checkout(tmp_path)


def test_a_clean_tree_at_the_baseline_may_be_recorded(checkout):
    """HEAD, its full and its short SHA all name the commit that is checked out."""
    head = checkout.commit()
    for baseline in ("HEAD", head, head[:10]):
        assert head == permit(checkout, baseline, environment={}).baseline


@pytest.mark.parametrize("value", ["true", "1", "false", "0"])
def test_never_under_ci(checkout, value):
    """Whatever the variable CI is set to, nothing is written."""
    with pytest.raises(WriteRefused, match="never written under CI"):
        permit(checkout, "HEAD", environment={"CI": value})


def test_another_revision_may_be_recorded_from_a_clean_tree(checkout):
    """The permit is for the baseline, whatever is checked out."""
    assert checkout.commit("HEAD~1") == permit(checkout, "HEAD~1", environment={}).baseline


@pytest.mark.parametrize("baseline", ["nonsense", "--help", "", "deadbeef"])
def test_a_baseline_that_is_no_commit_is_an_error(checkout, baseline):
    """A word that names no commit, or looks like an option, is git's to refuse and never an option."""
    with pytest.raises(CheckoutError, match="rev-parse"):
        permit(checkout, baseline, environment={})


@pytest.mark.parametrize("name", ["code.py", "new.py", "golden/x.txt"])
def test_a_changed_tree_is_refused_with_the_file(checkout, name):
    """A changed file and an untracked one are named; golden/ counts unless it is what is being changed."""
    (checkout.root / name).parent.mkdir(exist_ok=True)
    (checkout.root / name).write_text("three")
    with pytest.raises(WriteRefused, match=rf"differs from [0-9a-f]{{12}}: {re.escape(name)}"):
        permit(checkout, "HEAD", environment={})
    if name.startswith("golden/"):
        assert permit(checkout, "HEAD", ignore="golden", environment={}).baseline == checkout.commit()
    else:
        with pytest.raises(WriteRefused):
            permit(checkout, "HEAD", ignore="golden", environment={})


def test_a_folder_that_is_no_checkout_is_an_error(tmp_path, monkeypatch):
    """Outside git there is no baseline to record."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(CheckoutError, match="not a git repository"):
        permit(Checkout(tmp_path), "HEAD", environment={})


@pytest.mark.parametrize("verb", [["regen", "--baseline", "HEAD"], ["accept"], ["reject"]])
def test_the_command_refuses_under_ci_in_one_line(verb):
    """The command line ends with status 2 and one line, and leaves golden/ as it was."""
    before = snapshot_of(ROOT / "golden")
    done = run([sys.executable, "-m", "verification", "golden", *verb], CI="true")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert re.search(r"never written under CI|nothing is staged", done.stderr)
    assert before == snapshot_of(ROOT / "golden")


PROBE = """
from verification.cases.case import Case
from verification.goldens import snapshot as module
from verification.goldens.snapshot import GoldenSnapshotExtension
from verification.subjects.outcome import Outcome
import torch

CASE = Case("loss.reduce/grpo/probe", "loss.reduce", "grpo", {"values": [1.0]})

def test_probe(snapshot, monkeypatch):
    monkeypatch.setattr("verification.cases.find", lambda identity: CASE)
    outcome = Outcome(arrays={"loss": torch.tensor(0.5)})
    assert (CASE, outcome) == snapshot(name=CASE.id, extension_class=GoldenSnapshotExtension)
"""


@pytest.mark.parametrize("option", ["--snapshot-update", None])
def test_plain_pytest_never_writes_a_golden(tmp_path, option):
    """Asked to update, pytest fails and names the command; not asked, it fails on the missing golden."""
    (tmp_path / "test_probe.py").write_text(PROBE)
    before = snapshot_of(ROOT / "golden")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = run([*command, *([option] if option else []), str(tmp_path / "test_probe.py")])
    assert done.returncode == 1, done.stdout + done.stderr
    expected = "goldens are not updated by pytest; use relax-verify golden regen" if option else "does not exist"
    assert expected in done.stdout
    assert before == snapshot_of(ROOT / "golden")


def test_the_extension_neither_finds_nor_deletes_unused_goldens():
    """What no test asked for is not unused: syrupy sees no golden to report or to remove."""
    extension = GoldenSnapshotExtension()
    assert not list(extension.discover_snapshots(test_location=None))
    with pytest.raises(WriteRefused, match="not deleted by pytest"):
        extension.delete_snapshots(snapshot_location="golden/x.txt", snapshot_names=set())


def snapshot_of(folder: Path) -> dict[str, bytes | None]:
    """Every file with its content, and every folder."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}
    surroundings = {**kept, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)
