"""A few made-up word problems in the files in which GSM8K comes, and a tiny tokenizer in the file of Qwen3's kind."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROBLEMS = [
    ("Ann has 3 pens and buys 4 more. How many has she?", "She has 3+4=<<3+4=7>>7 pens.\n#### 7"),
    (
        "A farm sells 1,000 eggs a day. How many in 2 days, at $1 each?",
        "It sells 2*1,000=<<2*1000=2000>>2,000.\n#### 2,000",
    ),
    ("It is 5 degrees and gets 8 colder. How warm is it?", "5-8=<<5-8=-3>>-3 degrees.\n#### -3"),
    ("Tea is $2.50 and a {cake} is $1. What do both cost?", "$2.50+$1=$<<2.5+1=3.5>>3.50\n#### $3.50"),
    ("Émile reads 10 pages an hour. How many in 12 hours?", "10*12=<<10*12=120>>120\n#### 120"),
]
ROWS = [{"question": question, "answer": answer} for question, answer in PROBLEMS]
ANSWERS = ["7", "2000", "-3", "3.50", "120"]


def write_jsonl(path: Path, rows: Sequence[Any] = ROWS) -> Path:
    """Writes one row a line, letters beyond ASCII as they are."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def write_tokenizer(folder: Path) -> Path:
    """Writes a ``tokenizer.json`` of bytes and a few pairs of them, with the special tokens of a chat."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([text for row in ROWS for text in row.values()], trainer)
    tokenizer.add_special_tokens([AddedToken(text) for text in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    tokenizer.add_tokens([AddedToken(text) for text in ("<think>", "</think>")])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def options(folder: Path, data: Path, **changes: Any) -> Namespace:
    """What the task reads of a command line."""
    read = {"hf_checkpoint": str(folder), "task_data": str(data), "seed": 0, "max_length": 200, "max_new_tokens": 10}
    return Namespace(**{**read, **changes})
