"""HdrHistogram logs."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from builders.measurements import histogram, made
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.report.hdr import (
    decode_counts,
    encode_coarse_counts,
    encode_histogram,
    write_log,
)

if TYPE_CHECKING:
    from pytest_loadtest.metrics.histogram import Histogram

STARTED = 1_700_000_000.0


def read(**changed: Histogram | None) -> dict[str, HdrHistogram]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.hlog"
        write_log(path, made(**changed), STARTED)
        reader = HistogramLogReader(str(path), HdrHistogram(1, 2**40, 3))
        found = {}
        while (interval := reader.get_next_interval_histogram()) is not None:
            found[interval.get_tag()] = interval
        reader.close()
        return found


def test_a_reader_finds_each_latency_by_its_tag() -> None:
    """Each is one interval, as long as the measured phase."""
    found = read(publish=None)
    assert list(found) == ["end-to-end", "send-delay", "own-send-delay"]
    assert found["end-to-end"].get_start_time_stamp() == STARTED * 1000
    assert found["end-to-end"].get_end_time_stamp() == STARTED * 1000 + 10_000


@given(st.lists(st.integers(0, 2**50), min_size=1, max_size=50))
def test_the_library_reads_the_same_buckets(values: list[int]) -> None:
    """Values include 0, and far more than an hour."""
    ours = histogram(np.array(values, dtype=np.int64))
    counts = np.frombuffer(HdrHistogram.decode(encode_histogram(ours)).counts, dtype=np.uint64)
    assert np.flatnonzero(counts).tolist() == ours.index.tolist()
    assert counts[counts > 0].tolist() == ours.count.tolist()


@given(st.dictionaries(st.integers(0, 5000), st.integers(1, 2**40), min_size=1, max_size=50))
def test_coarse_buckets_are_those_of_two_digits(counts: dict[int, int]) -> None:
    assert decode_counts(encode_coarse_counts(counts)) == counts
