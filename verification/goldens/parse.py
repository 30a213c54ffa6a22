"""Reads the text of a golden, and refuses every file that `verification.goldens.text` would not have written.

A file is data from a checkout that anyone may have edited, merged or truncated. Each refusal is a `GoldenFormatError`
that names the file, the line and the reason. Sizes are checked before anything is allocated for them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NoReturn

import torch

from verification.goldens.text import BARE_NAME, FORMAT, Golden, render
from verification.goldens.values import DTYPES, from_words, hex_digits
from verification.subjects.outcome import Failure, Outcome

MAX_BYTES = 4 * 2**20
MAX_ELEMENTS = 2**16  # of all arrays of one golden; an empty array counts by its other sizes, as 1 at least
MAX_DIMENSIONS = 8
_NAME = rf"(?P<name>{BARE_NAME.pattern}|\"(?:[^\"\\]|\\.)*\")"
_ARRAY = re.compile(rf"(?P<keyword>array|mutated) {_NAME} (?P<dtype>\S+) \[(?P<shape>[0-9, ]*)\]")
_ALIAS = re.compile(rf"alias {_NAME} {_NAME.replace('name', 'other')}")
_TEXT = re.compile(rf"text {_NAME} (?P<value>\".*\")")
_FAILURE = re.compile(rf"failure {_NAME} (?P<value>\".*\")")
_PLACE = re.compile(r"[!-~]{1,500}")
_INPUTS = re.compile(r"sha256:[0-9a-f]{64}")


class GoldenFormatError(ValueError):
    """A golden that cannot be read; the message is ``FILE:LINE: reason``."""


def parse(data: bytes | str, source: str) -> Golden:
    """The golden written in ``data``; ``source`` names the file in errors."""
    return _Reader(source, _lines(data, source)).golden()


def _lines(data: bytes | str, source: str) -> list[str]:
    if len(data) > MAX_BYTES:
        raise GoldenFormatError(f"{source}:1: {len(data)} bytes, and a golden has at most {MAX_BYTES}")
    text = data if isinstance(data, str) else _decoded(data, source)
    if not text.endswith("\n"):
        line = text.count("\n") + 1
        raise GoldenFormatError(f"{source}:{line}: the file is cut short: its last line has no end")
    return text[:-1].split("\n")


def _decoded(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise GoldenFormatError(f"{source}:{line}: not UTF-8 text") from None


@dataclass
class _Reader:
    source: str
    lines: list[str]
    position: int = 0
    arrays: dict[str, torch.Tensor] = field(default_factory=dict)
    mutated: dict[str, torch.Tensor] = field(default_factory=dict)
    aliases: set[tuple[str, str]] = field(default_factory=set)
    texts: dict[str, str] = field(default_factory=dict)
    failure: Failure | None = None
    elements: int = 0

    def golden(self) -> Golden:
        self._skip(lambda line: line.startswith("#"))
        version = self._header("golden")
        if version != str(FORMAT):
            self._refuse(f"format {version[:80]!r}, and this reader knows format {FORMAT}", self.position - 1)
        case, platform, inputs = self._place("case"), self._place("platform"), self._header("inputs")
        if not _INPUTS.fullmatch(inputs):
            self._refuse(f"the inputs are {inputs[:80]!r}, not sha256: and 64 hex digits", self.position - 1)
        while self.position < len(self.lines):
            self._block()
        if self.failure is not None and (self.arrays or self.texts or self.aliases):
            self._refuse("a failure stands beside results: a case either fails or gives results", len(self.lines) - 1)
        outcome = Outcome(self.arrays, self.mutated, frozenset(self.aliases), self.texts, self.failure)
        golden = Golden(case, platform, inputs, outcome)
        self._require_canonical(golden)
        return golden

    def _skip(self, matches: Callable[[str], bool]) -> None:
        while self.position < len(self.lines) and matches(self.lines[self.position]):
            self.position += 1

    def _header(self, keyword: str) -> str:
        line = self._next(f"the header line '{keyword} ...'")
        if not line.startswith(f"{keyword} "):
            self._refuse(f"expected '{keyword} ...', found {line[:80]!r}", self.position - 1)
        return line[len(keyword) + 1 :]

    def _place(self, keyword: str) -> str:
        name = self._header(keyword)
        if not _PLACE.fullmatch(name):
            self._refuse(f"the {keyword} {name[:80]!r} is not up to 500 plain characters", self.position - 1)
        return name

    def _next(self, expected: str) -> str:
        if self.position >= len(self.lines):
            self._refuse(f"the file ends where {expected} is expected", len(self.lines) - 1)
        self.position += 1
        return self.lines[self.position - 1]

    def _block(self) -> None:
        line = self._next("a block")
        if line == "":
            return
        if match := _ARRAY.fullmatch(line):
            into = self.arrays if match["keyword"] == "array" else self.mutated
            name = self._new(match["name"], into)
            into[name] = self._array(match["dtype"], match["shape"])
        elif match := _ALIAS.fullmatch(line):
            self.aliases.add((self._name(match["name"]), self._name(match["other"])))
        elif match := _TEXT.fullmatch(line):
            self.texts[self._new(match["name"], self.texts)] = self._string(match["value"])
        elif (match := _FAILURE.fullmatch(line)) and self.failure is None:
            self.failure = Failure(self._name(match["name"]), self._string(match["value"]))
        else:
            self._refuse(f"expected array, mutated, alias, text or one failure, found {line[:80]!r}", self.position - 1)

    def _array(self, dtype: str, shape_text: str) -> torch.Tensor:
        heading = self.position - 1
        if dtype not in DTYPES:
            self._refuse(f"dtype {dtype[:40]!r} is not one of {', '.join(DTYPES)}", heading)
        shape = self._shape(shape_text, heading)
        if len(shape) <= MAX_DIMENSIONS:  # of more, even the product takes its time
            self.elements += math.prod(max(size, 1) for size in shape)
        if len(shape) > MAX_DIMENSIONS or self.elements > MAX_ELEMENTS:
            limits = f"at most {MAX_DIMENSIONS} dimensions, and {MAX_ELEMENTS} elements in all arrays"
            self._refuse(f"shape [{shape_text[:80]}] is too large: {limits}", heading)
        count = math.prod(shape)
        bits: list[int] = []
        while self.position < len(self.lines) and self.lines[self.position].startswith("  "):
            if len(bits) > count:
                break
            bits += self._words(self._next("an element"), dtype)
        if len(bits) != count:
            self._refuse(f"shape [{shape_text}] has {count} elements, but {len(bits)} are written below it", heading)
        return from_words(bits, dtype, shape)

    def _shape(self, text: str, heading: int) -> tuple[int, ...]:
        parts = text.split(", ") if text else []
        if not all(re.fullmatch(r"0|[1-9][0-9]{0,8}", part) for part in parts):
            self._refuse(f"[{text[:80]}] is not a shape", heading)
        return tuple(map(int, parts))

    def _words(self, line: str, dtype: str) -> list[int]:
        elements = line[2:].split("  # ")[0].split(" ")
        digits = hex_digits(dtype)
        for element in elements:
            if not re.fullmatch(rf"[0-9a-f]{{{digits}}}", element):
                self._refuse(f"{element[:40]!r} is not {digits} hex digits, the size of {dtype}", self.position - 1)
            if dtype == "bool" and element not in ("00", "01"):
                self._refuse(f"{element!r} is no bool: 00 or 01", self.position - 1)
        return [int(element, 16) for element in elements]

    def _new(self, text: str, taken: dict[str, Any]) -> str:
        name = self._name(text)
        if name in taken:
            self._refuse(f"the name {name[:80]!r} occurs twice", self.position - 1)
        return name

    def _name(self, text: str) -> str:
        return self._string(text) if text.startswith('"') else text

    def _string(self, text: str) -> str:
        try:
            return json.loads(text)
        except ValueError:
            self._refuse(f"{text[:80]!r} is not a JSON string", self.position - 1)

    def _require_canonical(self, golden: Golden) -> None:
        """Spacing, order and the values beside the bits are checked against the one way to write this outcome."""
        expected = render(golden)[:-1].split("\n")
        for number, (found, wanted) in enumerate(zip_longest(self.lines, expected)):
            if found != wanted:
                said = "nothing" if wanted is None else repr(wanted[:120])
                self._refuse(f"found {'nothing' if found is None else repr(found[:120])} where {said} belongs", number)

    def _refuse(self, reason: str, line: int) -> NoReturn:
        raise GoldenFormatError(f"{self.source}:{line + 1}: {reason}")
