"""Random draws: the same everywhere, for any split into bursts, in exact proportion."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.message.draws import (
    draw_each,
    draw_range,
    sparse_choice,
    subkey,
    subkeys,
    weighted_choice,
)

WEIGHTS = st.lists(st.integers(0, 10**6), min_size=1, max_size=40).filter(any)


def test_draws_are_pinned() -> None:
    """A seed means the same draws with every version of this package and of numpy."""
    # key 0: the numbers that splitmix64 is known by
    assert draw_range(0, 0, 3).tolist() == [
        16294208416658607535,
        7960286522194355700,
        487617019471545679,
    ]
    assert draw_range(-1, 5, 1).tolist() == draw_range(2**64 - 1, 5, 1).tolist() == [subkey(-1, 5)]
    assert draw_range(subkey(42, 7), 10**12, 2).tolist() == [
        11810730338133437454,
        7227442277014358159,
    ]


@given(key=st.integers(0, 2**64 - 1), first=st.integers(0, 2**40), cut=st.integers(0, 50))
def test_draws_do_not_depend_on_cuts(key: int, first: int, cut: int) -> None:
    pieces = [*draw_range(key, first, cut), *draw_range(key, first + cut, 50 - cut)]
    assert pieces == [*draw_range(key, first, 50)]


@given(keys=st.lists(st.integers(0, 2**64 - 1), max_size=20), first=st.integers(0, 2**40))
def test_draws_of_many_keys_are_those_of_each(keys: list[int], first: int) -> None:
    """So are the subkeys of many indexes."""
    numbers = np.arange(first, first + len(keys)) * 3
    found = draw_each(np.array(keys, np.uint64), numbers)
    assert found.tolist() == [
        int(draw_range(key, number, 1)[0])
        for key, number in zip(keys, numbers.tolist(), strict=True)
    ]
    for key in (*keys, -first):
        assert subkeys(key, range(2, 12, 3)).tolist() == [
            subkey(key, index) for index in range(2, 12, 3)
        ]


@given(weights=WEIGHTS, drawn=st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_a_draw_is_its_slots_own_choice_below_the_split(
    weights: list[int], drawn: list[int]
) -> None:
    """From the split on it is the alias."""
    table = weighted_choice(weights)
    edges = table.split.tolist()
    everything = [*drawn, *edges, *(max(edge - 1, 0) for edge in edges)]
    slots = [one >> int(table.shift) for one in everything]
    expected = [
        int(table.own[slot] if one < edges[slot] else table.alias[slot])
        for one, slot in zip(everything, slots, strict=True)
    ]
    assert table.choose(np.array(everything, np.uint64)).tolist() == expected
    assert len(table.own) == 1 << 64 - int(table.shift) >= len(weights)


@given(weights=WEIGHTS, drawn=st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_choices_of_weight_zero_change_no_other(weights: list[int], drawn: list[int]) -> None:
    """At any position."""
    above = [place for place, weight in enumerate(weights) if weight]
    column = np.array(drawn, np.uint64)
    dense = weighted_choice([weights[place] for place in above]).choose(column)
    assert sparse_choice(np.array(weights, np.float64)).choose(column).tolist() == [
        above[choice] for choice in dense.tolist()
    ]


@given(weights=WEIGHTS)
def test_shares_are_exact(weights: list[int]) -> None:
    """Each choice has its share of all 2**64 draws, within rounding; a zero weight has none."""
    table = weighted_choice(weights)
    width = 1 << int(table.shift)
    owned = [0] * len(table.own)
    for slot, (split, own, alias) in enumerate(
        zip(table.split.tolist(), table.own.tolist(), table.alias.tolist(), strict=True)
    ):
        owned[own] += split - slot * width
        owned[alias] += (slot + 1) * width - split
    total = sum(weights)
    for weight, share in zip([*weights, *[0] * (len(owned) - len(weights))], owned, strict=True):
        assert abs(share - Fraction(weight, total) * 2**64) <= len(weights)
        assert weight or not share


@given(weights=WEIGHTS, drawn=st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_a_zero_weight_is_never_chosen(weights: list[int], drawn: list[int]) -> None:
    """By no draw at the edges of slots."""
    table = weighted_choice(weights)
    edges = [
        *table.split.tolist(),
        *(split - 1 for split in table.split.tolist() if split),
        0,
        2**64 - 1,
    ]
    chosen = table.choose(np.array([*drawn, *edges], np.uint64))
    assert all(weights[choice] for choice in chosen.tolist())


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1], [1] * 65537])
def test_weights_without_a_choice_are_an_error(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="1 to 65536"):
        weighted_choice(weights)
