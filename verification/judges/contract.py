"""The contract judge: malformed input gives the documented error and stays as it was; valid input is accepted."""

from __future__ import annotations

from functools import partial

from verification.cases.case import Case
from verification.judges.comparison import Comparison
from verification.subjects.outcome import Outcome

JUDGE = "contract"
DOCUMENTED_KINDS = (
    "ValueError",
    "TypeError",
    "KeyError",
    "SystemExit",
    "NotImplementedError",
)  # KeyError: --reward-key


def judge_contract(case: Case, outcome: Outcome) -> list[Comparison]:
    """Compare ``outcome`` with what the case documents.

    Malformed input (``case.error`` is set): it fails, with a documented kind of exception, every word of
    ``case.error`` stands in its message, and no input was changed. Valid input: it does not fail.
    """
    compare = partial(Comparison, case.id, case.stage, case.algorithm, JUDGE, "contract")
    failure = outcome.failure
    if case.error is None:
        detail = "" if failure is None else f"valid input failed with {failure.kind}: {failure.message}"
        return [compare("accepted", failure is None, None, detail)]
    changed = sorted(outcome.mutated)
    untouched = compare("inputs untouched", not changed, None, f"changed: {', '.join(changed)}" if changed else "")
    if failure is None:
        detail = f"malformed input gave a result; an error naming {', '.join(case.error)} is due"
        return [compare("failure", False, None, detail), untouched]
    known = failure.kind in DOCUMENTED_KINDS
    kind = f"{failure.kind} is none of {', '.join(DOCUMENTED_KINDS)}: {failure.message}"
    missing = [word for word in case.error if word not in failure.message]
    message = f"the message lacks {', '.join(map(repr, missing))}: {failure.message}"
    return [
        compare("failure", True),
        compare("kind of failure", known, None, "" if known else kind),
        compare("message", not missing, None, message if missing else ""),
        untouched,
    ]
