"""Tables as plain text for reading and for pipes: a title, what is said about it, and aligned rows below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from verification.report.document import Sheet


def lines(sheets: Iterable[Sheet]) -> Iterator[str]:
    """The lines of all tables, a blank one between two."""
    for number, sheet in enumerate(sheets):
        if number:
            yield ""
        yield sheet.title
        yield from (f"  {line}" for line in sheet.note.splitlines())
        yield from (f"  {line}".rstrip() for line in _aligned(sheet))


def _aligned(sheet: Sheet) -> Iterator[str]:
    """Rows with columns of one width each, but the last, which may be long."""
    rows = [[cell.replace("\n", "\\n") for cell in row] for row in (sheet.columns, *sheet.rows) if any(row)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(sheet.columns))] if rows else []
    for *cells, last in rows:
        front = [
            cell.ljust(width) if column in sheet.words else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=False))
        ]
        yield "  ".join([*front, last])
