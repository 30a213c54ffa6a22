"""A scripted solver that is right, nearly right, verbose or careless, by a seeded stream of integers.

It stands in for a language model where reward groups are recorded: what matters is that correctness, format and
length vary within a group as a policy's samples do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from verification.cases.integers import Integers

THOUGHTS = (
    "Let me go step by step.",
    "First I look at the parts.",
    "I check the result once more.",
    "That does not look right, so I try again.",
    "Carrying the one.",
    "The remainder matters here.",
    "Writing it down helps.",
    "So far so good.",
)

TAGGED = re.compile(r"\s*<think>.*?</think>\s*<answer>.*?</answer>\s*", re.DOTALL)
ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


@dataclass(frozen=True)
class Temperament:
    """How often, of 16 times, the solver is right and in form, and how many thoughts it writes at most."""

    right: int
    tidy: int
    thoughts: int


TEMPERAMENTS = (
    Temperament(right=8, tidy=12, thoughts=3),
    Temperament(right=3, tidy=8, thoughts=6),
    Temperament(right=14, tidy=14, thoughts=2),
    Temperament(right=0, tidy=8, thoughts=8),
    Temperament(right=10, tidy=4, thoughts=4),
    Temperament(right=16, tidy=16, thoughts=1),
)


def respond(stream: Integers, truth: str, temperament: Temperament) -> str:
    """One response to a task whose answer is ``truth``."""
    answer = truth if stream.below(16) < temperament.right else mistaken(stream, truth)
    thoughts = " ".join(stream.choice(THOUGHTS) for _ in range(stream.between(0, temperament.thoughts)))
    if stream.below(16) < temperament.tidy:
        return f"<think>{thoughts}</think><answer>{answer}</answer>"
    form = stream.choice(
        (
            "{thoughts} <answer>{answer}</answer>",
            "<think>{thoughts}</think> {answer}",
            "<answer>{answer}</answer><think>{thoughts}</think>",
            "<think>{thoughts} <answer>{answer}</answer>",
            "{thoughts} The answer is {answer}",
            "{answer}",
        )
    )
    return form.format(thoughts=thoughts, answer=answer)


def mistaken(stream: Integers, truth: str) -> str:
    """A wrong answer of a natural kind: off by one, a lost or doubled character, the right text with more behind it."""
    kind = stream.below(5)
    if kind == 0 and re.fullmatch(r"-?\d+", truth):
        return str(int(truth) + stream.choice((-1, 1)))
    if kind == 1 and len(truth) > 1:
        return truth[:-1]
    if kind == 2:
        return truth + truth[-1]
    if kind == 3:
        return f"{truth} or so"
    return truth[::-1] if truth[::-1] != truth else f"{truth}0"


def format_score(response: str) -> float:
    """1 where both pairs of tags stand in order and alone, 0.5 where an answer is tagged, else 0."""
    if TAGGED.fullmatch(response):
        return 1.0
    return 0.5 if ANSWER.search(response) else 0.0


def extract_answer(response: str) -> str:
    """The text of the first answer tag, else the last word of the response."""
    found = ANSWER.search(response)
    if found:
        return found.group(1)
    words = response.split()
    return words[-1] if words else ""
