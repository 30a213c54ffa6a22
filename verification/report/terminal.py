"""The report for people: tables in colour on a terminal, plain text in a pipe, the verdict always last."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Protocol

from verification.judges.comparison import Comparison
from verification.report.document import Sheet
from verification.report.sheets import is_bad, sheets
from verification.report.summary import Problem, Report
from verification.report.text import plain
from verification.report.visible import visible

if TYPE_CHECKING:
    from verification.conform import Conformance

SHOWN = 20
EXPLAIN = "relax-verify explain 'CASE'"


def print_report(report: Report, out: IO[str], *, quiet: bool = False, tables: Sequence[Sheet] | None = None) -> None:
    """Tables, differences, problems, then the verdict, with what is not there beside it. ``quiet``: no tables.

    ``tables``: those of a check, unless others are given.
    """
    if not quiet:
        print_sheets(sheets(report) if tables is None else tables, out)
        for line in difference_lines(report.differences):
            out.write(f"{line}\n")
    for line in problem_lines(report.problems):
        out.write(f"{line}\n")
    if report.not_there and report.comparisons:
        out.write(f"not there in {report.subject}, so not judged: {report.not_there} of {report.cases} cases\n")
    print_verdict(report.verdict or f"NO VERDICT: {report.no_verdict}", out, holds=report.exit_code == 0)


def print_sheets(tables: Sequence[Sheet], out: IO[str]) -> None:
    """Tables in colour on a terminal, else in plain text."""
    console = None if os.environ.get("NO_COLOR") else _console(out)
    for sheet in tables:
        if console is None:
            out.write(plain(sheet) + "\n")
        else:
            console.print(_rich_table(sheet))


def print_verdict(verdict: str, out: IO[str], *, holds: bool) -> None:
    """The last line."""
    console = None if os.environ.get("NO_COLOR") else _console(out)
    if console is None:
        out.write(f"{verdict}\n")
    else:
        console.print(verdict, style="bold green" if holds else "bold red", highlight=False)
    out.flush()


def difference_lines(differences: tuple[Comparison, ...], explain: str | None = EXPLAIN) -> list[str]:
    """The first few differences, and what to type to see one whole, where there is such a command for a case's id.

    What is the same on every case is said once.
    """
    lines, told = [], set()
    for one in differences[:SHOWN]:
        distance = "" if one.ulps is None else f" ({one.ulps:g} ulps)"
        lines.append(f"DIFFERENT {one.case}: {one.judge} against {one.against}: {one.what}{distance}")
        about_any = one.detail.replace(one.case, "CASE")
        if about_any not in told:
            told.add(about_any)
            lines.append(f"    {visible(one.detail)}")
    whole = next((one.case for one in differences if one.judge not in ("parity", "lock")), None)
    if whole is not None and explain is not None:
        lines.append(f"    see one whole: {explain.replace('CASE', whole, 1)}")
    if len(differences) > SHOWN:
        lines.append(f"... and {len(differences) - SHOWN} more: --json FILE lists them all")
    return lines


def problem_lines(problems: tuple[Problem, ...]) -> list[str]:
    """The first few problems of the harness."""
    lines = [f"PROBLEM {one.case}: {one.where}: {visible(one.message)}" for one in problems[:SHOWN]]
    if len(problems) > SHOWN:
        lines.append(f"... and {len(problems) - SHOWN} more problems: --json FILE lists them all")
    return lines


class Bar(Protocol):
    """What is done of what there is to do, and what it is, where it is something else than before."""

    def __call__(self, done: int, total: int, title: str | None = None) -> None: ...


@contextlib.contextmanager
def progress_bar(title: str, *, quiet: bool, out: IO[str] | None = None) -> Iterator[Bar]:
    """A progress display on standard error while a check works: a bar on a terminal, nothing elsewhere."""
    out = sys.stderr if out is None else out
    console = None if quiet else _console(out)
    if console is None:
        yield lambda done, total, title=None: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total, title=None: bar.update(task, completed=done, total=total, description=title)


def _console(out: IO[str]):
    """A rich console where ``out`` is a terminal and rich is installed; None means plain text."""
    if not out.isatty() or os.environ.get("TERM") == "dumb":
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(file=out, no_color=bool(os.environ.get("NO_COLOR")), highlight=False)


def _rich_table(sheet: Sheet):
    from rich.table import Table
    from rich.text import Text

    caption = visible(sheet.note) or None
    table = Table(
        title=visible(sheet.title),
        title_justify="left",
        show_header=any(sheet.columns),
        caption=caption,
        caption_justify="left",
    )
    for column, name in enumerate(sheet.columns):
        table.add_column(name, justify="left" if column in sheet.words else "right", overflow="fold")
    for row in sheet.rows:
        table.add_row(*(Text(visible(cell)) for cell in row), style="red" if is_bad(sheet, row) else "")
    return table


def print_conformance(found: Conformance, out: IO[str], *, quiet: bool = False) -> None:
    """The table by stage and algorithm, what is wrong or of another dialect, and one line that says it all."""
    if not quiet:
        print_sheets([found.sheet()], out)
        notable = [one for one in found.findings if one.finding in ("wrong", "dialect")]
        for one in sorted(notable, key=lambda one: one.finding != "wrong")[:SHOWN]:
            out.write(f"{one.finding.upper()} {one.case}\n    {one.detail}\n")
    counts = Counter(one.finding for one in found.findings)
    out.write("CONFORMANCE " + ", ".join(f"{name} {counts[name]}" for name in sorted(counts)) + "\n")
    out.flush()
