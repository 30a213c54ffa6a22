"""A case laid open for a report: what some sides and exact arithmetic make of it, in decimal and bits."""

from __future__ import annotations

from functools import partial

from verification.cases.case import Case
from verification.examine import Examined, guarded
from verification.explaining.explanation import Side
from verification.explaining.inputs import case_sheets
from verification.explaining.tables import outcome_sheets
from verification.oracle import evaluate
from verification.report.document import Sheet


def laid_open(case: Case, *sides: Side) -> tuple[Sheet, ...]:
    """Options, inputs, and what each side made of them."""
    _, options, inputs = case_sheets(case)
    return tuple(sheet for sheet in (options, inputs, *outcomes(case, *sides)) if sheet.rows)


def outcomes(case: Case, *sides: Side) -> tuple[Sheet, ...]:
    """What each side made of a case, called by its own name. An oracle that fails has nothing to say here."""
    exact = guarded(Examined(), case, "oracle", partial(evaluate, case)) or {}
    return tuple(sheet for sheet in outcome_sheets(case, sides, exact) if sheet.rows)
