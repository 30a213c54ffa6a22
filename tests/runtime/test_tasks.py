"""Sums: their problems, what a response is worth, and how text becomes tokens."""

from __future__ import annotations

from argparse import Namespace

import pytest

from relax.tasks.sums import Sums, correctness_of, format_of, sum_rewards
from relax.tasks.tokenizer import CharacterTokenizer
from relax.types import Sample


def test_problems() -> None:
    """A problem is a function of seed and number, and its answer is that of the sum."""
    task = Sums(seed=3)
    problems = [task.problem(number) for number in (0, 1, 2, 10**6)]
    assert problems == [Sums(seed=3).problem(number) for number in (0, 1, 2, 10**6)]
    assert problems != [Sums(seed=4).problem(number) for number in (0, 1, 2, 10**6)]
    for number in range(200):
        problem = task.problem(number)
        left, sign, right, _ = problem.question.split()
        assert int(problem.answer) == int(left) + int(right) * (1 if sign == "+" else -1)
        assert problem.question == task.tokenizer.decode(task.tokenizer.encode(problem.question))


@pytest.mark.parametrize(
    ("response", "worth"),
    [
        ("<a>7</a>", 1.0),
        ("<a></a>", 1.0),
        ("</a>7<a>", 0.5),
        ("7<a></a>", 0.5),
        ("<a>7</a> ", 0.5),
        ("<a>7", 0.0),
        ("7</a>", 0.0),
        ("<a>7</a></a>", 0.0),
        ("<a><a>7</a>", 0.0),
        ("7", 0.0),
        ("", 0.0),
    ],
)
def test_format(response: str, worth: float) -> None:
    """The format is worth 1 for the tags around all, 0.5 for each tag once, and else 0."""
    assert worth == format_of(response)


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("<a>-7</a>", True),
        ("-7", True),
        ("</a>-7<a>3", True),
        ("<a>7</a>", False),
        ("-77", False),
        ("- 7", False),
        ("", False),
    ],
)
def test_correctness(response: str, right: bool) -> None:
    """The first number decides, wherever it stands."""
    assert float(right) == correctness_of(response, "-7")


def test_rewards() -> None:
    """The components, their sum, and a length that falls to 0 at twice the bound."""
    lengths = {}
    for response in ("<a>7</a>", "7" * 12, "7" * 18, "7" * 24, "7" * 30):
        rewards = sum_rewards(Namespace(), Sample(metadata={"response": response, "answer": "7"}))
        assert rewards["correctness"] + rewards["format"] == rewards["total"]
        lengths[len(response)] = rewards["length"]
    assert lengths == {8: 1.0, 12: 1.0, 18: 0.5, 24: 0.0, 30: 0.0}


def test_demonstrations() -> None:
    """All are right, the model can read them, and forms of every worth occur."""
    task = Sums(seed=1)
    texts = [task.demonstration(number) for number in range(300)]
    assert texts == [task.demonstration(number) for number in range(300)]
    worths = [format_of(text) for text in texts]
    assert {0.0, 0.5, 1.0} == set(worths)
    assert 0.3 < sum(worths) / len(worths) < 0.6
    assert all(correctness_of(text, task.problem(number).answer) for number, text in enumerate(texts))
    assert texts == [task.tokenizer.decode(task.tokenizer.encode(text)) for text in texts]


def test_tokenizer() -> None:
    """Ids follow the three of its own, which have no text; what it cannot read it names."""
    tokenizer = CharacterTokenizer("ab c")
    assert tokenizer.encode("ab c") == [3, 4, 5, 6]
    assert tokenizer.size == 7
    assert tokenizer.decode([0, 1, 3, 4, 2]) == "ab"
    with pytest.raises(ValueError, match="'x', character 1 of 'axb', is not in the alphabet 'ab c'"):
        tokenizer.encode("axb")
    for alphabet in ("", "aa"):
        with pytest.raises(ValueError, match="empty or holds a character twice"):
            CharacterTokenizer(alphabet)
