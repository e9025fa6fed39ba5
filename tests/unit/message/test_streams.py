"""The numbers of a worker's streams: a range and a column of the same numbers are the same streams."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.message.streams import (
    position_of,
    stream_at,
    stream_column,
    stream_list,
    streams_below,
    streams_document,
    streams_of_document,
)

RANGES = st.builds(
    lambda start, count, step: range(start, start + count * step, step),
    st.integers(0, 9),
    st.integers(1, 20),
    st.integers(1, 7),
)


@given(streams=RANGES, end=st.integers(0, 200))
def test_a_range_and_its_column_are_the_same_streams(streams: range, end: int) -> None:
    column = stream_column(streams)
    index = np.arange(len(streams))
    for form in (streams, column):
        assert (
            stream_column(form).tolist()
            == list(stream_list(form))
            == stream_at(form, index).tolist()
            == list(streams)
        )
        assert position_of(form, column.astype(np.int32)).tolist() == index.tolist()
        assert streams_below(form, end) == sum(stream < end for stream in streams)
        read = streams_of_document(json.loads(json.dumps(streams_document(form))))
        assert (type(read), list(read)) == (type(form), list(streams))


@pytest.mark.parametrize("document", [[0, 4], {"streams": [1]}, {"numbers": "all"}, None])
def test_another_document_of_streams_is_an_error(document: object) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        streams_of_document(document)
