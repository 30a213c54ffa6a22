"""Text of unknown origin made safe to look at: what cannot be printed, or turns its neighbours round, is spelt."""

from __future__ import annotations


def visible(text: str) -> str:
    r"""``text`` with line breaks as they are, and every other character that cannot be printed as ``\x1b`` or so.

    That takes in control characters, marks of direction, joiners, lone surrogates, and spaces that are not the usual
    one: they are seen, and do nothing.
    """
    if text.isprintable():
        return text
    return "".join(one if one == "\n" or one.isprintable() else ascii(one)[1:-1] for one in text)
