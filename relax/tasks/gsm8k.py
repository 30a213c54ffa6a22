"""Word problems of GSM8K from a file on disk, and what a response to one is worth, component by component."""

from __future__ import annotations

import functools
import json
import random
import re
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from relax.option_ranges import option_of
from relax.tasks.task import Problem
from relax.tasks.text_tokenizer import TextTokenizer
from relax.types import Sample

OPEN, CLOSE = "<answer>", "</answer>"
CHAT = (
    "user\n{question}\nThink step by step, then give the final number between " + f"{OPEN} and {CLOSE}.<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
"""What follows ``<|im_start|>``: one turn of the user, and the answer begun, as Qwen3's chat without its thinking."""
_NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?")
_ANSWER = re.compile(r"####\s*(\S+)\s*$")


@dataclass(frozen=True)
class Row:
    """One row of the file."""

    question: str
    steps: str
    """How the answer is found, in sentences."""
    answer: str
    """A number in digits."""


@dataclass(frozen=True)
class Gsm8k:
    """The rows of a file, each of them once in an epoch, in an order of the epoch's own that ``seed`` decides."""

    rows: tuple[Row, ...]
    tokenizer: TextTokenizer
    seed: int = 0

    def problem(self, number: int) -> Problem:
        """Problem ``number``, from 0 on; epoch k begins with number k times the number of rows."""
        row = self._row(number)
        return Problem(number, CHAT.format(question=row.question), row.answer)

    def demonstration(self, number: int) -> str:
        """The file's own steps, and the right answer in the right form."""
        row = self._row(number)
        return f"{row.steps}\n{OPEN}{row.answer}{CLOSE}"

    def _row(self, number: int) -> Row:
        epoch, place = divmod(number, len(self.rows))
        return self.rows[_order(self.seed, epoch, len(self.rows))[place]]


def gsm8k_task(args: Namespace) -> Gsm8k:
    """For ``--task-path``: the rows of ``args.task_data``, and the tokenizer in the folder ``args.hf_checkpoint``.

    Raises ValueError naming the option that is missing, the file and the row that cannot be read, or the row whose
    question leaves fewer than ``args.max_new_tokens`` of ``args.max_length`` tokens for its response.
    """
    for option, holds in (("hf_checkpoint", "a folder with tokenizer.json"), ("task_data", "a file of GSM8K")):
        if getattr(args, option) is None:
            raise ValueError(f"the task gsm8k needs {option_of(option)}: give it {holds} on this machine")
    path = Path(args.task_data)
    task = Gsm8k(read_rows(path), TextTokenizer.read(Path(args.hf_checkpoint) / "tokenizer.json"), args.seed)
    room = args.max_length - args.max_new_tokens
    for position, row in enumerate(task.rows):
        length = 1 + len(task.tokenizer.encode(CHAT.format(question=row.question)))  # the start token is one
        if length > room:
            raise ValueError(
                f"row {position} of {path} is a prompt of {length} tokens: --max-length {args.max_length} and "
                f"--max-new-tokens {args.max_new_tokens} leave {room}; change them"
            )
    return task


def gsm8k_rewards(args: Namespace, sample: Sample) -> dict[str, float]:
    """``correctness`` 0 or 1, ``format`` 0, 0.5 or 1, and ``total``, both added up. For ``--custom-rm-path``.

    Reads the texts ``answer`` and ``response`` of ``sample.metadata``, and no option.
    """
    response = sample.metadata["response"]
    correctness, form = correctness_of(response, sample.metadata["answer"]), format_of(response)
    return {"correctness": correctness, "format": form, "total": correctness + form}


def correctness_of(response: str, answer: str) -> float:
    """1 where the last number says the same as ``answer``: that before the last closing tag, if there is one."""
    before, tag, _ = response.rpartition(CLOSE)
    numbers = _NUMBER.findall(before if tag else response)
    return float(bool(numbers) and _value(numbers[-1]) == _value(answer))


def format_of(response: str) -> float:
    """1 for steps, then one number between the tags, and nothing after; 0.5 for each tag once otherwise; else 0."""
    if response.count(OPEN) != 1 or response.count(CLOSE) != 1:
        return 0.0
    inside = response.rstrip().partition(OPEN)[2]
    return 1.0 if inside.endswith(CLOSE) and _NUMBER.fullmatch(inside.removesuffix(CLOSE).strip()) else 0.5


def read_rows(path: Path) -> tuple[Row, ...]:
    """The rows of a file of GSM8K: ``.jsonl`` or ``.parquet``, with the texts ``question`` and ``answer``.

    Raises ValueError naming the file, and the row in which a text is missing or no number stands after ``####``.
    """
    readers = {".jsonl": _read_jsonl, ".parquet": _read_parquet}
    if path.suffix not in readers:
        raise ValueError(f"--task-data {path} ends in neither {' nor '.join(readers)}: give it such a file of GSM8K")
    try:
        found = readers[path.suffix](path)
    except FileNotFoundError as error:
        raise ValueError(f"--task-data {path} does not exist: give it a file of GSM8K on this machine") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"--task-data {path} cannot be read: {error}") from error
    if not found:
        raise ValueError(f"--task-data {path} holds no row")
    return tuple(_parsed(path, position, row) for position, row in enumerate(found))


def _parsed(path: Path, position: int, row: Any) -> Row:
    question, solution = (row.get(name) if isinstance(row, dict) else None for name in ("question", "answer"))
    if not isinstance(question, str) or not isinstance(solution, str):
        raise ValueError(f"row {position} of {path} has no texts 'question' and 'answer'")
    answer = _ANSWER.search(solution)
    if answer is None or not _NUMBER.fullmatch(answer[1]):
        raise ValueError(f"row {position} of {path}: its answer ends in no number after '####'")
    steps = re.sub(r"<<.*?>>", "", solution[: answer.start()]).strip()  # the calculator's notes
    return Row(question.strip(), steps, re.sub(r"[$,]", "", answer[1]))


def _read_jsonl(path: Path) -> Sequence[Any]:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").rstrip("\n").split("\n"), start=1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"line {number} is no JSON: {error}") from error
    return rows


def _read_parquet(path: Path) -> Sequence[Any]:
    try:
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise ValueError("pyarrow is not installed: pip install 'relax-verification[qwen]'") from error
    return parquet.read_table(path, memory_map=False).to_pylist()


def _value(number: str) -> Fraction:
    return Fraction(re.sub(r"[$,]", "", number))


@functools.lru_cache(maxsize=4)
def _order(seed: int, epoch: int, count: int) -> list[int]:
    return random.Random(f"epoch {seed} {epoch}").sample(range(count), count)
