"""The largest distances that random cases show: where the column ``seen`` of the bounds comes from.

``python -m tests.verification.oracle_search [SEED [ROUNDS]]`` prints one line a formula, live code and frozen copies.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import torch

from tests.verification.oracle_cases import random_cases
from verification.cases.case import Case
from verification.judges.rounding import judge_rounding
from verification.oracle import evaluate
from verification.subjects.frozen import frozen_subject
from verification.subjects.live import live_subject


def largest_distances(cases: Iterable[Case]) -> dict[str, tuple[float, str]]:
    """The largest distance of each formula, and the case that showed it, over the live code and the frozen copies."""
    largest: dict[str, tuple[float, str]] = {}
    subjects = (live_subject(), frozen_subject())
    for case in cases:
        expected = evaluate(case)
        for subject in subjects if expected is not None else ():
            outcome = subject.run(case)
            for found in judge_rounding(case, outcome, expected) if outcome is not None else ():
                formula = expected[found.what].formula if found.what in expected else found.what
                distance = found.ulps if found.ulps is not None else float("inf")
                if not found.agrees:
                    print(f"{case.id} {subject.name} {case.algorithm} {found.what}: {found.detail}", file=sys.stderr)
                largest[formula] = max(largest.get(formula, (-1.0, "")), (distance, case.id))
    return largest


if __name__ == "__main__":
    torch.set_num_threads(1)
    start, count = (int(word) for word in (sys.argv[1:] + ["0", "300"][len(sys.argv) - 1 :]))
    for formula, (distance, case_id) in sorted(largest_distances(random_cases(start, count)).items()):
        print(f"{formula:45} {distance:10.3f}  {case_id}")
