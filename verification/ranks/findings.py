"""What is found on one rank case: comparisons, what each was made with, and the distances that were measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from verification.judges.comparison import Comparison
from verification.ranks.cases import RankCase
from verification.report.summary import Measured

JUDGE = "ranks"
# With what a rank's end, or the batch that the ranks make together, is compared.
EVERY_RANK = "every rank"
OTHER_RANKS = "other ranks"
FROZEN = "frozen on the same ranks"
ONE_RANK = "one rank"
CONTRACT = "contract"


@dataclass
class Judged:
    """The comparisons, and for those within a bound the distance."""

    comparisons: list[Comparison] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)


def compared(rank_case: RankCase, against: str, what: str, detail: str, ulps: float | None = None) -> Comparison:
    """One comparison; it agrees where ``detail`` has nothing to say against it."""
    case = rank_case.case
    return Comparison(rank_case.id, case.stage, case.algorithm, JUDGE, against, what, not detail, ulps, detail)
