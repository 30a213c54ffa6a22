"""Which combinations of switches dispatch parity runs."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verification.parity.switches import STAGE_SWITCHES, Switches, combinations, pairwise


def pairs_of(rows: list[tuple[int, ...]]) -> set[tuple[int, int, int, int]]:
    return {(a, row[a], b, row[b]) for row in rows for a, b in itertools.combinations(range(len(row)), 2)}


class TestSwitches:
    @given(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    def test_every_two_values_meet(self, sizes: list[int]) -> None:
        """Pairwise cover is complete and repeats no row."""
        values: list[tuple[Any, ...]] = [tuple(range(size)) for size in sizes]
        rows = pairwise(values, [])
        assert pairs_of(rows) == pairs_of(list(itertools.product(*values)))
        assert len(set(rows)) == len(rows)

    @given(st.integers(1, 3), st.integers(2, 3))
    def test_rows_already_chosen_are_not_repeated(self, first: int, second: int) -> None:
        """What the given rows cover is not covered again."""
        values: list[tuple[Any, ...]] = [tuple(range(first)), tuple(range(second))]
        assert pairwise(values, list(itertools.product(*values))) == []

    def test_full_product_and_faults(self) -> None:
        """Interacting switches are run in full; a fault is laid over sound rows, one at a time."""
        switches = Switches({"a": (0, 1), "b": (0, 1, 2)}, {"c": (0, 1), "d": (0, 1)}, {"a": ("bad",), "d": ("worse",)})
        rows = list(switches.combinations())
        sound = [row for row in rows if "bad" not in row.values() and "worse" not in row.values()]
        assert {(row["a"], row["b"]) for row in sound if row["c"] == row["d"] == 0} == set(
            itertools.product((0, 1), (0, 1, 2))
        )
        assert pairs_of([tuple(row[name] for name in "abcd") for row in sound]) == pairs_of(
            list(itertools.product((0, 1), (0, 1, 2), (0, 1), (0, 1)))
        )
        assert sum(row["a"] == "bad" for row in rows) == sum(row["d"] == "worse" for row in rows) == 2
        assert not any(row["a"] == "bad" and row["d"] == "worse" for row in rows)

    @pytest.mark.parametrize("stage", STAGE_SWITCHES)
    def test_combinations_differ(self, stage: str) -> None:
        """No combination is run twice."""
        rows = [tuple(row.items()) for row in combinations(stage)]
        assert len(set(rows)) == len(rows)
