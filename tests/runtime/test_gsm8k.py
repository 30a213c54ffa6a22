"""GSM8K: its files, its problems and prompts, and what a response is worth."""

from __future__ import annotations

import re
from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from relax.rollout.collect import demonstrations, prompt_tokens
from relax.tasks.gsm8k import correctness_of, format_of, gsm8k_rewards, gsm8k_task, read_rows
from relax.types import Sample
from tests.runtime.gsm8k_files import ANSWERS, PROBLEMS, ROWS, options, write_jsonl, write_tokenizer

WITHOUT = "is not installed: pip install 'relax-verification[qwen]'"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a tokenizer and the file of problems."""
    pytest.importorskip("tokenizers", reason="tokenizers " + WITHOUT)
    write_tokenizer(tmp_path)
    write_jsonl(tmp_path / "train.jsonl")
    return tmp_path


def test_rows(tmp_path: Path) -> None:
    """A row's answer is the number after ####, plain; its steps are without the calculator's notes."""
    rows = read_rows(write_jsonl(tmp_path / "train.jsonl"))
    assert [row.answer for row in rows] == ANSWERS
    assert [question for question, _ in PROBLEMS] == [row.question for row in rows]
    assert rows[0].steps == "She has 3+4=7 pens."
    assert rows[3].steps == "$2.50+$1=$3.50"


def test_parquet(tmp_path: Path) -> None:
    """The same rows from a file of parquet, whatever columns it has beside them."""
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow " + WITHOUT)
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist([{"id": 1, **row} for row in ROWS]), tmp_path / "train.parquet")
    assert read_rows(write_jsonl(tmp_path / "train.jsonl")) == read_rows(tmp_path / "train.parquet")
    (tmp_path / "train.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"train.parquet cannot be read: "):
        read_rows(tmp_path / "train.parquet")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("train.csv", "", r"train.csv ends in neither .jsonl nor .parquet"),
        ("none.jsonl", None, r"none.jsonl does not exist: give it a file of GSM8K"),
        ("train.jsonl", "", r"train.jsonl cannot be read: line 1 is no JSON"),
        ("train.jsonl", '{"question": "q", "answer": "#### 1"}\n{', r"train.jsonl cannot be read: line 2 is no JSON"),
        ("train.jsonl", "[1]", r"row 0 of .*train.jsonl has no texts 'question' and 'answer'"),
        ("train.jsonl", '{"question": "q"}', r"row 0 of .*train.jsonl has no texts"),
        ("train.jsonl", '{"question": "q", "answer": "1"}', r"row 0 of .*ends in no number after '####'"),
        ("train.jsonl", '{"question": "q", "answer": "#### one"}', r"row 0 of .*ends in no number after '####'"),
    ],
)
def test_files_refused(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    """A file that is no GSM8K is refused in one line that names file and row."""
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=said) as caught:
        read_rows(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_every_row_once_an_epoch(folder: Path) -> None:
    """An epoch has every row once; seed and epoch decide the order, the same in every process and at any time."""
    task, same, other = (gsm8k_task(options(folder, folder / "train.jsonl", seed=seed)) for seed in (1, 1, 2))
    epochs = [[task.problem(number) for number in range(first, first + 5)] for first in (0, 5, 10, 10**6)]
    for epoch in epochs:
        assert Counter(ANSWERS) == Counter(problem.answer for problem in epoch)
    assert epochs[3] == [same.problem(number) for number in range(10**6, 10**6 + 5)]
    assert len({tuple(problem.answer for problem in epoch) for epoch in epochs}) > 1
    assert epochs[:2] != [[other.problem(number) for number in range(first, first + 5)] for first in (0, 5)]


def test_prompt(folder: Path) -> None:
    """A prompt is one turn of Qwen3's chat, its tokens of a chat one id each, and a question's braces stay."""
    task = gsm8k_task(options(folder, folder / "train.jsonl"))
    number = next(number for number in range(5) if task.problem(number).answer == "3.50")
    expected = (
        "user\nTea is $2.50 and a {cake} is $1. What do both cost?\nThink step by step, then give the final number "
        "between <answer> and </answer>.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    assert expected == task.problem(number).question
    ids = prompt_tokens(task, task.problem(number))
    start, end = task.tokenizer.start, task.tokenizer.end
    assert [start] == ids[:1]
    assert (ids.count(start), ids.count(end)) == (2, 1)
    assert ids.index(end) < len(ids) - 1 - ids[::-1].index(start)
    assert re.sub(r"<\|im_\w+\|>", "", expected) == task.tokenizer.decode(ids)


def test_demonstrations(folder: Path) -> None:
    """The file's own steps in the right form: right, well formed, and ended."""
    task = gsm8k_task(options(folder, folder / "train.jsonl"))
    samples = demonstrations(task, range(5))
    assert Counter(ANSWERS) == Counter(sample.metadata["answer"] for sample in samples)
    for sample in samples:
        assert gsm8k_rewards(Namespace(), sample) == {"correctness": 1.0, "format": 1.0, "total": 2.0}
        assert "<<" not in sample.metadata["response"]
        assert task.tokenizer.end == sample.tokens[-1]


@pytest.mark.parametrize(
    ("response", "worth"),
    [
        ("3+4 is 7. <answer>7</answer>", 1.0),
        ("<answer> $2,000.50 </answer>\n", 1.0),
        ("<answer>7</answer> pens", 0.5),
        ("<answer>7 pens</answer>", 0.5),
        ("</answer>7<answer>", 0.5),
        ("<answer></answer>", 0.5),
        ("<answer>7</answer><answer>7</answer>", 0.0),
        ("<answer>7", 0.0),
        ("#### 7", 0.0),
        ("", 0.0),
    ],
)
def test_format(response: str, worth: float) -> None:
    """1 for one number between the tags at the end, 0.5 for each tag once, and else 0."""
    assert worth == format_of(response)


@pytest.mark.parametrize(
    ("response", "answer", "right"),
    [
        ("<answer>2,000</answer>", "2000", True),
        ("It is $2000.00.", "2000", True),
        ("2000 for 2 days is <answer>2000</answer>, or 1000 a day", "2000", True),
        ("-3", "-3", True),
        ("3", "-3", False),
        ("3.5", "3.50", True),
        ("first 7, then 8", "7", False),
        ("<answer>seven</answer>", "7", False),
        ("<answer></answer> 7", "7", False),
        ("", "7", False),
    ],
)
def test_correctness(response: str, answer: str, right: bool) -> None:
    """The last number decides, that before the closing tag where there is one; its value counts, not its writing."""
    assert float(right) == correctness_of(response, answer)


def test_components_differ() -> None:
    """Either component may be there without the other."""
    found = [
        gsm8k_rewards(Namespace(), Sample(metadata={"response": response, "answer": "7"}))
        for response in ("it is 7", "<answer>8</answer>")
    ]
    assert [tuple(rewards.values()) for rewards in found] == [(1.0, 0.0, 1.0), (0.0, 1.0, 1.0)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hf_checkpoint": None}, r"needs --hf-checkpoint: give it a folder with tokenizer.json"),
        ({"task_data": None}, r"needs --task-data: give it a file of GSM8K"),
        ({"max_length": 60}, r"row 0 of .*train.jsonl is a prompt of \d+ tokens: --max-length 60 .* leave 50"),
    ],
)
def test_options_refused(folder: Path, changes: dict[str, Any], said: str) -> None:
    """An option that is missing, or that leaves a row no room, is named."""
    with pytest.raises(ValueError, match=said):
        gsm8k_task(options(folder, folder / "train.jsonl", **changes))
