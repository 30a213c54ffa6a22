"""Rank cases: a case of the corpus, or of the lists beside this file, on one layout of ranks."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from verification.cases import corpus
from verification.cases.case import Case
from verification.cases.families import COMPONENTS, TOKEN_GLOBAL
from verification.ranks.field import IDLE, LATE, rank_field_cases
from verification.ranks.layout import Layout
from verification.ranks.on_logits import logit_cases
from verification.ranks.plans import Plan, plan_for

PADDED, BSHD, NORMALIZED = "padded", "bshd", "normalized"


@dataclass(frozen=True)
class RankCase:
    """One batch and where it lies.

    ``case`` holds the whole batch; ``program`` is the function of ``programs.py`` that each rank runs on its part.
    ``words`` tell rank cases of one case and one layout apart: padded sequences, the other layout of sequences,
    advantages normalised behind the estimate.
    """

    case: Case
    program: str
    layout: Layout
    words: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return "+".join((f"{self.case.id}@{self.layout.name}", *self.words))

    @cached_property
    def plan(self) -> Plan:
        """Which rank holds which samples and tokens. Malformed input that one rank brings is whole on that rank."""
        plan = plan_for(
            self.case.id,
            self.layout,
            response_lengths(self.case),
            padded=PADDED in self.words,
            alike=BSHD in self.words,
            late=LATE in self.case.tags,
            idle=IDLE in self.case.tags,
        )
        return plan if self.culprit is None else replace(plan, holders=(self.culprit,) * len(plan.holders))

    @property
    def culprit(self) -> int | None:
        """The data-parallel rank that alone brings the malformed input; None where there is none or all bring it."""
        if self.case.error is None or self.program != "advantages":
            return None
        return zlib.crc32(self.case.id.encode()) % self.layout.dp

    @property
    def qkv_format(self) -> str:
        return BSHD if BSHD in self.words else "thd"

    @property
    def about(self) -> Case:
        """The case under this id, for judges that name what they compare by its case."""
        return replace(self.case, id=self.id)


def response_lengths(case: Case) -> list[int]:
    """How many tokens each response of a case has."""
    for name in ("response_lengths", "kl", "advantages", "log_probs", "values", "tokens"):
        if case.inputs.get(name) is not None:
            return [entry if isinstance(entry, int) else len(entry) for entry in case.inputs[name]]
    raise ValueError(f"case {case.id!r} has no list with one entry a response")


@lru_cache(maxsize=1)
def rank_cases() -> tuple[RankCase, ...]:
    """Every rank case, in a fixed order. An id that is used twice is a ValueError."""
    cases: dict[str, RankCase] = {}
    for case in _all():
        if case.id in cases:
            raise ValueError(f"rank case {case.id!r}: the id is taken")
        cases[case.id] = case
    return tuple(cases.values())


# Where the cases are run: layout, and words beside it.
DATA = ("dp2", "dp3", "dp4")
CUT = ("cp2", "cp2+padded", "dp2-cp2", "dp2-cp2+padded")
WHOLE = ("one", "tp2", "pp2", "tp2-cp2")
LOGITS = (
    "one", "one+bshd", "dp2", "dp3+bshd", "tp2", "tp2+bshd+padded", "cp2", "cp2+padded", "cp2+bshd", "cp2+bshd+padded",
    "tp2-cp2+padded", "tp2-cp2+bshd", "dp2-cp2", "dp2-cp2+padded", "dp2-cp2+bshd+padded", "pp2", "pp2+bshd",
)  # fmt: skip
PER_STAGE = {"advantage.normalize": "normalization", "policy.loss": "objective", "loss.reduce": "reduction"}


def _all() -> Iterator[RankCase]:
    field = tuple(rank_field_cases())
    cases = (*corpus(), *field)
    everywhere = {case.id for case in field}
    for number, case in _numbered(case for case in cases if case.stage == "advantage.estimate" and _has_a_token(case)):
        if case.id in everywhere:
            yield from _on(case, "advantages", (*DATA, *CUT, *WHOLE))
            continue
        count = 3 if case.algorithm in COMPONENTS else 4  # there are many of them
        yield from _on(case, "advantages", (*_some(number, (*DATA, *CUT), count), *_some(number, WHOLE, 1)))
        if case.algorithm not in (*COMPONENTS, *TOKEN_GLOBAL) and case.error is None:
            normalized = replace(case, options={**case.options, "normalize_advantages": True})
            yield from _on(normalized, "advantages", _some(number, (*DATA, *CUT, *WHOLE), 3), NORMALIZED)
    for stage, program in PER_STAGE.items():
        uncut = (case for case in cases if case.stage == stage and case.inputs.get("full_loss_masks") is None)
        for number, case in _numbered(uncut):
            yield from _on(case, program, _some(number, (*DATA, *CUT), 7 if case.id in everywhere else 4))
    rows = (case for case in cases if case.stage == "logprob.entropy" and case.error is None)
    for program, from_logits in (("log_probs", rows), ("policy_loss", logit_cases())):
        for number, case in _numbered(from_logits):
            yield from _on(case, program, _some(number, LOGITS, 8))


def _has_a_token(case: Case) -> bool:
    """Whether a normalisation behind the estimate finds a token: what it makes of none is a case of its own stage."""
    masks = case.inputs["loss_masks"]
    return not case.options.get("normalize_advantages") or masks is None or any(mask.any() for mask in masks)


def _on(case: Case, program: str, places: Sequence[str], *words: str) -> Iterator[RankCase]:
    for place in places:
        name, *more = place.split("+")
        yield RankCase(case, program, Layout.parse(name), (*more, *words))


def _numbered(cases: Iterable[Case]) -> Iterator[tuple[int, Case]]:
    """Each case with its number among those of its algorithm, so that another algorithm's new case moves none."""
    numbers: Counter[str] = Counter()
    for case in cases:
        yield numbers[case.algorithm], case
        numbers[case.algorithm] += 1


def _some(number: int, places: Sequence[str], count: int) -> list[str]:
    """``count`` of the places, others for the next number, so that all are used equally often."""
    return [places[(number * count + step) % len(places)] for step in range(count)]
