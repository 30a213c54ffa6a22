"""Some valid cases of a stage, for the tests of the check."""

from __future__ import annotations

from verification.cases import corpus
from verification.cases.case import Case


def cases(stage: str, algorithm: str, count: int = 12, words: str = "") -> list[Case]:
    """Some valid cases of a stage, neither recorded groups nor vectors."""
    found = [
        case
        for case in corpus()
        if (case.stage, case.algorithm) == (stage, algorithm)
        and case.error is None
        and "real" not in case.tags
        and "vector" not in case.id
        and words in case.id
    ]
    assert found, f"no cases of {stage}/{algorithm}"
    return found[:count]
