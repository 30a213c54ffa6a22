"""Judges an outcome against the golden of its case."""

from __future__ import annotations

from dataclasses import dataclass

from verification.cases.case import Case
from verification.goldens.digest import input_digest
from verification.goldens.guard import COMMAND
from verification.goldens.platform import platform_of
from verification.goldens.store import GoldenStore
from verification.goldens.text import Golden, render
from verification.judges.bits import judge_bits
from verification.judges.comparison import Comparison, largest
from verification.revisions.checkout import Checkout
from verification.subjects.outcome import Outcome

AGAINST = "golden"
UNRECORDED = "no golden recorded for this case"


def compare_with_golden(
    case: Case, outcome: Outcome, store: GoldenStore | None = None, *, key: str | None = None
) -> list[Comparison] | None:
    """The bits judge's findings against the recorded outcome; None where this platform has no goldens here.

    ``store`` is the checkout's ``golden/`` unless given, ``key`` the platform of the CPU. Where the platform was
    recorded, a case without a golden is one difference that says so: a golden that was deleted or forgotten must not
    read as agreement. A case whose inputs are not those of the recording gives one difference that says so, and nothing
    is compared: the recorded result answers another question. A golden that cannot be read is a GoldenFormatError.
    """
    store = default_store() if store is None else store
    platform = platform_of(case, key)
    text = store.text(case.id, platform)
    if text is None:
        return [_unrecorded(case, platform)] if store.has_platform(platform) else None
    golden = golden_of(case, outcome, key)
    if text == rendered(golden):  # there is one way to write an outcome: nothing is left to read
        return judge_goldens(golden, golden)
    recorded = store.read(case.id, platform)
    assert recorded is not None, case.id
    return judge_goldens(golden, recorded)


def rendered(golden: Golden) -> bytes | None:
    """The text of a golden; None for an outcome that none could hold, which is for the judge to tell."""
    try:
        return render(golden).encode()
    except ValueError:
        return None


def golden_of(case: Case, outcome: Outcome, key: str | None = None) -> Golden:
    """The golden that this outcome of the case would be, on the platform called ``key``, the CPU's unless given."""
    return Golden(case.id, platform_of(case, key), input_digest(case), outcome)


def judge_goldens(golden: Golden, recorded: Golden) -> list[Comparison]:
    """The findings on ``golden`` where ``recorded`` is what was recorded for its case."""
    stage, algorithm, _ = golden.case.split("/")
    if golden.inputs != recorded.inputs:
        return [_case_changed(golden, recorded, stage, algorithm)]
    case = Case(id=golden.case, stage=stage, algorithm=algorithm, inputs={})  # the judge needs its name, not its data
    return judge_bits(case, golden.outcome, recorded.outcome, AGAINST)


@dataclass(frozen=True)
class Departure:
    """How one golden departs from another: the first finding, and the largest distance in ulps of all of them."""

    detail: str
    ulps: float | None


def departure(golden: Golden, recorded: Golden) -> Departure | None:
    """How ``golden`` departs from ``recorded``; None where the outcomes are the same."""
    differing = [one for one in judge_goldens(golden, recorded) if not one.agrees]
    if not differing:
        return None
    return Departure(f"{differing[0].what}: {differing[0].detail}", largest(one.ulps for one in differing))


def default_store() -> GoldenStore:
    """The goldens of the checkout that the harness runs from, the set-aside ones if a replacement was cut short."""
    from verification.goldens.exchange import standing

    return GoldenStore(standing(Checkout.here()))


def unrecorded(compared: list[Comparison]) -> bool:
    """Whether these findings say that the golden itself is missing."""
    return [one.what for one in compared] == [UNRECORDED]


def _unrecorded(case: Case, platform: str) -> Comparison:
    remedy = f"record it with {COMMAND}, then golden accept '{case.id}'"
    detail = f"other cases have goldens for platform {platform}: {remedy}"
    return Comparison(case.id, case.stage, case.algorithm, "bits", AGAINST, UNRECORDED, False, None, detail)


def _case_changed(golden: Golden, recorded: Golden, stage: str, algorithm: str) -> Comparison:
    return Comparison(
        case=golden.case,
        stage=stage,
        algorithm=algorithm,
        judge="bits",
        against=AGAINST,
        what="inputs",
        agrees=False,
        detail=(
            f"the case changed since the golden was recorded: its inputs are {golden.inputs[:19]}..., the golden's"
            f" {recorded.inputs[:19]}...; if that is meant, record it anew: {COMMAND}"
        ),
    )
