"""Malformed input on ranks: every rank fails alike, with an error that says what it must and who brought it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from verification.judges.comparison import Comparison
from verification.judges.contract import DOCUMENTED_KINDS
from verification.ranks.cases import RankCase
from verification.ranks.findings import CONTRACT, compared
from verification.ranks.results import Failure, RankResult

REFUSALS = (*DOCUMENTED_KINDS, "RankFailure")
_WHITENING = "whitening over the optimizer batch: "
_RANKS = re.compile(r"\branks? (\d+(?:, \d+)*): ")


def judge_refusals(rank_case: RankCase, ranks: Sequence[RankResult]) -> list[Comparison]:
    """Comparisons of each rank's failure with what the case documents, and with the first rank's.

    Pipeline stages before the last have looked at nothing, and return.
    """
    layout, found = rank_case.layout, []
    last_stage = [rank for rank in ranks if layout.coordinates(rank.rank)[3] == layout.pp - 1]
    for rank in ranks:
        what, failure = f"rank {rank.rank}", rank.failure
        if rank not in last_stage:
            detail = "" if failure is None else f"a stage before the last failed with {_told(failure)}"
            found.append(compared(rank_case, CONTRACT, what, detail))
        elif failure is None:
            found.append(compared(rank_case, CONTRACT, what, "gave a result; an error is due"))
        else:
            found += [
                compared(rank_case, CONTRACT, f"{what} {about}", f"{fault}: {_told(failure)}" if fault else "")
                for about, fault in _faults(rank_case, failure, last_stage[0].failure).items()
            ]
    return found


def _faults(rank_case: RankCase, failure: Failure, first: Failure | None) -> dict[str, str]:
    """What is wrong with one rank's failure, by what was looked at; empty texts where nothing is."""
    missing = [word for word in rank_case.case.error or () if word not in failure.message]
    alike = first is not None and _told(failure) == _told(first)
    return {
        "kind": "" if failure.kind in REFUSALS else "no documented kind",
        "message": f"the message lacks {', '.join(map(repr, missing))}" if missing else "",
        "ranks named": _others_named(rank_case, failure.message),
        "as the first": "" if alike else "another error than the first rank's",
    }


def _others_named(rank_case: RankCase, message: str) -> str:
    """Empty where the message names those ranks, and no others, that brought malformed input.

    The whitening counts data-parallel ranks; whatever fails before a statistic counts the ranks of the stage, and names
    none where all of them brought the same.
    """
    culprit, layout = rank_case.culprit, rank_case.layout
    if culprit is None:
        return ""
    _, of_whitening, complaints = message.rpartition(_WHITENING)
    named = {int(rank) for ranks in _RANKS.findall(complaints) for rank in ranks.split(", ")}
    stage = set(range(layout.world // layout.pp))
    due = {culprit} if of_whitening else {rank for rank in stage if layout.coordinates(rank)[2] == culprit}
    all_alike = due == stage and not named
    return "" if all_alike or named == due else f"it names ranks {sorted(named)}, ranks {sorted(due)} brought it"


def _told(failure: Failure) -> str:
    return f"{failure.kind}: {failure.message}"
