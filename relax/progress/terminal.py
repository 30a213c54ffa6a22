"""The numbers people watch, on the terminal: a table that is renewed in place, elsewhere a line a row."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Iterable
from typing import IO, Any

from relax.progress.numbers import EVALUATED, Row, shown, watched

LATEST = 12  # rows that the table shows at most
NAMES, NUMBER = 22, 11  # characters that a name and a number take, with the space around them


class Terminal:
    """Writes to ``out``: plain lines, or a live table where it is a terminal. ``total`` is the number of rollouts.

    A terminal that can show nothing in place gets lines that are folded to its width.
    """

    def __init__(self, out: IO[str], total: int) -> None:
        self._out, self._total = out, total
        self._rows: deque[dict[str, str]] = deque(maxlen=LATEST)
        self._live = _live(out)

    def step(self, row: Row) -> None:
        """Shows one row."""
        found = {name: shown(number) for name, number in watched(row).items()}
        parts = [f"{name} {text}" for name, text in found.items()]
        if EVALUATED in row:
            parts[0] = f"evaluation after {row[EVALUATED]} rollouts"  # which says more than the step does
        if self._live is None or EVALUATED in row:
            self.say(*parts)
            return
        if self._rows and self._rows[-1].keys() != found.keys():
            self._rows.clear()  # another phase
        self._rows.append(found)
        self._live.start()
        self._live.update(self._table(row), refresh=True)

    def say(self, *parts: str) -> None:
        """Writes a line of ``parts``, above the table where there is one."""
        line = _folded(parts, shutil.get_terminal_size().columns) if self._out.isatty() else "  ".join(parts)
        if self._live is not None:
            self._live.console.print(line, markup=False, soft_wrap=True)
            return
        self._out.write(f"{line}\n")
        self._out.flush()

    def finish(self) -> None:
        """Leaves the last table where it is."""
        if self._live is not None:
            self._live.stop()

    def _table(self, row: Row) -> Any:
        """A line a number, a column a row: as many of the latest as the terminal is wide."""
        from rich import box
        from rich.table import Table

        title = f"{row['rollout'] + 1} of {self._total} rollouts" if "rollout" in row else "warm-up"
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        fitting = max(1, (self._live.console.width - NAMES) // NUMBER)
        columns = list(self._rows)[-fitting:]
        first, *others = self._rows[-1]
        table.add_column(first, no_wrap=True)
        for column in columns:
            table.add_column(column[first], justify="right", no_wrap=True)
        for name in others:
            table.add_row(name, *(column[name] for column in columns))
        return table


def _folded(parts: Iterable[str], width: int) -> str:
    """As many of ``parts`` on each line as ``width`` characters hold; what goes on is further in."""
    first, *others = parts
    lines = [first]
    for part in others:
        if len(lines[-1]) + len(part) + 2 <= width:
            lines[-1] += f"  {part}"
        else:
            lines.append(f"  {part}")
    return "\n".join(lines)


def _live(out: IO[str]) -> Any:
    """A live display; None where ``out`` is no terminal that could show one."""
    if not out.isatty() or os.environ.get("TERM") == "dumb":
        return None
    from rich.console import Console
    from rich.live import Live

    console = Console(file=out, no_color=bool(os.environ.get("NO_COLOR")), highlight=False)
    return Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
