"""Tables as plain text for reading and for pipes: a title, what is said about it, and aligned rows below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from verification.report.document import Sheet
from verification.report.visible import visible


def lines(sheets: Iterable[Sheet]) -> Iterator[str]:
    """The lines of all tables, indented below their titles, a blank line between two."""
    for number, sheet in enumerate(sheets):
        if number:
            yield ""
        yield visible(sheet.title)
        yield from (f"  {line}" for line in (*visible(sheet.note).splitlines(), *aligned(sheet)))


def plain(sheet: Sheet) -> str:
    """One table, its title underlined."""
    title = visible(sheet.title)
    return "\n".join([title, "-" * len(title), *visible(sheet.note).splitlines(), *aligned(sheet)]) + "\n"


def aligned(sheet: Sheet) -> Iterator[str]:
    """Rows with columns of one width each; a last column of words may be as long as it likes. A row is one line."""
    rows = [[visible(cell).replace("\n", "\\n") for cell in row] for row in (sheet.columns, *sheet.rows) if any(row)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(sheet.columns))] if rows else []
    for row in rows:
        cells = [
            cell.ljust(width) if column in sheet.words else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
