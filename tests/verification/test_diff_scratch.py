"""``relax-verify diff`` in a scratch repository: real revisions, real processes, and what the command says of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from verification.bundles import read_cases
from verification.revisions.checkout import Checkout

FEW = ["--stage", "reward.normalize", "--algorithm", "grpo", "--algorithm", "gdpo", "--case", "*/tenths*"]
GROUP = "relax/algorithms/formulas/group.py"
LOG_PROBS = "relax/algorithms/formulas/log_probs.py"
WHO = {f"GIT_{who}_{what}": "scratch@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


class Scratch:
    """A repository of its own with the two packages of this checkout, and what a test commits on top."""

    def __init__(self, root: Path, cache: Path) -> None:
        self.root = root
        kept = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
        own = {"RELAX_VERIFY_CACHE": str(cache), "NO_COLOR": "1", "GIT_CONFIG_GLOBAL": os.devnull, **WHO}
        self.environment = {**{name: os.environ[name] for name in kept if name in os.environ}, **own}
        for name in ("relax", "verification"):
            shutil.copytree(Checkout.here().root / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        (root / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit()

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.root, env=self.environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit(self) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a step")
        return self.git("rev-parse", "HEAD")

    def edit(self, path: str, old: str, new: str) -> None:
        text = (self.root / path).read_text(encoding="utf-8")
        assert text.count(old) >= 1, (path, old)
        (self.root / path).write_text(text.replace(old, new), encoding="utf-8")

    def diff(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "verification", "diff", *words]
        return subprocess.run(
            command, cwd=self.root, env=self.environment, capture_output=True, text=True, check=False, timeout=300
        )


@pytest.fixture
def scratch(tmp_path):
    return Scratch(tmp_path / "scratch", tmp_path / "cache")


def test_a_changed_epsilon_is_named_with_a_pair_that_shows_it(scratch, tmp_path):
    """Stage, algorithm, case, ulps and an input of two samples; exit 1; the page, the JSON and the bundle agree."""
    scratch.edit(GROUP, "EPSILON = 1e-6", "EPSILON = 2e-6")
    scratch.commit()
    page, data, bundle = tmp_path / "page.html", tmp_path / "data.json", tmp_path / "smallest"
    done = scratch.diff("HEAD~1", *FEW, "--html", str(page), "--json", str(data), "--save", str(bundle))
    assert (done.returncode, done.stderr) == (1, "")
    found = json.loads(data.read_text(encoding="utf-8"))
    differing = {one["case"] for one in found["differing"]}
    assert "reward.normalize/grpo/tenths-g8" in differing
    assert {"grpo"} == {one["algorithm"] for one in found["differing"]}
    groups = {one["algorithm"]: one for one in found["groups"]}
    assert ({"grpo", "gdpo"}, 0) == (set(groups), groups["gdpo"]["differing"])
    assert groups["grpo"]["smallest"]["size"] == [2, 2]
    for words in (
        "DIFFERENT reward.normalize (grpo): rewards differs by ",
        " on 2 samples with 2 numbers",
        "samples[1] ",
    ):
        assert words in done.stdout
    assert f"VERDICT different ({len(differing)})" == done.stdout.splitlines()[-1]
    assert f"VERDICT different ({len(differing)})" in page.read_text(encoding="utf-8")
    (case,) = read_cases(bundle)
    assert sorted(sample["reward"] for sample in case.inputs["samples"]) == [0.0, 1.0]


def test_a_refactor_that_changes_no_bit_is_equivalent(scratch):
    """Other code with the same operations: other trees, every case compared, exit 0."""
    centred = "    centred = group_mean(rewards)\n    return centred / (_row_std(centred)[:, None] + EPSILON)\n"
    helper = "    scale = _scale(centred := group_mean(rewards))\n    return centred / scale\n"
    helper += "\n\ndef _scale(rows: torch.Tensor) -> torch.Tensor:\n    return _row_std(rows).unsqueeze(1) + EPSILON\n"
    scratch.edit(GROUP, centred, helper)
    scratch.commit()
    done = scratch.diff("HEAD~1", "HEAD", *FEW)
    assert (done.returncode, done.stderr, done.stdout.splitlines()[-1]) == (0, "", "VERDICT equivalent")
    compared = next(line for line in done.stdout.splitlines() if line.startswith("compared"))
    count, of, total = compared.split()[1:4]
    assert (count, "of") == (total, of)
    assert int(count) >= 8


def test_a_revision_and_itself_is_refused_as_a_proof(scratch):
    """The same commit, and a clean working tree against its own HEAD: exit 2, no verdict. A change is no such thing."""
    commit = scratch.git("rev-parse", "HEAD")
    for words in (("HEAD", commit[:12]), ("HEAD",), (".",)):
        done = scratch.diff(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "proves nothing" in done.stderr
        assert "VERDICT" not in done.stderr
    scratch.edit(GROUP, "EPSILON = 1e-6", "EPSILON = 2e-6")
    done = scratch.diff("HEAD", "--case", "reward.normalize/grpo/tenths-g8", "--no-shrink", "--quiet")
    assert (done.returncode, done.stdout) == (1, "VERDICT different (1)\n")


def test_commits_with_the_same_code_are_equivalent_by_their_hash(scratch):
    """Nothing runs where relax/ is byte for byte the same: the tree's hash is shown, exit 0, no command that fails."""
    (scratch.root / "README.md").write_text("Words.\n", encoding="utf-8")
    scratch.commit()
    done = scratch.diff("HEAD~1", "HEAD")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "VERDICT equivalent")
    assert f"byte for byte the same on both sides (tree {scratch.git('rev-parse', 'HEAD:relax')})" in done.stdout
    assert not list(Path(scratch.environment["RELAX_VERIFY_CACHE"]).rglob("*.pyc"))


def test_what_an_older_revision_lacks_is_not_there(scratch):
    """A stage that A does not have is listed and compared with nothing; asked for it alone, there is no verdict."""
    kept = (scratch.root / LOG_PROBS).read_bytes()
    users = [path for path in (scratch.root / "relax").rglob("*.py") if "formulas.log_probs" in path.read_text()]
    assert not [path for path in users if path.is_relative_to(scratch.root / "relax" / "algorithms")]
    (scratch.root / LOG_PROBS).unlink()
    scratch.commit()
    (scratch.root / LOG_PROBS).write_bytes(kept)
    (scratch.root / GROUP).write_text("# Words.\n" + (scratch.root / GROUP).read_text(), encoding="utf-8")
    scratch.commit()
    both = scratch.diff("HEAD~1", "--case", "*/grpo/ties", "--case", "reward.normalize/grpo/tenths-g8")
    assert (both.returncode, both.stdout.splitlines()[-1]) == (0, "VERDICT equivalent")
    assert "logprob.entropy/grpo/ties" in both.stdout
    assert "A: 1 cases" in both.stdout
    alone = scratch.diff("HEAD~1", "--case", "logprob.entropy/grpo/ties")
    assert alone.returncode == 2
    assert "NO VERDICT: nothing was compared" in alone.stdout.splitlines()[-1]


def test_a_source_that_is_none_is_an_error_that_helps(scratch):
    """An unknown revision, a folder without relax/, a filter that leaves nothing: exit 2, one line, no verdict."""
    for words, told in (
        (("no-such-branch",), "no-such-branch"),
        (("./verification",), "./verification"),
        (("HEAD", "--case", "no/such/case"), "proves nothing"),
    ):
        done = scratch.diff(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert told in done.stderr
        assert "Traceback" not in done.stderr
