"""The result of a campaign: a table for people, JSON for programs, and one line that a script can grep."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from verification.mutants.campaign import KILLED, Result

WIDTH = 160


def print_results(results: Sequence[Result]) -> None:
    """The table, what was not killed with its detail, and the last line."""
    table = Table(title="Mutants and the judges that noticed them", title_justify="left")
    for column in ("mutant", "what is wrong", "result", "by (differences)"):
        table.add_column(column)
    table.add_column("cases", justify="right")
    table.add_column("s", justify="right")
    for result in results:
        cells = (result.mutant.name, result.mutant.reason, result.status, noticed_by(result))
        style = "" if result.status == KILLED else "red"
        table.add_row(*map(Text, cells), str(result.cases or "-"), f"{result.seconds:.1f}", style=style)
    console = Console(
        width=None if sys.stdout.isatty() else WIDTH, no_color=bool(os.environ.get("NO_COLOR")), highlight=False
    )
    console.print(table)
    for result in results:
        if result.status != KILLED:
            told = (
                result.detail
                or f"looked at: {' '.join((*result.mutant.checks, *result.mutant.ranks, *result.mutant.tests))}"
            )
            print(f"{result.status.upper()} {result.mutant.name} ({result.mutant.file}): {told}")
    print(summary(results))


def noticed_by(result: Result) -> str:
    """``bits/frozen 12, rounding 3``."""
    return ", ".join(f"{judge} {count}" for judge, count in sorted(result.judges.items())) or "-"


def summary(results: Sequence[Result]) -> str:
    """``MUTANTS killed 40 of 40``, and what became of the others."""
    counts = Counter(result.status for result in results)
    others = [f"{status} {count}" for status, count in sorted(counts.items()) if status != KILLED]
    return ", ".join([f"MUTANTS killed {counts[KILLED]} of {len(results)}", *others])


def results_as_json(results: Sequence[Result]) -> str:
    """One JSON object a mutant, in a list."""
    return json.dumps([asdict(result) for result in results], indent=2) + "\n"
