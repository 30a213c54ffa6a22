"""The cache of trees: hashed as git does, made whole or not at all, proven at each use."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.verification.repository import git
from verification.revisions.checkout import Blob, Checkout, CheckoutError
from verification.revisions.trees import IN_USE, File, files_of_folder, files_of_revision, placed, tree_hash

pytestmark = pytest.mark.usefixtures("cache")

FILES = {
    "__init__.py": File(b"NUMBER = 1\n"),
    "run.sh": File(b"#!/bin/sh\n", executable=True),
    "a/__init__.py": File(b""),
    "a/deep/er.py": File(b"\xff\x00\r\n"),
    "a.py": File(b"sorts between a- and a/\n"),
    "a-b": File(b"x"),
    "müll.txt": File("ü".encode()),
}
TREE = tree_hash(FILES)


def write(folder: Path, files=FILES) -> None:
    for name, file in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(file.data)
        (folder / name).chmod(0o755 if file.executable else 0o644)


@pytest.fixture
def repository(tmp_path: Path) -> Checkout:
    root = tmp_path / "repository"
    write(root / "relax")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    return Checkout(root)


def test_the_hash_is_the_one_of_git(repository):
    """Subfolders, the executable bit, odd bytes and the order of names count as they do in git."""
    assert git(repository.root, "rev-parse", "HEAD:relax") == TREE


def test_the_hash_in_a_repository_of_sha256(tmp_path):
    """Repositories that name objects by SHA-256 are served too."""
    write(tmp_path / "new" / "relax")
    git(tmp_path, "init", "-q", "--object-format=sha256", "new")
    git(tmp_path / "new", "add", ".")
    git(tmp_path / "new", "commit", "-qm", "one")
    assert git(tmp_path / "new", "rev-parse", "HEAD:relax") == tree_hash(FILES, "sha256")


@given(
    st.dictionaries(
        st.lists(st.sampled_from(["a", "a-", "a.", "b"]), min_size=1, max_size=3).map("/".join),
        st.builds(File, st.binary(max_size=3), st.booleans()),
        min_size=1,
    ).filter(lambda files: not any(f"{one}/" == other[: len(one) + 1] for one in files for other in files))
)
def test_different_files_have_different_hashes(files):
    """One byte, one mode or one name less gives another hash, and the order of the files none."""
    name = next(iter(files))
    one = files[name]
    changed = {
        "contents": {**files, name: File(one.data + b"x", one.executable)},
        "mode": {**files, name: File(one.data, not one.executable)},
        "name": {**{k: v for k, v in files.items() if k != name}, name + "x": one},
    }
    hashes = [tree_hash(files), *(tree_hash(other) for other in changed.values())]
    assert len(set(hashes)) == 4
    assert tree_hash(files) == tree_hash(dict(reversed(files.items())))


def test_files_of_a_revision_and_of_a_folder_are_the_same(repository):
    """Both ways of reading give every file with its bytes and its mode."""
    assert files_of_revision(repository, "HEAD") == FILES
    assert files_of_folder(repository.root / "relax") == FILES


def test_no_filter_of_the_repository_touches_a_revision(repository):
    """Line ends and filters of a checkout are settings of a user: a revision is its blobs."""
    (repository.root / ".gitattributes").write_text("* text eol=crlf filter=loud\n")
    git(repository.root, "config", "filter.loud.smudge", "tr a-z A-Z")
    git(repository.root, "add", ".gitattributes")
    git(repository.root, "commit", "-qm", "attributes")
    assert files_of_revision(repository, "HEAD") == FILES


def test_nothing_is_written_to_the_repository(repository):
    """Reading a revision registers no worktree, index or object."""
    before = sorted(os.walk(repository.root / ".git"))
    placed(files_of_revision(repository, "HEAD"), TREE)
    assert before == sorted(os.walk(repository.root / ".git"))


def test_a_tree_is_placed_alone_and_kept(cache):
    """The folder holds relax/ and nothing else; a second use takes it as it is."""
    root = placed(FILES, TREE)
    assert os.listdir(root) == ["relax"]
    assert files_of_folder(root / "relax") == FILES
    inode = root.stat().st_ino
    assert placed(FILES, TREE).stat().st_ino == inode
    assert os.listdir(cache / "trees") == [TREE]


def edit(root: Path) -> None:
    (root / "relax" / "a.py").chmod(0o644)
    (root / "relax" / "a.py").write_bytes(b"other")


def link(root: Path) -> None:
    (root / "relax" / "a.py").unlink()
    os.symlink(root / "relax" / "a-b", root / "relax" / "a.py")


DAMAGE = {
    "edited": edit,
    "missing": lambda root: (root / "relax" / "a.py").unlink(),
    "more": lambda root: (root / "relax" / "more.py").write_text(""),
    "compiled": lambda root: (root / "relax" / "a.pyc").write_bytes(b"stale"),
    "mode": lambda root: (root / "relax" / "a.py").chmod(0o755),
    "link": link,
    "beside": lambda root: (root / "torch.py").write_text(""),
    "file": lambda root: (os.rename(root, root.with_name("away")), root.write_text("")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_tree_is_replaced(damage):
    """Whatever was done to a folder of the cache, the next use gives the right files."""
    DAMAGE[damage](placed(FILES, TREE))
    root = placed(FILES, TREE)
    assert os.listdir(root) == ["relax"]
    assert files_of_folder(root / "relax", compiled=True) == FILES


def test_files_that_are_not_those_of_the_hash_are_refused(cache):
    """A tree that does not become what its name says is an error, and is not used."""
    with pytest.raises(CheckoutError, match="does not hold the files of tree"):
        placed({**FILES, "a.py": File(b"other")}, TREE)


def test_a_failed_write_leaves_nothing(cache, monkeypatch):
    """A tree is there whole or not at all: a full disk leaves no half of it."""

    def full(path: Path, data: bytes) -> int:
        if path.name == "a-b":
            raise OSError(28, "No space left on device")
        with open(path, "wb") as file:
            return file.write(data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        placed(FILES, TREE)
    assert os.listdir(cache / "trees") == []


def test_links_in_a_folder_or_a_revision_are_refused(repository):
    """A link may lead anywhere: neither a working tree nor a revision may hold one."""
    os.symlink("/etc/passwd", repository.root / "relax" / "secret.py")
    with pytest.raises(CheckoutError, match=r"secret\.py is a link"):
        files_of_folder(repository.root / "relax")
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "link")
    with pytest.raises(CheckoutError, match=r"relax/secret\.py .*120000"):
        files_of_revision(repository, "HEAD")


def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path):
    """Reading a pipe would wait for a writer forever."""
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(CheckoutError, match="no plain file"):
        files_of_folder(tmp_path)


@pytest.mark.parametrize("path", ["../outside.py", "a/../../outside.py", "/etc/outside.py", "./a.py"])
def test_a_revision_whose_paths_lead_outside_is_refused(repository, monkeypatch, path):
    """A repository made to do harm can hold names that no honest git makes."""
    blob = next(iter(repository.blobs("relax").values())).hash
    monkeypatch.setattr(Checkout, "blobs", lambda *_: {path: Blob("100644", blob)})
    with pytest.raises(CheckoutError, match="leads outside"):
        files_of_revision(repository, "HEAD")


def test_a_missing_blob_is_an_error(repository):
    """git answers for each hash; one that it lacks is named."""
    with pytest.raises(CheckoutError, match="0" * 40):
        repository.contents(["0" * 40])


def test_the_cache_lies_where_the_user_keeps_caches(monkeypatch, tmp_path):
    """Without a choice of one's own it is below XDG_CACHE_HOME."""
    monkeypatch.delenv("RELAX_VERIFY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tmp_path / "relax-verification" / "trees" / TREE == placed(FILES, TREE)


def test_the_cache_keeps_the_trees_that_were_used_last(cache, monkeypatch):
    """Beyond so many, a tree goes that nobody used for a day, as a new one comes; one that is asked for stays."""
    monkeypatch.setattr("verification.revisions.trees.KEPT", 2)
    numbered = [{"a.py": File(b"%d" % number)} for number in range(4)]
    trees = [tree_hash(files) for files in numbered]
    for age, files, tree in zip((5, 4, 3), numbered, trees, strict=False):
        root = placed(files, tree)
        os.utime(root, (time.time() - age * IN_USE,) * 2)
    placed(numbered[0], trees[0])
    placed(numbered[3], trees[3])
    assert {trees[0], trees[3]} == set(os.listdir(cache / "trees"))
    placed(FILES, TREE)
    assert {trees[0], trees[3], TREE} == set(os.listdir(cache / "trees"))
