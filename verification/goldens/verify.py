"""Whether the goldens are what they say: recorded anew from their own baselines, every byte must come out again."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from verification.cases.case import Case
from verification.goldens import provenance
from verification.goldens.compare import departure, golden_of, rendered
from verification.goldens.parse import GoldenFormatError
from verification.goldens.platform import ANY
from verification.goldens.provenance import Recording
from verification.goldens.store import GoldenStore
from verification.revisions.checkout import Checkout
from verification.revisions.trees import PACKAGE
from verification.subjects.outcome import Outcome

REPRODUCED = "reproduced"
ELSEWHERE = "on other platforms"
DIFFERS = "differs"
UNATTRIBUTED = "in no recording"
MISSING = "recorded, but not there"
WRONG_TREE = "of another relax/ than recorded"
WRONG_PLATFORM = "of another platform than recorded"
NO_CASE = "of no case"
NO_OUTCOME = "not there in its baseline"
FINE = (REPRODUCED, ELSEWHERE)

# What a baseline gives on cases; asked once a baseline.
Outcomes = Callable[[str, Sequence[Case]], Mapping[str, Outcome | None]]


@dataclass(frozen=True)
class Checked:
    """One golden and what became of it: `REPRODUCED`, `ELSEWHERE`, or what is wrong with it, with the detail."""

    case: str
    platform: str
    baseline: str
    found: str
    detail: str = ""
    ulps: float | None = None

    @property
    def stage(self) -> str:
        return self.case.split("/")[0]

    @property
    def algorithm(self) -> str:
        return self.case.split("/")[1]


@dataclass(frozen=True)
class Verification:
    """All goldens, sorted by case and platform."""

    checked: tuple[Checked, ...]

    @property
    def wrong(self) -> tuple[Checked, ...]:
        return tuple(one for one in self.checked if one.found not in FINE)

    @property
    def counts(self) -> Counter[str]:
        return Counter(one.found for one in self.checked)

    @property
    def exit_code(self) -> int:
        """0 every byte came out again, 1 something is wrong, 2 nothing could be recorded anew here."""
        return 1 if self.wrong else 0 if self.counts[REPRODUCED] else 2

    @property
    def verdict(self) -> str:
        """The line to grep."""
        if self.wrong:
            return f"VERDICT different ({len(self.wrong)})"
        return (
            "VERDICT equivalent" if self.exit_code == 0 else "NO VERDICT: no golden here was recorded on this platform"
        )


def verify(
    checkout: Checkout,
    store: GoldenStore,
    cases: Sequence[Case],
    key: str,
    outcomes: Outcomes,
    *,
    baseline: str | None = None,
) -> Verification:
    """Records every golden that platform ``key`` can give anew and compares the bytes; those of one ``baseline`` alone,
    where it is given.

    Provenance is held to account as well, of all platforms: each golden is in exactly one recording of its folder, each
    name stands for a file, and the baseline's ``relax/`` is the tree that was recorded. Raises CheckoutError for a
    baseline that the clone lacks, saying how to fetch it, and what `GoldenStore` and `provenance` raise for files that
    cannot be read.
    """
    checked: list[Checked] = []
    baselines: dict[str, list[tuple[str, str]]] = {}
    flaw = functools.cache(functools.partial(_flaw, checkout))
    for (case, platform), recording in _recordings(store).items():
        if baseline is not None and (recording is None or recording.baseline != baseline):
            continue
        if recording is None:
            checked.append(Checked(case, platform, "", UNATTRIBUTED, "provenance.json beside it does not name it"))
        elif store.text(case, platform) is None:
            checked.append(Checked(case, platform, recording.baseline, MISSING, "its file was deleted"))
        elif (wrong := flaw(recording, platform)) is not None:
            checked.append(Checked(case, platform, recording.baseline, *wrong))
        elif platform not in (ANY, key):
            checked.append(Checked(case, platform, recording.baseline, ELSEWHERE))
        else:
            baselines.setdefault(recording.baseline, []).append((case, platform))
    known = {case.id: case for case in cases}
    for commit, places in baselines.items():
        given = outcomes(commit, [known[case] for case, _ in places if case in known])
        checked += [_checked(store, place, commit, known.get(place[0]), given, key) for place in places]
    return Verification(tuple(sorted(checked, key=lambda one: (one.case, one.platform))))


def _flaw(checkout: Checkout, recording: Recording, platform: str) -> tuple[str, str] | None:
    """What is wrong with a recording that gave goldens of ``platform``, and the detail; None where nothing is."""
    if platform not in (ANY, recording.platform):
        return WRONG_PLATFORM, f"it lies under {platform}, recorded is {recording.platform}"
    commit = checkout.commit(recording.baseline)
    tree, recorded = checkout.tree(PACKAGE, commit), recording.relax_tree
    if (commit, tree) == (recording.baseline, recorded):
        return None
    return (
        WRONG_TREE,
        f"relax/ of {recording.baseline[:12]} ({commit[:12]}) is {tree[:12]}, recorded is {recorded[:12]}",
    )


def _recordings(store: GoldenStore) -> dict[tuple[str, str], Recording | None]:
    """The recording of each golden, by case and platform, and of names without a file.

    `provenance.read` refuses a golden of two recordings.
    """
    named: dict[tuple[str, str], Recording | None] = dict.fromkeys(store.entries())
    for path in sorted(store.root.glob(f"*/*/*/{provenance.FILE}")):
        stage, algorithm, platform, _ = path.relative_to(store.root).parts
        for recording, names in provenance.read(path.parent).items():
            for name in names:
                named[f"{stage}/{algorithm}/{name}", platform] = recording
    return named


def _checked(
    store: GoldenStore,
    place: tuple[str, str],
    baseline: str,
    case: Case | None,
    given: Mapping[str, Outcome | None],
    key: str,
) -> Checked:
    if case is None:
        return Checked(*place, baseline, NO_CASE, "the corpus has no case of this name any more")
    outcome = given[case.id]
    if outcome is None:
        return Checked(*place, baseline, NO_OUTCOME, "the revision lacks the call or the algorithm")
    golden = golden_of(case, outcome, key)
    if golden.platform == place[1] and store.text(*place) == rendered(golden):
        return Checked(*place, baseline, REPRODUCED)
    try:
        recorded = store.read(*place)
    except GoldenFormatError as error:
        return Checked(*place, baseline, DIFFERS, f"it cannot be read: {error}")
    assert recorded is not None, place
    found = departure(golden, recorded)
    if found is None:
        return Checked(*place, baseline, DIFFERS, "the same outcome in another text")
    return Checked(*place, baseline, DIFFERS, found.detail, found.ulps)


def outcomes_of_revisions(checkout: Checkout, progress: Callable[[int, int], None]) -> Outcomes:
    """Asks each baseline in a process of its own. Raises SubjectFailed; CheckoutError where it has no ``relax/``."""
    from verification.revisions.source import of_revision
    from verification.subjects.process import ProcessSubject

    def ask(baseline: str, cases: Sequence[Case]) -> Mapping[str, Outcome | None]:
        with ProcessSubject(of_revision(baseline, checkout)) as subject:
            return subject.run_all(cases, progress)

    return ask
