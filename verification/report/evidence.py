"""What a page shows beside a difference: the case laid open, and where the goldens that it was held to come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from verification.cases.case import Case
from verification.examine import FROZEN, subject_named
from verification.explaining.evidence import outcomes
from verification.explaining.explanation import GOLDEN, NOT_THERE, Side
from verification.explaining.inputs import case_sheets
from verification.explaining.recorded import recorded
from verification.explaining.tables import golden_sheet
from verification.goldens import provenance
from verification.goldens.compare import default_store
from verification.report.document import Sheet
from verification.subjects.outcome import Outcome

EVERYWHERE = "any"
SHORT = 12  # digits of a hash


def evidence(case: Case, subject: str, run: Callable[[Case], Outcome | None]) -> tuple[Sheet, ...]:
    """What the subject, the frozen copies, the golden and exact arithmetic make of it in bits, and the input."""
    golden = recorded(case)
    sides = [Side(subject, run(case), NOT_THERE)]
    if subject != FROZEN:
        sides.append(Side(FROZEN, subject_named(FROZEN).run(case), NOT_THERE))
    sides.append(Side(GOLDEN, golden.outcome, golden.why))
    made = (*outcomes(case, *sides), golden_sheet(golden), *case_sheets(case))  # the input last, since it is long
    return tuple(sheet for sheet in made if sheet.rows)


def _recordings_of(folder: Path) -> provenance.Provenance:
    """The recordings of a folder; none where they cannot be read, which the judge of its goldens tells."""
    try:
        return provenance.read(folder)
    except provenance.ProvenanceError:
        return {}


def recordings(cases: Sequence[Case], platform: str) -> Sheet:
    """Where the goldens of these cases come from, one line a recording."""
    root = default_store().root
    counts: Counter[provenance.Recording] = Counter()
    names = {case.id.rpartition("/")[2] for case in cases}
    for stage, algorithm in {(case.stage, case.algorithm) for case in cases}:
        for key in (EVERYWHERE, platform):
            for recording, goldens in _recordings_of(root / stage / algorithm / key).items():
                counts[recording] += len(goldens & names)
    rows = tuple(
        (one.baseline[:SHORT], one.relax_tree[:SHORT], one.platform, one.torch, str(count), one.command)
        for one, count in sorted(counts.items())
    )
    columns = ("baseline", "tree of relax/", "platform", "torch", "goldens", "command")
    return Sheet("provenance of the goldens", columns, rows, words=(0, 1, 2, 3, 5))
