"""The tokenizer of a language model, read from the ``tokenizer.json`` in its folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START, END = "<|im_start|>", "<|im_end|>"


@dataclass(frozen=True)
class TextTokenizer:
    """Text to token ids and back by the package ``tokenizers``; tokens of its own that a text names become one id."""

    size: int
    """Ids are 0 to this, exclusive."""
    start: int
    """The id of ``<|im_start|>``, before each turn of a chat."""
    end: int
    """The id of ``<|im_end|>``, after each turn of a chat."""
    library: Any
    """The ``tokenizers.Tokenizer`` that does the work."""

    @classmethod
    def read(cls, path: Path) -> TextTokenizer:
        """The tokenizer in a ``tokenizer.json``.

        Raises ValueError naming the file where there is none or it cannot be read, the token of a chat that it does not
        know, or the package that is missing.
        """
        try:
            from tokenizers import Tokenizer
        except ModuleNotFoundError as error:
            raise ValueError(
                f"{path} is read by the package tokenizers, which is not installed: "
                "pip install 'relax-verification[qwen]'"
            ) from error
        if not path.is_file():
            raise ValueError(f"{path} does not exist: give --hf-checkpoint a folder with the model's tokenizer.json")
        try:
            library = Tokenizer.from_file(str(path))
        except Exception as error:  # whatever is wrong with the file: the library raises a bare Exception
            raise ValueError(f"{path} is no tokenizer: {error}; download it anew") from error
        ids = library.get_vocab(with_added_tokens=True)
        for token in (START, END):
            if token not in ids:
                raise ValueError(f"{path} has no token {token!r}: take the tokenizer of a model that chats, as Qwen3")
        return cls(max(ids.values()) + 1, ids[START], ids[END], library)

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``, without start and end."""
        return self.library.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ``ids``; special tokens, and ids that only the model knows, have none."""
        return self.library.decode(list(ids), skip_special_tokens=True)
