"""Dispatch parity: the live registry routes as the seven algorithms were routed before there was one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verification.judges.comparison import Comparison

__all__ = ["run_lints", "run_parity"]


def run_parity() -> list[Comparison]:
    """Both dispatchers over every combination of switches, and the registry against old routing tables and corpus.

    Raises NotImplementedError where either dispatcher lacks a stage: a route that is not there was not compared.
    """
    from verification.parity.compare import compare_dispatch, compare_routing, parity_cases, recorded_subjects
    from verification.parity.coverage import compare_coverage, compare_registered
    from verification.subjects.frozen import frozen_subject
    from verification.subjects.live import live_subject

    found = [*compare_routing(), *compare_registered()]
    reached: set[str] = set()
    with recorded_subjects(live_subject(), frozen_subject()) as (live, frozen):
        for case in parity_cases():
            found.extend(compare_dispatch(case, live, frozen))
            reached.update(live.trace.entries)
        found.extend(compare_coverage(reached, live))
    return found


def run_lints(root: Path) -> list[Comparison]:
    """The source lints over the checkout at ``root``: one comparison for each rule and file."""
    from verification.parity.lints import lint_tree

    return lint_tree(root)
