"""A language model's tokenizer from its file: round trips, the tokens of a chat, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from relax.tasks.text_tokenizer import TextTokenizer
from tests.runtime.gsm8k_files import PROBLEMS, write_tokenizer

NEEDED = "tokenizers is not installed: pip install 'relax-verification[qwen]'"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A tiny tokenizer's file."""
    pytest.importorskip("tokenizers", reason=NEEDED)
    return write_tokenizer(tmp_path)


@pytest.mark.parametrize("text", ["", " two  spaces ", "Émile: 12½ 日本\n\t<tag>", *PROBLEMS[0]])
def test_round_trip(path: Path, text: str) -> None:
    """A text comes back as it was, and each of its ids is below the size."""
    tokenizer = TextTokenizer.read(path)
    ids = tokenizer.encode(text)
    assert text == tokenizer.decode(ids)
    assert all(0 <= one < tokenizer.size for one in ids)
    assert not {tokenizer.start, tokenizer.end} & set(ids)


def test_ids_without_text(path: Path) -> None:
    """The tokens of a chat are one id each and have no text; nor have ids that only the model knows."""
    tokenizer = TextTokenizer.read(path)
    ids = tokenizer.encode("a<|im_end|>b<|im_start|>")
    assert [tokenizer.end, tokenizer.start] == ids[1::2]
    assert tokenizer.decode([*ids, tokenizer.size, tokenizer.size + 100]) == "ab"
    assert tokenizer.size == 1 + max(*tokenizer.encode("</think>"), *ids)


def test_refused(path: Path) -> None:
    """A file that is missing, damaged, or of a model that does not chat is named in one line."""
    text = path.read_text()
    for damaged, said in (
        (text.replace("im_end", "end"), r"tokenizer.json has no token '<\|im_end\|>'"),
        (text[:-9], r"tokenizer.json is no tokenizer: .*download it anew"),
    ):
        path.write_text(damaged)
        with pytest.raises(ValueError, match=said) as caught:
            TextTokenizer.read(path)
        assert "\n" not in str(caught.value)
    path.unlink()
    with pytest.raises(ValueError, match=r"tokenizer.json does not exist: give --hf-checkpoint"):
        TextTokenizer.read(path)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the package is missing the extra that brings it is named."""
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match=r"tokenizers, which is not installed: pip install .*\[qwen\]"):
        TextTokenizer.read(tmp_path / "tokenizer.json")
