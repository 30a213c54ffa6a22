"""What a name stands for: revisions, checkouts, the working tree, and what is refused."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.verification.repository import git
from verification.revisions.checkout import Checkout, CheckoutError
from verification.revisions.source import WORKING_TREE, of_revision, resolve, source_named, working_tree

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """Two commits: the number that relax holds is 1 in the first and 2 in the second; a third has no relax."""
    root = tmp_path / "repository"
    (root / "relax").mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    for number in (1, 2):
        (root / "relax" / "__init__.py").write_text(f"NUMBER = {number}\n")
        git(root, "add", ".")
        git(root, "commit", "-qm", f"number {number}")
    git(root, "tag", "two")
    git(root, "switch", "-q", "--orphan", "empty")
    (root / "other.txt").write_text("nothing here\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "no relax")
    git(root, "switch", "-q", "main")
    return Checkout(root)


def number(root: Path) -> str:
    return (root / "relax" / "__init__.py").read_text()


def test_a_revision_is_found_by_sha_tag_and_distance(checkout):
    """All names of one commit give the same source; an older commit gives its own files."""
    first, second = resolve("HEAD~1", checkout), resolve("two", checkout)
    sha = git(checkout.root, "rev-parse", "HEAD")
    assert second == replace(resolve(sha[:9], checkout), label="two")
    assert number(first.root) == "NUMBER = 1\n"
    assert number(second.root) == "NUMBER = 2\n"
    assert first.relax_tree == git(checkout.root, "rev-parse", "HEAD~1:relax")
    assert second.relax_tree == git(checkout.root, "rev-parse", "HEAD:relax")
    assert second.commit == sha
    assert (second.kind, second.label, second.dirty) == ("revision", "two", False)
    assert second.name == f"revision {sha[:7]}"


def test_a_clean_working_tree_is_the_same_code_as_its_commit(checkout):
    """Nothing was edited: the tree hash is that of HEAD, and the source is clean."""
    source = working_tree(checkout)
    assert source.relax_tree == resolve("HEAD", checkout).relax_tree
    assert (source.kind, source.name, source.commit) == ("checkout", WORKING_TREE, checkout.commit())
    assert not source.dirty


@pytest.mark.parametrize("file", ["__init__.py", "new.py"])
def test_an_edit_or_an_untracked_file_makes_it_dirty(checkout, file):
    """The tree hash is that of the files as they lie there, which is what git would call them after a commit."""
    (checkout.root / "relax" / file).write_text("NUMBER = 3\n")
    source = working_tree(checkout)
    assert source.dirty
    git(checkout.root, "add", ".")
    git(checkout.root, "commit", "-qm", "three")
    assert source.relax_tree == git(checkout.root, "rev-parse", "HEAD:relax")


def test_a_later_edit_does_not_reach_a_source(checkout):
    """What runs is what was hashed, whatever is typed into the checkout meanwhile."""
    source = working_tree(checkout)
    (checkout.root / "relax" / "__init__.py").write_text("NUMBER = 4\n")
    assert number(source.root) == "NUMBER = 2\n"


def test_compiled_code_is_not_taken_along(checkout):
    """Compiled code beside the sources may be that of other sources."""
    clean = working_tree(checkout)
    (checkout.root / "relax" / "__pycache__").mkdir()
    (checkout.root / "relax" / "__pycache__" / "__init__.cpython-311.pyc").write_bytes(b"stale")
    assert working_tree(checkout) == clean


def test_a_folder_outside_git_is_a_checkout(checkout, tmp_path):
    """Its tree hash is git's for the same files; there is no commit, so it counts as dirty."""
    folder = tmp_path / "copy"
    (folder / "relax").mkdir(parents=True)
    (folder / "relax" / "__init__.py").write_text("NUMBER = 2\n")
    source = resolve(str(folder), checkout)
    assert source.relax_tree == git(checkout.root, "rev-parse", "HEAD:relax")
    assert (source.kind, source.commit, source.dirty, source.name) == ("checkout", None, True, f"checkout {folder}")


