"""Does the contract judge notice? Malformed input accepted, the wrong error, a half-written input."""

from __future__ import annotations

import pytest
import torch

from verification.cases.case import Case
from verification.judges.contract import judge_contract
from verification.subjects.outcome import Failure, Outcome

MALFORMED = Case("reward.normalize/gdpo/none", "reward.normalize", "gdpo", {}, error=("format", "sample 3", "group 1"))
VALID = Case("reward.normalize/gdpo/fine", "reward.normalize", "gdpo", {})
RIGHT = Failure("ValueError", "reward 'format' of sample 3 (group 1) is None")


def differing(case: Case, outcome: Outcome) -> list[str]:
    return [one.what for one in judge_contract(case, outcome) if not one.agrees]


@pytest.mark.parametrize("kind", ["ValueError", "TypeError", "KeyError", "SystemExit"])
def test_the_documented_error_agrees(kind):
    """A documented kind of error with every word in its message and untouched input agrees, counted four times."""
    found = judge_contract(MALFORMED, Outcome(failure=Failure(kind, RIGHT.message)))
    assert [one.what for one in found] == ["failure", "kind of failure", "message", "inputs untouched"]
    assert all(one.agrees for one in found)


def test_success_on_malformed_input_is_noticed():
    """A result where an error is due is a difference."""
    assert differing(MALFORMED, Outcome(arrays={"rewards": torch.zeros(8)})) == ["failure"]


@pytest.mark.parametrize("word", MALFORMED.error)
def test_a_missing_word_is_noticed(word):
    """A message that lacks one of the words is a difference that names it."""
    outcome = Outcome(failure=Failure("ValueError", RIGHT.message.replace(word, "?")))
    assert differing(MALFORMED, outcome) == ["message"]
    (found,) = [one for one in judge_contract(MALFORMED, outcome) if not one.agrees]
    assert repr(word) in found.detail


@pytest.mark.parametrize("kind", ["LookupError", "IndexError", "RuntimeError", "AttributeError", "SystemExit(1)"])
def test_an_undocumented_kind_is_noticed(kind):
    """An exception of another kind is a difference even when its message has every word."""
    assert differing(MALFORMED, Outcome(failure=Failure(kind, RIGHT.message))) == ["kind of failure"]


def test_a_half_written_input_is_noticed():
    """An input changed before the error is a difference that names its path."""
    outcome = Outcome(failure=RIGHT, mutated={"samples[3].reward.format": torch.zeros(())})
    assert differing(MALFORMED, outcome) == ["inputs untouched"]


def test_valid_input_must_be_accepted():
    """A failure on valid input is a difference, a result is none."""
    assert differing(VALID, Outcome(failure=RIGHT)) == ["accepted"]
    assert differing(VALID, Outcome(arrays={"rewards": torch.zeros(8)})) == []
