"""What the rollout and the supervised phase ask of a task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

# Where the numbers of problems start: demonstrations at 0, then those that are sampled, then those that only measure.
FIRST_SAMPLED = 10**6
FIRST_EVALUATED = 10**9


@dataclass(frozen=True)
class Problem:
    """One question with its answer."""

    number: int
    question: str
    """What the model reads."""
    answer: str


class Tokenizer(Protocol):
    """Text to token ids and back; ids from 0 to ``size``, exclusive."""

    @property
    def size(self) -> int:
        """How many ids there are."""

    @property
    def start(self) -> int:
        """The id before a text."""

    @property
    def end(self) -> int:
        """The id after a text."""

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``, without start and end."""

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ``ids``; start, end and padding have none."""


class Task(Protocol):
    """Problems by number, each the same in every process and at any time."""

    @property
    def tokenizer(self) -> Tokenizer:
        """That of its questions and answers."""

    def problem(self, number: int) -> Problem:
        """Problem ``number``, from 0 on."""

    def demonstration(self, number: int) -> str:
        """A response to problem ``number`` for supervised training; it need not be a good one."""
