"""Another implementation against the corpus and the oracle: where it agrees, differs by dialect, or is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from verification.cases.case import Case
from verification.judges.bits import judge_bits
from verification.judges.comparison import Comparison, largest
from verification.judges.contract import judge_contract
from verification.judges.rounding import judge_rounding
from verification.report.sheets import Sheet, ulps
from verification.subjects.outcome import Outcome
from verification.subjects.protocol import Subject

AGREES = "agrees"
ROUNDS_OTHERWISE = "rounds otherwise"
DIALECT = "dialect"
WRONG = "wrong"
ABSENT = "not there"
FINDINGS = (AGREES, ROUNDS_OTHERWISE, DIALECT, WRONG, ABSENT)


@dataclass(frozen=True)
class CaseFinding:
    """How one case came out. ``ulps``: the largest distance to the exact value, where there is one."""

    case: str
    stage: str
    algorithm: str
    finding: str
    ulps: float | None = None
    detail: str = ""


@dataclass(frozen=True)
class Conformance:
    """All findings on one subject."""

    subject: str
    findings: tuple[CaseFinding, ...] = field(default_factory=tuple)

    @property
    def wrong(self) -> tuple[CaseFinding, ...]:
        return tuple(one for one in self.findings if one.finding == WRONG)

    @property
    def compared(self) -> int:
        return sum(one.finding != ABSENT for one in self.findings)

    def sheet(self) -> Sheet:
        """Findings by stage and algorithm."""
        groups: dict[tuple[str, str], list[CaseFinding]] = {}
        for one in self.findings:
            groups.setdefault((one.stage, one.algorithm), []).append(one)
        rows = []
        for (stage, algorithm), found in sorted(groups.items()):
            counts = Counter(one.finding for one in found)
            most = largest(one.ulps for one in found)
            rows.append((stage, algorithm, str(len(found)), *(str(counts[name]) for name in FINDINGS), ulps(most)))
        columns = ("stage", "algorithm", "cases", *FINDINGS, "largest ulps to exact")
        return Sheet(f"conformance of {self.subject}", columns, tuple(rows))


def conform(
    subject: Subject,
    cases: Sequence[Case],
    reference: Callable[[Case], Outcome | None],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Conformance:
    """Run ``subject`` on every case and say how it stands to ``reference`` and to the exact values.

    - agrees: the bits of the reference, or for malformed input an error that names what is wrong with it;
    - rounds otherwise: other bits, every number within the stated bound of the exact value;
    - dialect: another definition or another convention: numbers beyond the bound on a case for which the subject
      declares a dialect (an attribute ``dialects``: patterns of case ids to a sentence), or right numbers in another
      form (dtype, aliasing, changed inputs, another exception);
    - wrong: numbers beyond the bound, a failure on valid input, a result on malformed input.
    """
    dialects: Mapping[str, str] = getattr(subject, "dialects", {})
    findings = []
    for done, case in enumerate(cases, start=1):
        findings.append(_examine(subject, case, reference, dialects))
        progress(done, len(cases))
    return Conformance(subject.name, tuple(findings))


def _examine(
    subject: Subject, case: Case, reference: Callable[[Case], Outcome | None], dialects: Mapping[str, str]
) -> CaseFinding:
    outcome = subject.run(case)
    if outcome is None:
        return CaseFinding(case.id, case.stage, case.algorithm, ABSENT)
    finding, distance, detail = _classify(case, outcome, reference(case))
    declared = next((why for pattern, why in dialects.items() if fnmatchcase(case.id, pattern)), None)
    if finding == WRONG and declared is not None and (case.error is not None or outcome.failure is None):
        finding, detail = DIALECT, f"{declared}: {detail}"
    return CaseFinding(case.id, case.stage, case.algorithm, finding, distance, detail)


def _classify(case: Case, outcome: Outcome, reference: Outcome | None) -> tuple[str, float | None, str]:
    contract = [one for one in judge_contract(case, outcome) if not one.agrees]
    if case.error is not None:
        if outcome.failure is None:
            return WRONG, None, _told(contract)
        return (DIALECT if contract else AGREES), None, _told(contract)
    rounding = [] if contract else judge_rounding(case, outcome)
    distance = largest(one.ulps for one in rounding)
    beyond = [one for one in rounding if not one.agrees]
    bits = judge_bits(case, outcome, reference, "reference") if reference is not None else []
    differing = [one for one in bits if not one.agrees]
    if not contract and not beyond and not differing:
        return AGREES, distance, ""
    if contract and reference is not None and not any(one.what == "failure" for one in differing):
        return AGREES, None, ""  # the reference fails on it as well
    if beyond or contract:
        form_only = not contract and all(one.ulps is None and "dtype" in one.detail for one in beyond)
        return (DIALECT if form_only else WRONG), distance, _told(contract or beyond)
    judged = {one.what for one in rounding}
    numbers_only = all(one.what in judged and one.ulps is not None for one in differing)
    if numbers_only:
        return ROUNDS_OTHERWISE, distance, _told(differing)
    unjudged = [one for one in differing if one.what not in judged and one.what not in ("aliases", "mutated inputs")]
    return (WRONG if unjudged else DIALECT), distance, _told(unjudged or differing)


def _told(comparisons: Sequence[Comparison]) -> str:
    return "; ".join(f"{one.what}: {one.detail}" for one in comparisons[:3])
