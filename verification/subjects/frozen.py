"""The frozen copies as a subject: what the seven algorithms computed before there was a registry."""

from __future__ import annotations

from verification.subjects.in_process import Implementation


def frozen_subject() -> Implementation:
    """The frozen copies through their dispatcher, whose NotImplementedError says what the old code lacked."""
    from verification.frozen import dispatch

    return Implementation("frozen", dispatch)
