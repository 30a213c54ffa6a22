"""Random states that belong to one role: seeded alike everywhere, and moved by its own draws alone."""

from __future__ import annotations

import random

import numpy
import torch

from relax.core.random_states import OwnRandomStates, random_states, seed_random_states


def drawn() -> list[float]:
    """One draw from each of the global generators."""
    return [random.random(), float(numpy.random.random()), float(torch.rand(()))]


def test_others_draw_between() -> None:
    """What a library draws between two blocks moves neither block, and what a block draws moves no library."""
    seed_random_states(3)
    inside = [drawn() for _ in range(3)]
    seed_random_states(3)
    own = OwnRandomStates()
    seed_random_states(4)
    outside = [drawn() for _ in range(3)]
    seed_random_states(4)
    found: list[list[float]] = []
    for number in range(3):
        with own.drawn_from():
            found.append(drawn())
        assert drawn() == outside[number]
    assert inside == found
    assert len({number for row in inside + outside for number in row}) == 18


def test_after_an_error() -> None:
    """A draw before an error counts, and the others' states are put back."""
    seed_random_states(3)
    first, second = drawn(), drawn()
    seed_random_states(3)
    own = OwnRandomStates()
    before = random_states()["python"].tolist()
    try:
        with own.drawn_from():
            assert drawn() == first
            raise KeyError
    except KeyError:
        assert random_states()["python"].tolist() == before
    with own.drawn_from():
        assert drawn() == second


def test_any_seed() -> None:
    """A seed that numpy would not take is one too."""
    seed_random_states(2**40 + 1)
    large = drawn()
    seed_random_states(1)
    assert large[0] != drawn()[0]
