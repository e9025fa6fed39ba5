"""Fewer points, the same extremes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.report.html.reduce import POINTS, even_spans, span_extremes

VALUES = st.lists(st.none() | st.integers(-(10**15), 10**15) | st.floats(allow_nan=False, allow_infinity=False), max_size=300)


@given(VALUES, st.integers(1, 50))
def test_extremes_are_the_true_ones(values: list[float | None], most: int) -> None:
    """Nothing that was measured is larger or smaller than what is shown, in all and in each span; and no value is made up."""
    high, low = span_extremes(values, most)
    assert len(high) == len(low) <= most
    assert [max((v for v in values[first:last] if v is not None), default=None) for first, last in even_spans(len(values), most)] == high
    assert [min((v for v in values[first:last] if v is not None), default=None) for first, last in even_spans(len(values), most)] == low
    known = [value for value in values if value is not None]
    assert max((v for v in high if v is not None), default=None) == max(known, default=None)
    assert min((v for v in low if v is not None), default=None) == min(known, default=None)


@given(st.integers(0, 10**6), st.integers(1, 2000))
def test_spans_cover_all_once(length: int, most: int) -> None:
    """In order, without gap or overlap, all but the last equally long, and no more than are wanted."""
    found = even_spans(length, most)
    assert len(found) <= most
    assert [place for first, last in found for place in (first, last)] == sorted(place for span in found for place in span)
    assert [first for first, _ in found] == [0, *(last for _, last in found)][: len(found)]
    assert (found[-1][1] if found else 0) == length
    assert len({last - first for first, last in found[:-1]}) <= 1


def test_what_fits_is_left_as_it_is() -> None:
    """A short run is shown with every second."""
    values = [float(value) for value in range(POINTS)]
    assert span_extremes(values) == (values, values)
