"""A golden as text: one file a case, every element as its bits in hex with the value beside it.

    # Regenerate: relax-verify golden regen --baseline HEAD && relax-verify golden accept 'loss.reduce/grpo/two'
    golden 1
    case loss.reduce/grpo/two
    platform cpu-torch2.13.0-avx2-1a2b3c4d
    inputs sha256:9f86d0...

    array loss float32 []
      3f400000  # 0.75

Blocks follow the header in one fixed order, separated by an empty line: ``array NAME DTYPE [SHAPE]``,
``mutated PATH DTYPE [SHAPE]``, ``alias NAME NAME``, ``text NAME "JSON string"``, ``failure KIND "JSON string"``.
There is exactly one way to write an outcome, so equal outcomes give equal files and `verification.goldens.parse`
can refuse whatever differs from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from verification.goldens.values import NAMES, decimal, hex_digits, words
from verification.subjects.outcome import Outcome

FORMAT = 1
SHORT_ARRAY = 16  # up to here one element a line; beyond it a line takes ELEMENTS_A_LINE
ELEMENTS_A_LINE = 4
BARE_NAME = re.compile(r"[A-Za-z0-9_.\[\]:=/-]+")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,16}\b")


@dataclass(frozen=True)
class Golden:
    """A recorded outcome: whose it is, where it holds, the digest of the inputs that gave it."""

    case: str
    platform: str
    inputs: str
    outcome: Outcome


def render(golden: Golden) -> str:
    """The text of a golden, ending in a newline. An array of a dtype outside `DTYPES` is a ValueError naming it."""
    blocks = ["\n".join(_header(golden)), *("\n".join(block) for block in _blocks(golden.outcome))]
    return "\n\n".join(blocks) + "\n"


def in_reading_order(names: Mapping[str, object]) -> list[str]:
    """Names sorted as people count: ``kl[2]`` before ``kl[10]``."""
    return sorted(names, key=_reading_order)


def _reading_order(name: str) -> tuple[list[str], str]:
    return [part.zfill(20) if part.isdigit() else part for part in re.split(r"(\d+)", name)], name


def name_text(name: str) -> str:
    """A name as it is written: bare where that is unmistakable, else as a JSON string."""
    return name if BARE_NAME.fullmatch(name) else json.dumps(name)


def without_addresses(message: str) -> str:
    """The message with memory addresses blanked, which differ from run to run and say nothing."""
    return _ADDRESS.sub("0x...", message)


def _header(golden: Golden) -> Iterator[str]:
    yield f"# Regenerate: relax-verify golden regen --baseline HEAD && relax-verify golden accept '{golden.case}'"
    yield f"golden {FORMAT}"
    yield f"case {golden.case}"
    yield f"platform {golden.platform}"
    yield f"inputs {golden.inputs}"


def _blocks(outcome: Outcome) -> Iterator[list[str]]:
    for keyword, arrays in (("array", outcome.arrays), ("mutated", outcome.mutated)):
        for name in in_reading_order(arrays):
            yield list(_array(keyword, name, arrays[name]))
    if outcome.aliases:
        yield [f"alias {name_text(a)} {name_text(b)}" for a, b in sorted(outcome.aliases)]
    if outcome.texts:
        yield [f"text {name_text(n)} {json.dumps(outcome.texts[n])}" for n in in_reading_order(outcome.texts)]
    if outcome.failure is not None:
        message = json.dumps(without_addresses(outcome.failure.message))
        yield [f"failure {name_text(outcome.failure.kind)} {message}"]


def _array(keyword: str, name: str, array: torch.Tensor) -> Iterator[str]:
    if array.dtype not in NAMES:
        raise ValueError(f"array {name!r} has dtype {array.dtype}: a golden holds {', '.join(sorted(NAMES.values()))}")
    dtype = NAMES[array.dtype]
    yield f"{keyword} {name_text(name)} {dtype} [{', '.join(map(str, array.shape))}]"
    elements, digits = words(array), hex_digits(dtype)
    step = 1 if len(elements) <= SHORT_ARRAY else ELEMENTS_A_LINE
    for start in range(0, len(elements), step):
        row = elements[start : start + step]
        bits, shown = (f"{word:0{digits}x}" for word in row), (decimal(word, dtype) for word in row)
        yield f"  {' '.join(bits)}  # {' '.join(shown)}"
