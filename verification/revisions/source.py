"""A source: the code to be judged, named as people name it, and proven to be what its name says."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from verification.revisions.checkout import Checkout, CheckoutError
from verification.revisions.trees import PACKAGE, algorithm_of, files_of_folder, files_of_revision, placed, tree_hash

WORKING_TREE = "working tree"
REVISION, CHECKOUT = "revision", "checkout"


@dataclass(frozen=True)
class Source:
    """One ``relax/``. ``label`` is what was typed, or `WORKING_TREE`; ``kind`` is `REVISION` or `CHECKOUT`.

    ``commit`` is the revision, or what a checkout has checked out (None outside git). ``relax_tree`` is the hash that
    git gives the contents of ``relax/``, computed from the files: two sources with the same one are the same code.
    ``root`` is the folder that ``relax`` is imported from, a copy that later edits do not reach. ``dirty``: the
    contents are those of no known commit.
    """

    label: str
    kind: str
    commit: str | None
    relax_tree: str
    root: Path
    dirty: bool

    @property
    def name(self) -> str:
        """A short name for reports: ``revision 49dfa1e``, ``checkout PATH`` or ``working tree``."""
        if self.kind == REVISION and self.commit is not None:
            return f"{REVISION} {self.commit[:7]}"
        return self.label if self.label == WORKING_TREE else f"{CHECKOUT} {self.label}"


def resolve(text: str, checkout: Checkout) -> Source:
    """The source that ``text`` names: a folder that holds ``relax/``, else a git revision of ``checkout``.

    Only what looks like a path (``.``, ``..``, ``~`` or with a separator) is taken for a folder, so that a folder that
    happens to be called like a branch does not get in its way. A CheckoutError names the text and the remedy.
    """
    folder = Path(text).expanduser()
    path_like = text in (".", "..") or text.startswith("~") or os.sep in text
    if path_like and (folder / PACKAGE).is_dir():
        return of_folder(folder, label=text)
    try:
        return of_revision(text, checkout)
    except CheckoutError as error:
        if path_like and folder.is_dir():
            raise CheckoutError(f"{text} is a folder without {PACKAGE}/, and names no revision: {error}") from None
        if (folder / PACKAGE).is_dir():
            raise CheckoutError(f"{error}; if the folder {text} is meant, write ./{text}") from None
        raise


def source_named(name: str, checkout: Checkout) -> Source | None:
    """The source of a subject called ``revision:SHA`` or ``checkout:PATH``, None where it is called otherwise.

    A space serves as well as the colon, since that is how reports write it.
    """
    named = re.fullmatch(rf"({REVISION}|{CHECKOUT})[: ](.+)", name)
    if named is None:
        return None
    kind, text = named.groups()
    return of_revision(text, checkout) if kind == REVISION else of_folder(Path(text).expanduser(), label=text)


def working_tree(checkout: Checkout) -> Source:
    """What lies in the checkout now, committed or not."""
    return of_folder(checkout.root, label=WORKING_TREE)


def of_revision(revision: str, checkout: Checkout) -> Source:
    """A git revision of ``checkout``."""
    commit = checkout.commit(revision)
    try:
        tree = checkout.tree(PACKAGE, commit)
    except CheckoutError:
        raise CheckoutError(f"revision {revision} ({commit[:12]}) has no folder {PACKAGE}/: nothing to judge") from None
    root = placed(files_of_revision(checkout, commit), tree)
    return Source(revision, REVISION, commit, tree, root, dirty=False)


def of_folder(folder: Path, *, label: str | None = None) -> Source:
    """What lies in ``folder/relax`` now: a checkout of git's, or any folder."""
    label = str(folder) if label is None else label
    if not (folder / PACKAGE).is_dir() or (folder / PACKAGE).is_symlink():
        raise CheckoutError(f"{label} has no folder {PACKAGE}/ (a link is none): name the folder that holds it")
    commit, committed = _checked_out(Checkout(folder.resolve()))
    files = files_of_folder(folder / PACKAGE)
    if not files:
        raise CheckoutError(f"{label} has nothing in {PACKAGE}/: nothing to judge")
    tree = tree_hash(files, algorithm_of(committed))
    return Source(label, CHECKOUT, commit, tree, placed(files, tree), dirty=tree != committed)


def _checked_out(checkout: Checkout) -> tuple[str | None, str]:
    """The commit that is checked out and its tree of ``relax/``; None and nothing where git knows of none."""
    try:
        return checkout.commit(), checkout.tree(PACKAGE)
    except CheckoutError:
        return None, ""
