"""Sums from reasoning-gym, and what a response to one is worth, component by component."""

from __future__ import annotations

import functools
import random
import re
from argparse import Namespace
from dataclasses import dataclass
from typing import Any, ClassVar

from relax.tasks.task import Problem
from relax.tasks.tokenizer import CharacterTokenizer
from relax.types import Sample

OPEN, CLOSE = "<a>", "</a>"
SHORT = 12  # characters up to which a response is of full ``length``; at twice as many it is worth 0
DEMONSTRATIONS = ("<a>{}</a>", "<a>{}</a>", "{}", "<a>{}", "{}</a>", "</a>{}<a>", "{}<a></a>")
_PROBLEMS = 2**31


@dataclass(frozen=True)
class Sums:
    """Chains of additions and subtractions, such as ``7 - 9 =``: ``terms`` numbers of ``digits`` digits each."""

    seed: int = 0
    terms: int = 2
    digits: int = 1
    tokenizer: ClassVar[CharacterTokenizer] = CharacterTokenizer("0123456789+-= </a>")

    def problem(self, number: int) -> Problem:
        """Problem ``number``, from 0 on."""
        entry = _source(self.seed, self.terms, self.digits)[number]
        return Problem(number, entry["metadata"]["expression"] + " =", entry["answer"])

    def demonstration(self, number: int) -> str:
        """The right answer, two times in seven in the right form: a model that has seen these has both to learn."""
        form = random.Random(f"demonstration {self.seed} {number}").choice(DEMONSTRATIONS)
        return form.format(self.problem(number).answer)


def sums_task(args: Namespace) -> Sums:
    """The task of ``--task-path`` where none is given: other sums for another ``--seed``."""
    return Sums(seed=args.seed)


def sum_rewards(args: Namespace, sample: Sample) -> dict[str, float]:
    """``correctness`` 0 or 1, ``format`` 0, 0.5 or 1, ``length`` 0 to 1, and ``total``, the first two added up.

    For ``--custom-rm-path``. Reads the texts ``answer`` and ``response`` of ``sample.metadata``, and no option.
    """
    response = sample.metadata["response"]
    correctness, form = correctness_of(response, sample.metadata["answer"]), format_of(response)
    length = min(1.0, max(0.0, 2 - len(response) / SHORT))
    return {"correctness": correctness, "format": form, "length": length, "total": correctness + form}


def format_of(response: str) -> float:
    """1 for one answer between the two tags and nothing around them; 0.5 for each tag once, but otherwise; else 0."""
    if response.count(OPEN) != 1 or response.count(CLOSE) != 1:
        return 0.0
    return 1.0 if response.startswith(OPEN) and response.endswith(CLOSE) else 0.5


def correctness_of(response: str, answer: str) -> float:
    """Reasoning-gym's verdict on the first number of ``response``, whatever surrounds it: 1 for right, else 0."""
    found = re.search(r"-?\d+", response)
    return float(found is not None and _source(0, 2, 1).score_answer(found.group(), {"answer": answer}) == 1.0)


@functools.cache
def _source(seed: int, terms: int, digits: int) -> Any:
    import reasoning_gym  # a second's work, which reading an option must not cost

    return reasoning_gym.create_dataset(
        "chain_sum",
        seed=seed,
        size=_PROBLEMS,
        min_terms=terms,
        max_terms=terms,
        min_digits=digits,
        max_digits=digits,
    )
