"""Characters to token ids and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class CharacterTokenizer:
    """One token a character of ``alphabet``, after three of its own: padding, start and end of a text.

    Raises ValueError for an alphabet that is empty or holds a character twice.
    """

    alphabet: str
    start: ClassVar[int] = 1
    end: ClassVar[int] = 2
    _first: ClassVar[int] = 3

    def __post_init__(self) -> None:
        if len(set(self.alphabet)) != len(self.alphabet) or not self.alphabet:
            raise ValueError(f"the alphabet {self.alphabet!r} is empty or holds a character twice")

    @property
    def size(self) -> int:
        """How many ids there are."""
        return self._first + len(self.alphabet)

    def encode(self, text: str) -> list[int]:
        """The id of each character; ValueError naming the first that is not in the alphabet, and its place."""
        places = [self.alphabet.find(character) for character in text]
        if -1 in places:
            position = places.index(-1)
            raise ValueError(
                f"{text[position]!r}, character {position} of {text!r}, is not in the alphabet {self.alphabet!r}"
            )
        return [self._first + place for place in places]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ``ids``; start, end and padding have none."""
        return "".join(self.alphabet[index - self._first] for index in ids if index >= self._first)
