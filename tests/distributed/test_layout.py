"""Layouts: their names, their sizes, and their order of ranks, which is megatron's own."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verification.ranks.layout import Layout

SIZES = st.integers(1, 12)
LAYOUTS = st.builds(Layout, tp=SIZES, cp=SIZES, pp=SIZES, dp=SIZES)


@pytest.mark.parametrize(
    ("layout", "name", "world"),
    [
        (Layout(), "one", 1),
        (Layout(dp=4), "dp4", 4),
        (Layout(dp=2, cp=2), "dp2-cp2", 4),
        (Layout(tp=2, cp=3), "tp2-cp3", 6),
        (Layout(tp=2, cp=3, pp=4, dp=5), "dp5-tp2-cp3-pp4", 120),
    ],
)
def test_a_layout_is_called_by_its_sizes_above_one(layout, name, world):
    """The name gives the layout back, and the number of ranks is the product."""
    assert (layout.name, layout.world, Layout.parse(name)) == (name, world, layout)


@given(LAYOUTS)
def test_every_name_gives_its_layout_back(layout):
    """No two layouts share a name."""
    assert Layout.parse(layout.name) == layout


def test_a_name_may_give_its_kinds_in_any_order():
    """What people type is understood; there is one way to print it."""
    assert Layout.parse("cp2-dp3").name == "dp3-cp2"


@pytest.mark.parametrize(
    "name", ["", "dp", "dp0", "dp02", "dp-2", "ep2", "dp2cp2", "dp2-", "dp2-dp2", "one-dp2", "DP2"]
)
def test_what_names_no_layout_is_refused(name):
    """The error repeats the name and shows one that is right."""
    with pytest.raises(ValueError, match=rf"^'{name}' names no layout.*'dp2-cp2'"):
        Layout.parse(name)


@pytest.mark.parametrize("kind", ["tp", "cp", "pp", "dp"])
@pytest.mark.parametrize("size", [0, -1, 1.0, True, "2"])
def test_a_size_is_a_whole_number_from_one(kind, size):
    """Anything else is named with its kind."""
    with pytest.raises(ValueError, match=f"the {kind} of a layout is {size!r}"):
        Layout(**{kind: size})


@given(st.builds(Layout, tp=st.integers(1, 4), cp=st.integers(1, 4), pp=st.integers(1, 4), dp=st.integers(1, 4)))
def test_ranks_run_through_tp_then_cp_then_dp_then_pp(layout):
    """Neighbouring ranks differ in the first kind that has more than one place."""
    places = itertools.product(*(range(size) for size in (layout.pp, layout.dp, layout.cp, layout.tp)))
    assert [layout.coordinates(rank) for rank in range(layout.world)] == [(t, c, d, p) for p, d, c, t in places]


@pytest.mark.parametrize("rank", [-1, 4])
def test_a_rank_outside_the_layout_has_no_coordinates(rank):
    """The error says which ranks there are."""
    with pytest.raises(ValueError, match=f"layout dp4 has ranks 0 to 3, not {rank}"):
        Layout(dp=4).coordinates(rank)


@pytest.mark.parametrize("name", ["tp2-cp2", "dp2-cp2", "dp2-pp2", "dp2-tp2-pp2"])
def test_coordinates_are_those_of_megatron(pool, megatron, name):
    """Each rank has the places that megatron gives it, and its groups hold the ranks that differ in one place only."""
    layout = Layout.parse(name)
    found = pool.run("tests.distributed.pool_tasks:megatron_places", [None] * layout.world, layout=layout).values()
    places = [layout.coordinates(rank) for rank in range(layout.world)]
    assert places == [one["places"] for one in found]
    for rank, axis in itertools.product(range(layout.world), range(4)):
        others = places[rank][:axis] + places[rank][axis + 1 :]
        peers = [peer for peer, place in enumerate(places) if place[:axis] + place[axis + 1 :] == others]
        assert peers == found[rank]["groups"][("tp", "cp", "dp", "pp")[axis]]
