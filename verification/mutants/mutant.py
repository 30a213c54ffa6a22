"""A named mutant: one small edit that makes the code wrong, and which checks ought to notice."""

from __future__ import annotations

from dataclasses import dataclass


class StaleMutant(ValueError):
    """The text that a mutant replaces is not in its file exactly once; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """Replaces ``old`` by ``new`` in ``file``, a path relative to the checkout.

    ``reason`` says in a few words what is wrong then. ``checks`` are shell patterns of case ids
    (``stage/algorithm/name``): the cases that cover the edit. ``ranks`` are patterns of rank case ids
    (``stage/algorithm/name@layout``), for what one rank cannot show; ``tests`` are test files, for what no case can.
    """

    name: str
    file: str
    old: str
    new: str
    reason: str
    checks: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()

    def applied_to(self, source: str) -> str:
        """``source``, the text of the file, with the edit made. Raises StaleMutant unless ``old`` occurs once."""
        count = source.count(self.old)
        if count != 1:
            raise StaleMutant(
                f"mutant {self.name} is stale: the text it replaces occurs {count} times in {self.file}, expected "
                f"once; make it fit the code as it is now, in verification/mutants. It is: {self.old.strip()!r}"
            )
        return source.replace(self.old, self.new)
