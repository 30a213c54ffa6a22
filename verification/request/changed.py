"""What the commits of a request changed, as git has it: goldens by the kind of change, frozen copies, ``relax/``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verification.goldens.changes import CHANGED, GONE, kind_of_change
from verification.goldens.parse import GoldenFormatError, parse
from verification.revisions.checkout import Checkout, CheckoutError
from verification.revisions.trees import PACKAGE

GOLDEN, FROZEN = "golden", "verification/frozen"


@dataclass(frozen=True)
class GoldenChange:
    """One golden that is not what it was; ``kind`` is one of those of a staged change, ``detail`` says of another
    outcome how it differs from the old one.

    ``inputs`` is the digest of what it says that it was recorded from, empty for one that is gone.
    """

    case: str
    platform: str
    kind: str
    detail: str = ""
    inputs: str = ""


@dataclass(frozen=True)
class Changed:
    """What ``head`` changes against ``base``. ``recorded``: the platforms on which each case has a golden in head."""

    base: str
    head: str
    goldens: tuple[GoldenChange, ...]
    recorded: Mapping[str, frozenset[str]]
    frozen: tuple[str, ...]
    relax: tuple[str, ...]

    @property
    def reference_moved(self) -> bool:
        """Whether the frozen copies were edited together with the code that is held to them."""
        return bool(self.frozen and self.relax)


def changed(checkout: Checkout, base: str, head: str) -> Changed:
    """What differs between two commits; a GoldenFormatError names a golden of ``head`` that cannot be read."""
    before, after = (_files(checkout, GOLDEN, commit) for commit in (base, head))
    recorded: dict[str, set[str]] = {}
    for path in after:
        if (place := _place(path)) is not None:
            recorded.setdefault(place[0], set()).add(place[1])
    return Changed(
        base=base,
        head=head,
        goldens=tuple(_goldens(checkout, before, after)),
        recorded={case: frozenset(platforms) for case, platforms in recorded.items()},
        frozen=_paths(checkout, FROZEN, base, head),
        relax=_paths(checkout, PACKAGE, base, head),
    )


def _files(checkout: Checkout, folder: str, commit: str) -> dict[str, str]:
    """The hash of every file below ``folder``; none where the commit has no such folder."""
    try:
        return {path: blob.hash for path, blob in checkout.blobs(folder, commit).items()}
    except CheckoutError:
        return {}


def _paths(checkout: Checkout, folder: str, base: str, head: str) -> tuple[str, ...]:
    before, after = (_files(checkout, folder, commit) for commit in (base, head))
    return tuple(f"{folder}/{path}" for path in sorted({*before, *after}) if before.get(path) != after.get(path))


def _place(path: str) -> tuple[str, str] | None:
    """The case and the platform of a golden's path; None for what is none, such as provenance.json."""
    parts = path.split("/")
    if len(parts) != 4 or not parts[3].endswith(".txt"):
        return None
    stage, algorithm, platform, name = parts
    return f"{stage}/{algorithm}/{name.removesuffix('.txt')}", platform


def _goldens(checkout: Checkout, before: Mapping[str, str], after: Mapping[str, str]) -> list[GoldenChange]:
    moved = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path) and _place(path)]
    wanted = sorted({files[path] for path in moved for files in (before, after) if path in files})
    contents = dict(zip(wanted, checkout.contents(wanted), strict=True)) if wanted else {}
    found = []
    for path in moved:
        old, new = (contents.get(files[path]) if path in files else None for files in (before, after))
        place = _place(path)
        assert place is not None
        found.append(_golden(*place, path, old, new))
    return found


def _golden(case: str, platform: str, path: str, old: bytes | None, new: bytes | None) -> GoldenChange:
    if new is None:
        return GoldenChange(case, platform, GONE)
    golden = parse(new, f"{GOLDEN}/{path}")
    try:
        recorded = None if old is None else parse(old, f"{GOLDEN}/{path}")
    except GoldenFormatError as error:  # what is mended here
        return GoldenChange(case, platform, CHANGED, f"what it was cannot be read: {error}", golden.inputs)
    kind, found = kind_of_change(golden, recorded)
    return GoldenChange(case, platform, kind, "" if found is None else found.detail, golden.inputs)
