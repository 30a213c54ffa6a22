"""``relax/`` as it was at a revision, or as it lies in a folder, as a folder of its own that nobody edits.

Such a folder is kept under the user's cache by the hash that git gives its contents. It holds ``relax/`` and nothing
else: the code of a revision must not find the rest of some checkout beside it. Nothing is written to the user's
repository, no filter or hook of it runs, and each use proves the contents by computing their hash anew. The `KEPT`
that were used last stay; of the others, what nobody used for a day goes as a new one comes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from verification.revisions.checkout import Checkout, CheckoutError

PACKAGE = "relax"
_MODES = {"100644": False, "100755": True}
_COMPILED = "__pycache__"
KEPT = 32  # trees; each takes about a megabyte
IN_USE = 86400.0  # seconds since it was last asked for in which a process may still import from a tree
CACHE_TOLD = (
    f"Copies of the code of revisions lie in RELAX_VERIFY_CACHE (default: ~/.cache/relax-verification); the {KEPT} "
    "that were used last are kept."
)


@dataclass(frozen=True)
class File:
    """The contents of one file, and whether it is executable, which is all that git keeps of its mode."""

    data: bytes
    executable: bool = False


Files = Mapping[str, File]  # by path below the folder


def cache_folder() -> Path:
    """Where trees are kept: ``RELAX_VERIFY_CACHE``, else a folder of this harness in the user's cache."""
    chosen = os.environ.get("RELAX_VERIFY_CACHE")
    if chosen:
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "relax-verification"


def files_of_revision(checkout: Checkout, commit: str) -> Files:
    """The files of ``relax/`` at a commit. Links and submodules are a CheckoutError."""
    blobs = checkout.blobs(PACKAGE, commit)
    for path, blob in blobs.items():
        if blob.mode not in _MODES:
            raise CheckoutError(f"{PACKAGE}/{path} of {commit[:12]} is no plain file (mode {blob.mode}): refused")
        if not {"", ".", ".."}.isdisjoint(path.split("/")):  # no honest git makes one
            raise CheckoutError(f"{PACKAGE}/{path} of {commit[:12]} leads outside its folder: refused")
    contents = checkout.contents([blob.hash for blob in blobs.values()])
    return {path: File(data, _MODES[blob.mode]) for (path, blob), data in zip(blobs.items(), contents, strict=True)}


def files_of_folder(folder: Path, *, compiled: bool = False) -> Files:
    """The files below ``folder``, whether git knows them or not; ``compiled`` code only if asked for.

    A link, or anything else that is no plain file, is a CheckoutError.
    """
    files: dict[str, File] = {}
    for parent, folders, names in os.walk(folder, onerror=_unreadable):
        if not compiled:
            folders[:] = [name for name in folders if name != _COMPILED]
            names = [name for name in names if not name.endswith(".pyc")]
        for path in (Path(parent, name) for name in (*folders, *names)):
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                files[path.relative_to(folder).as_posix()] = File(path.read_bytes(), bool(mode & stat.S_IXUSR))
            elif not stat.S_ISDIR(mode):
                raise CheckoutError(f"{path} is a link or no plain file, and may lead outside {folder}: refused")
    return files


def _unreadable(error: OSError) -> None:
    raise CheckoutError(f"{error.filename} cannot be read: {error.strerror}")


def tree_hash(files: Files, algorithm: str = "sha1") -> str:
    """The hash that git gives a folder with these files: ``git rev-parse REVISION:relax`` for the same contents."""
    entries: dict[str, tuple[str, str]] = {}  # name: mode and hash
    below: dict[str, dict[str, File]] = {}
    for path, file in files.items():
        name, _, rest = path.partition("/")
        if rest:
            below.setdefault(name, {})[rest] = file
        else:
            entries[name] = ("100755" if file.executable else "100644", _hash(algorithm, "blob", file.data))
    entries |= {name: ("40000", tree_hash(inner, algorithm)) for name, inner in below.items()}
    content = b""
    for name in sorted(entries, key=lambda name: os.fsencode(name + "/" if name in below else name)):
        mode, hash_ = entries[name]
        content += b"%b %b\0%b" % (mode.encode(), os.fsencode(name), bytes.fromhex(hash_))
    return _hash(algorithm, "tree", content)


def _hash(algorithm: str, kind: str, data: bytes) -> str:
    return hashlib.new(algorithm, b"%b %d\0%b" % (kind.encode(), len(data), data)).hexdigest()


def placed(files: Files, tree: str) -> Path:
    """The folder that holds ``relax/`` with these files, whose hash is ``tree``: the one in the cache, or a new one.

    It appears whole or not at all. A folder in the cache that does not hold what its name says is replaced.
    """
    cache = cache_folder() / "trees"
    root = cache / tree
    with contextlib.suppress(OSError):  # there is none yet, or nothing can be written here, and so nothing removed
        os.utime(root, follow_symlinks=False)
    if _holds(root, tree):
        return root
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=cache, ignore_cleanup_errors=True) as temporary:
        new, damaged = Path(temporary, "new"), Path(temporary, "damaged")
        for path, file in files.items():
            target = new / PACKAGE / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.data)
            target.chmod(0o555 if file.executable else 0o444)
        try:
            os.rename(new, root)
        except OSError:  # something is there: what another process has just made, or what is damaged
            if not _holds(root, tree):
                with contextlib.suppress(FileNotFoundError):
                    os.rename(root, damaged)
                with contextlib.suppress(OSError):
                    os.rename(new, root)
        for number, old in enumerate(_outdated(cache)):
            with contextlib.suppress(OSError):  # another process removes it too
                os.rename(old, Path(temporary, f"old-{number}"))
    if not _holds(root, tree):
        raise CheckoutError(f"{root} does not hold the files of tree {tree}: remove that folder and try again")
    return root


def _outdated(cache: Path) -> list[Path]:
    """The trees of the cache that are neither among the `KEPT` used last nor of today."""
    used = {path: path.lstat().st_mtime for path in cache.iterdir() if not path.name.startswith(".")}
    last_used_first = sorted(used, key=lambda path: used[path], reverse=True)
    return [path for path in last_used_first[KEPT:] if used[path] < time.time() - IN_USE]


def _holds(root: Path, tree: str) -> bool:
    """Whether ``root`` holds ``relax/`` with exactly the contents of ``tree``, and nothing beside it."""
    try:
        if root.is_symlink() or os.listdir(root) != [PACKAGE] or (root / PACKAGE).is_symlink():
            return False
        return tree_hash(files_of_folder(root / PACKAGE, compiled=True), algorithm_of(tree)) == tree
    except (OSError, CheckoutError):
        return False


def algorithm_of(hash_: str) -> str:
    """The algorithm behind a hash of git's: SHA-1 unless its length says SHA-256."""
    return "sha256" if len(hash_) == 64 else "sha1"
