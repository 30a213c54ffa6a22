"""Any exception in one line: those of Ray are pages, and those of torch end in a traceback of their own."""

from __future__ import annotations

LONGEST = 400  # characters of several lines that are still told as one


def one_line(error: BaseException) -> str:
    """What ``error`` says, and in brackets its notes; its first line alone where all of them would be too long.

    Where Ray passes on what another process raised, what that process raised. Never empty.
    """
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return one_line(cause)
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    whole = " ".join(lines)
    if len(whole) > LONGEST:
        whole = lines[0]
    notes = "; ".join(getattr(error, "__notes__", ()))
    return (whole or type(error).__name__) + (f" ({notes})" if notes else "")


def kind_and_line(error: BaseException) -> str:
    """`one_line` behind the kind of exception, for those whose text alone says little."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return kind_and_line(cause)
    return f"{type(error).__name__}: {one_line(error)}"
