"""The heat map and the percentiles of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from builders.documents import document
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.hdr import hdr_index
from pytest_loadtest.metrics.over_time import over_time
from pytest_loadtest.metrics.series import SERIES_BITS
from pytest_loadtest.report.hdr import encode_coarse_counts
from pytest_loadtest.report.html.heat import COLUMNS, heat_map, percentile_chart, time_blocks

MS, SECOND = 1_000_000, 1_000_000_000


def measured(latencies: list[tuple[int, int]], seconds: int = 10) -> dict[str, Any]:
    """The measurements of a run with these copies: second and latency in ns."""
    second, latency = (np.array(column, np.int64) for column in zip(*latencies, strict=True))
    order = np.argsort(second, kind="stable")
    counted = over_time(second[order], hdr_index(latency, SERIES_BITS)[order])
    assert counted is not None
    length, blocks = counted.blocks(seconds * SECOND)
    texts = [encode_coarse_counts(block) if block else None for block in blocks]
    tops = [max((latency for at, latency in latencies if at == second), default=None) for second in range(seconds)]
    return {"overTime": {"block": length, "endToEnd": texts}, "series": {"endToEndMax": tops}}


def heat_of(found: dict[str, Any]) -> dict[str, Any] | None:
    return heat_map(time_blocks(found), found, "run-1")


def percentiles_of(found: dict[str, Any]) -> dict[str, Any] | None:
    return percentile_chart(time_blocks(found), found, [], "run-1")


@given(st.lists(st.tuples(st.integers(0, 1999), st.integers(0, 10**11)), min_size=1, max_size=100))
def test_a_heat_map_counts_every_copy_once(latencies: list[tuple[int, int]]) -> None:
    """In the column of its second and in the row of its latency, however many blocks share a column."""
    found = heat_of(measured(latencies, seconds=2000))
    assert found is not None
    assert len(found["xs"]) <= COLUMNS
    assert sum(count for _, _, count in found["cells"]) == len(latencies)
    assert found["ys"] == sorted(set(found["ys"]))
    cells = {(x, y) for x, y, _ in found["cells"]}
    for second, latency in latencies:
        x = int(second // found["step"])
        assert any(
            (x, y) in cells and low <= latency < high for y, (low, high) in enumerate(zip(found["ys"], found["ys"][1:], strict=False))
        )


def test_rows_are_an_eighth_of_an_octave() -> None:
    """Close enough to see two groups apart, few enough to be drawn."""
    found = heat_of(measured([(0, MS), (9, 2 * MS)]))
    assert found is not None
    assert 8 <= len(found["ys"]) - 1 <= 10


def test_percentiles_of_blocks() -> None:
    """Each of its own copies; a block without any has none."""
    found = percentiles_of(measured([(0, MS)] * 99 + [(0, 50 * MS)] + [(2, 3 * MS)]))
    assert found is not None
    lines = {line["role"]: line["values"] for line in found["series"]}
    assert lines["p50"][1] is None
    assert abs(lines["p50"][0] - MS) < MS / 100
    assert abs(lines["p99.9"][0] - 50 * MS) < MS
    assert abs(lines["p50"][2] - 3 * MS) < MS / 30
    assert found["title"] == "Percentiles of end-to-end latency, each second"
    assert lines["max"] == [50 * MS, None, 3 * MS, *[None] * 7]


@given(st.lists(st.tuples(st.integers(0, 2999), st.integers(0, 10**11)), min_size=1, max_size=100))
def test_no_percentile_is_above_the_maximum(latencies: list[tuple[int, int]]) -> None:
    """Of a block's seconds, which is exact where percentiles are not."""
    found = percentiles_of(measured(latencies, seconds=3000))
    assert found is not None
    for line in found["series"]:
        for at, value in enumerate(line["values"]):
            assert value is None or value <= max(latency for second, latency in latencies if second // 3 == at)


def test_older_results_have_neither() -> None:
    """They do not hold what they are made of."""
    old = document()["measurements"]
    assert (heat_of(old), percentiles_of(old)) == (None, None)
    del old["overTime"]
    assert (heat_of(old), percentiles_of(old)) == (None, None)
