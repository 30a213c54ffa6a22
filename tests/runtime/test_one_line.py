"""Exceptions in one line, whatever their texts look like."""

from __future__ import annotations

import pytest

from relax.core.one_line import LONGEST, kind_and_line, one_line


class Wrapped(Exception):
    """As Ray's own: a traceback as its text, and what was raised elsewhere as its cause."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__("Traceback (most recent call last):\n  File x\nKeyError: 'a'")
        self.cause = cause


def noted(error: BaseException, *notes: str) -> BaseException:
    """``error`` with notes."""
    for note in notes:
        error.add_note(note)
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("as it is"), "as it is"),
        (ValueError("two\n  lines, \tand spaces\n\n"), "two lines, and spaces"),
        (RuntimeError("what happened\n" + "frame\n" * LONGEST), "what happened"),
        (AssertionError(), "AssertionError"),
        (Wrapped(OSError("the disk")), "the disk"),
        (noted(KeyError("a"), "where", "remedy"), "'a' (where; remedy)"),
    ],
)
def test_one_line(error: BaseException, said: str) -> None:
    """Lines are joined while they are few, and only the first is told where they are a page."""
    assert one_line(error) == said


def test_kind() -> None:
    """The kind that is named is that of what was raised, not of what carried it here."""
    assert kind_and_line(Wrapped(KeyError("a"))) == "KeyError: 'a'"
    assert kind_and_line(AssertionError()) == "AssertionError: AssertionError"
