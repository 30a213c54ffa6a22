"""What a staged recording would change in the goldens, case by case and summed by stage; and accepting it."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from verification.goldens import provenance
from verification.goldens.compare import Departure, departure
from verification.goldens.exchange import replacement
from verification.goldens.guard import WritePermit
from verification.goldens.platform import ANY
from verification.goldens.provenance import Recording
from verification.goldens.store import GoldenStore, write_atomically
from verification.goldens.text import Golden
from verification.judges.comparison import largest

SAME, REWRITTEN, CHANGED, INPUTS, NEW, GONE = "same", "rewritten", "changed", "inputs", "new", "gone"
KINDS = {
    SAME: "same bytes",
    REWRITTEN: "same outcome, other text",
    CHANGED: "another outcome",
    INPUTS: "recorded from other inputs",
    NEW: "no golden so far",
    GONE: "a golden that no case answers to any more",
}


@dataclass(frozen=True)
class Change:
    """One golden, as it is and as staged. ``ulps`` is the largest distance of a changed one, None without any."""

    case: str
    platform: str
    kind: str
    ulps: float | None = None
    detail: str = ""

    @property
    def stage(self) -> str:
        return self.case.split("/")[0]

    @property
    def algorithm(self) -> str:
        return self.case.split("/")[1]


@dataclass(frozen=True)
class StageSummary:
    """The changes of one stage: how many of each kind, and the largest distance in ulps."""

    stage: str
    counts: dict[str, int]
    ulps: float | None


def changes(old: GoldenStore, staged: GoldenStore, key: str, known: Collection[str]) -> list[Change]:
    """What differs between the goldens and a recording made on platform ``key``, sorted by case.

    ``known`` are the ids of all cases. A recording holds what its baseline has, and on a GPU what can be there: of the
    other goldens only those are gone whose case is. Goldens of other platforms cannot be recorded here. They are gone
    too where the recording shows that their case has other inputs, or an outcome that now holds on every platform.
    """
    found = []
    current: dict[str, Golden] = {}
    for case, platform in staged.entries():
        golden = _present(staged, case, platform)
        current[case] = golden
        found.append(_change(old, golden, old.text(case, platform) == staged.text(case, platform)))
    for case, platform in old.entries():
        now = current.get(case)
        if not (case in known if now is None else _still_answers(old, now, platform, key)):
            found.append(Change(case, platform, GONE))
    return sorted(found, key=lambda change: (change.case, change.platform))


def _still_answers(old: GoldenStore, now: Golden, platform: str, key: str) -> bool:
    if platform == now.platform:
        return True  # it is compared with the staged one
    if ANY in (platform, now.platform) or platform == key:
        return False
    return _present(old, now.case, platform).inputs == now.inputs


def _change(old: GoldenStore, golden: Golden, same: bool) -> Change:
    if same:
        return Change(golden.case, golden.platform, SAME)
    kind, found = kind_of_change(golden, old.read(golden.case, golden.platform))
    ulps, detail = (None, "") if found is None else (found.ulps, found.detail)
    return Change(golden.case, golden.platform, kind, ulps, detail)


def kind_of_change(golden: Golden, before: Golden | None) -> tuple[str, Departure | None]:
    """What became of a golden whose bytes changed, and of another outcome how it differs from the one ``before``."""
    if before is None:
        return NEW, None
    if before.inputs != golden.inputs:
        return INPUTS, None
    found = departure(golden, before)
    return (REWRITTEN, None) if found is None else (CHANGED, found)


def _present(store: GoldenStore, case: str, platform: str) -> Golden:
    golden = store.read(case, platform)
    assert golden is not None, (case, platform)
    return golden


def by_stage(found: Sequence[Change]) -> list[StageSummary]:
    """The changes summed by stage, stages sorted."""
    summaries = []
    for stage in sorted({change.stage for change in found}):
        of_stage = [change for change in found if change.stage == stage]
        counts = {kind: sum(change.kind == kind for change in of_stage) for kind in KINDS}
        summaries.append(StageSummary(stage, counts, largest(change.ulps for change in of_stage)))
    return summaries


def accept(
    permit: WritePermit, staged: GoldenStore, recording: Recording, known: Collection[str], pattern: str = "*"
) -> list[Change]:
    """Makes the staged goldens of the cases that match ``pattern`` the goldens, all or, should anything fail, none.

    Every matching golden is counted as coming from ``recording`` from now on, those whose bytes are the same included.
    Gives what became different by this; a golden that was recorded so before, bytes and provenance, is not among it.
    ``known`` are the ids of all cases, as in `changes`.
    """
    with replacement(permit) as folder:
        new = GoldenStore(folder)
        chosen = [one for one in changes(new, staged, recording.platform, known) if fnmatchcase(one.case, pattern)]
        before = functools.cache(provenance.read)

        def is_recorded(path: Path) -> bool:
            return path.stem in before(path.parent).get(recording, ())

        taken = [one for one in chosen if one.kind != SAME or not is_recorded(new.path(one.case, one.platform))]
        for change in taken:
            if change.kind == GONE:
                _forget(new, change, permit)
                new.remove(change.case, change.platform, permit)
            else:
                new.copy(staged, change.case, change.platform, permit)
        by_folder: dict[Path, list[str]] = {}
        for change in taken:
            if change.kind != GONE:
                path = new.path(change.case, change.platform)
                by_folder.setdefault(path.parent, []).append(path.stem)
        for leaf, names in by_folder.items():
            _write_provenance(leaf, provenance.moved(provenance.read(leaf), recording, names), permit)
    return taken


def _forget(store: GoldenStore, change: Change, permit: WritePermit) -> None:
    path = store.path(change.case, change.platform)
    _write_provenance(path.parent, provenance.without(provenance.read(path.parent), [path.stem]), permit)


def _write_provenance(leaf: Path, content: provenance.Provenance, permit: WritePermit) -> None:
    write_atomically(leaf / provenance.FILE, provenance.render(content), permit)
