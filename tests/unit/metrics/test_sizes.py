"""The estimated size of counts, against generated latencies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.histogram import hdr_index
from pytest_loadtest.metrics.sizes import BUCKETS, filled


@pytest.mark.parametrize("values", [20, 100, 1000, 10_000, 100_000])
def test_latencies_of_an_order_of_magnitude_fill_as_many_buckets_as_estimated(values: int) -> None:
    """At most a third fewer, and never more."""
    latencies = np.random.default_rng(1).lognormal(15, 0.6, values).astype(np.int64)
    measured = len(np.unique(hdr_index(latencies)))
    assert measured <= 1.01 * filled(1, values) <= 1.35 * measured


@given(parts=st.integers(1, 10**6), values=st.integers(0, 10**12))
def test_no_more_buckets_are_filled_than_there_are_values_and_buckets(
    parts: int, values: int
) -> None:
    """Without values none is."""
    assert 0 <= filled(parts, values) <= 1.001 * min(values, parts * BUCKETS)
    assert filled(0, values) == 0