def test_a_folder_called_like_a_branch_does_not_hide_it(checkout, tmp_path, monkeypatch):
    """Without a separator the text is a revision; with one it is the folder."""
    (tmp_path / "main" / "relax").mkdir(parents=True)
    (tmp_path / "main" / "relax" / "__init__.py").write_text("NUMBER = 9\n")
    monkeypatch.chdir(tmp_path)
    assert number(resolve("main", checkout).root) == "NUMBER = 2\n"
    assert number(resolve("./main", checkout).root) == "NUMBER = 9\n"


def test_a_branch_with_a_slash_is_a_revision(checkout):
    """A separator alone makes no folder."""
    git(checkout.root, "branch", "feature/one", "HEAD~1")
    assert number(resolve("feature/one", checkout).root) == "NUMBER = 1\n"


def test_the_checkout_may_be_a_folder_of_a_larger_repository(tmp_path):
    """Folders are named from the root of the checkout, not from that of the repository."""
    inner = tmp_path / "large" / "inner"
    (inner / "relax").mkdir(parents=True)
    (inner / "relax" / "__init__.py").write_text("NUMBER = 5\n")
    git(tmp_path / "large", "init", "-q")
    git(tmp_path / "large", "add", ".")
    git(tmp_path / "large", "commit", "-qm", "nested")
    assert number(resolve("HEAD", Checkout(inner)).root) == "NUMBER = 5\n"
    assert not working_tree(Checkout(inner)).dirty


def test_git_settings_of_a_hook_do_not_redirect_the_question(checkout, tmp_path, monkeypatch):
    """Inside a hook GIT_DIR names the repository of the hook, which need not be the one that is asked about."""
    expected = checkout.commit()
    git(tmp_path, "init", "-q", "elsewhere")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere" / ".git"))
    assert expected == checkout.commit()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nope", ["'nope'", "fetch"]),
        ("--help", ["'--help'"]),
        ("empty", ["empty", "no folder relax/"]),
        ("./nowhere", ["./nowhere"]),
    ],
)
def test_what_names_nothing_is_refused_by_name(checkout, text, words):
    """The error repeats what was typed and says what is missing."""
    with pytest.raises(CheckoutError) as refused:
        resolve(text, checkout)
    assert all(word in str(refused.value) for word in words), refused.value


def test_a_folder_without_relax_is_refused_as_such(checkout, tmp_path):
    """The remedy for a folder is not that for a revision."""
    (tmp_path / "bare").mkdir()
    with pytest.raises(CheckoutError, match="a folder without relax/"):
        resolve(str(tmp_path / "bare"), checkout)


def test_a_folder_typed_without_a_separator_gets_the_hint(checkout, tmp_path, monkeypatch):
    """Whoever meant the folder is told how to write it."""
    (tmp_path / "other" / "relax").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckoutError, match=r"write \./other"):
        resolve("other", checkout)


def test_a_shallow_clone_is_told_to_fetch(checkout, tmp_path):
    """A revision that a shallow clone lacks exists elsewhere: the remedy is to fetch it."""
    wanted = git(checkout.root, "rev-parse", "HEAD~1")
    git(tmp_path, "clone", "-q", "--depth", "1", checkout.root.as_uri(), "shallow")
    with pytest.raises(CheckoutError, match=f"fetch --unshallow.*{wanted}"):
        of_revision(wanted, Checkout(tmp_path / "shallow"))


def test_relax_that_is_a_link_is_refused(checkout, tmp_path):
    """A link would take the code from where its name does not say."""
    (tmp_path / "linked").mkdir()
    os.symlink(checkout.root / "relax", tmp_path / "linked" / "relax")
    with pytest.raises(CheckoutError, match="link"):
        resolve(str(tmp_path / "linked"), checkout)


def test_subject_names_of_sources(checkout):
    """Kind and text, with a colon or the space that reports write; other names are none of a source."""
    assert source_named("revision:two", checkout) == resolve("two", checkout)
    assert source_named("revision two", checkout) == resolve("two", checkout)
    assert source_named(f"checkout:{checkout.root}", checkout) == resolve(str(checkout.root), checkout)
    assert source_named("package.module:Class", checkout) is None
    assert source_named("live", checkout) is None
