"""Charts: reduced series, distributions, percentile curves."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from builders.documents import document
from builders.measurements import MS, histogram, lateness, made_bucket, spread
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.histogram import bucket_bounds
from pytest_loadtest.metrics.series import SERIES_BITS
from pytest_loadtest.report.hdr import (
    counts_distribution,
    decode_counts,
    encode_coarse_counts,
    latency_distribution,
    percentile_at,
    percentile_position,
)
from pytest_loadtest.report.html.charts import (
    GRID,
    POINTS,
    curve_chart,
    even_spans,
    latency_curves,
    latency_levels,
    objective_points,
    span_extremes,
)
from pytest_loadtest.report.measured import PERCENTILES, latency_section
from pytest_loadtest.report.verdict_section import WindowsSection
from pytest_loadtest.verdict.observations import Latencies, unfit

VALUES = st.lists(
    st.none() | st.integers(-(10**15), 10**15) | st.floats(allow_nan=False, allow_infinity=False),
    max_size=300,
)


@given(VALUES, st.integers(1, 50))
def test_reduced_series_keep_their_extremes(values: list[float | None], most: int) -> None:
    """No value is outside the range that was measured, in the whole series and in each part, and none is invented."""
    high, low = span_extremes(values, most)
    assert len(high) == len(low) <= most
    assert [
        max((v for v in values[first:last] if v is not None), default=None)
        for first, last in even_spans(len(values), most)
    ] == high
    assert [
        min((v for v in values[first:last] if v is not None), default=None)
        for first, last in even_spans(len(values), most)
    ] == low
    known = [value for value in values if value is not None]
    assert max((v for v in high if v is not None), default=None) == max(known, default=None)
    assert min((v for v in low if v is not None), default=None) == min(known, default=None)


@given(st.integers(0, 10**6), st.integers(1, 2000))
def test_parts_cover_every_entry_once(length: int, most: int) -> None:
    """They are in order, all but the last are equally long, and there are no more than allowed."""
    found = even_spans(length, most)
    assert len(found) <= most
    assert [place for first, last in found for place in (first, last)] == sorted(
        place for span in found for place in span
    )
    assert [first for first, _ in found] == [0, *(last for _, last in found)][: len(found)]
    assert (found[-1][1] if found else 0) == length
    assert len({last - first for first, last in found[:-1]}) <= 1


def test_a_short_series_is_not_reduced() -> None:
    values = [float(value) for value in range(POINTS)]
    assert span_extremes(values) == (values, values)


LATENCY_VALUES = st.lists(st.integers(0, 10**12), min_size=1, max_size=200)


@given(LATENCY_VALUES, st.integers(1, 200), st.integers(0, 50))
def test_percentiles_are_those_of_the_results(values: list[int], times: int, never: int) -> None:
    """The curve and the figures use one definition: rank over all due messages, and no percentile on too few samples."""
    counted = histogram(np.repeat(np.array(values, np.int64), times))
    written = latency_section(Latencies(counted, never))
    found = latency_distribution(written)
    assert found is not None
    assert written is not None
    assert found.samples == len(values) * times
    for p in PERCENTILES:
        assert found.proves(p) is (unfit(counted, p, never) is None)
        assert not found.proves(p) or found.percentile(p) == counted.percentile_of_due(p, never)


@given(st.dictionaries(st.integers(0, 5000), st.integers(1, 10**9), min_size=1, max_size=100))
def test_a_block_is_decoded_as_it_was_encoded(counts: dict[int, int]) -> None:
    """Every percentile lies within its buckets."""
    read = decode_counts(encode_coarse_counts(counts))
    assert read == counts
    assert list(read) == sorted(read)
    found = counts_distribution(read)
    assert found is not None
    assert found.samples == sum(counts.values())
    low, _ = bucket_bounds(min(counts), SERIES_BITS)
    last, width = bucket_bounds(max(counts), SERIES_BITS)
    assert (
        low <= found.percentile(0) <= found.percentile(50) <= found.percentile(100) < last + width
    )


def test_delayed_messages_that_came_early_rank_first() -> None:
    """Their lateness is below zero, which a log axis cannot show; the percentiles of the others are those of the results."""
    values = np.arange(-2000, 8000, dtype=np.int64) * MS // 10
    written = latency_section(Latencies(lateness(values), 2000))
    found = latency_distribution(written)
    assert found is not None
    assert written is not None
    assert (found.samples, found.before) == (10_000, 2000)
    assert found.percentile(10) == -math.inf
    assert found.percentile(50) == written.percentiles["p50"]
    assert found.percentile(90) == math.inf
    told = curve_chart("lateness", "run-1", {"lateness": found})
    assert told is not None
    assert "lateness p50 400 ms, p99 never" in told["summary"]


def test_a_latency_without_a_histogram_has_no_distribution() -> None:
    """The same applies to blocks without messages, and to clocks that disagree."""
    assert counts_distribution(decode_counts(None)) is None
    assert latency_distribution(None) is None
    written = latency_section(Latencies(spread(1, 2), 0))
    disagreeing = latency_section(Latencies(replace(spread(1, 2), negative=1), 0))
    assert written is not None
    assert latency_distribution(replace(written, histogram=None)) is None
    assert latency_distribution(disagreeing) is None


@pytest.mark.parametrize("p", [0, 50, 75, 90, 95, 99, 99.9, 99.99, 99.999])
def test_each_usual_percentile_has_a_point_on_the_curve(p: float) -> None:
    assert percentile_at(percentile_position(p)) == pytest.approx(p)
    assert any(math.isclose(x, percentile_position(p), rel_tol=1e-6) for x in GRID)


def test_a_curve_ends_where_its_samples_end() -> None:
    """p99.9 needs ten thousand samples; messages that never came have no latency."""
    found = curve_chart(
        "latency",
        "run-1",
        {
            "few": latency_distribution(latency_section(Latencies(spread(1, 20, 5000), 0))),
            "some never": latency_distribution(latency_section(Latencies(spread(1, 20), 5000))),
            "none": None,
        },
    )
    assert found is not None
    few, lossy = found["series"]
    at = {round(percentile_at(x), 3): n for n, x in enumerate(GRID)}
    assert [few["values"][at[p]] is None for p in (0, 99, 99.9)] == [False, False, True]
    assert [lossy["values"][at[p]] is None for p in (0, 90, 99)] == [False, False, True]
    assert "few p50 10.5 ms, p99 19.8 ms, max 20.0 ms" in found["summary"]
    assert "p99 never" in found["summary"]
    assert "p99.99 never, max never" in found["summary"]


def test_without_any_latency_there_is_no_curve() -> None:
    assert curve_chart("latency", "run-1", {"end-to-end": None}) is None


def test_objectives_are_marks_on_the_curve() -> None:
    """A bound on a percentile is a point, one on the maximum a level; both have their outcome."""
    slo = {
        "endToEndLatency": {
            "p50": "20ms",
            "p99.9": {"min": "1ms", "max": "15ms"},
            "max": "2s",
            "mean": "1s",
        },
        "publishLatency": {"p99": "1s"},
    }
    made = document(slo)
    assert made.measurements is not None
    found = latency_curves(
        made.measurements, made.verdict.findings, "run-1", ("endToEnd", "publish"), "latency"
    )
    assert found is not None
    assert [line["label"] for line in found["series"]] == ["end-to-end", "publish"]
    bounds = {
        one["label"]: (one["x"] and round(one["x"], 6), one["y"], one["outcome"])
        for one in found["bounds"]
    }
    assert bounds == {
        "endToEndLatency.p50 <= 20.0 ms": (2, 20 * MS, "met"), "endToEndLatency.p99.9 <= 15.0 ms": (1000, 15 * MS, "missed"),
        "endToEndLatency.p99.9 >= 1.00 ms": (1000, MS, "missed"), "endToEndLatency.max <= 2.00 s": (None, 2000 * MS, "met"),
        "publishLatency.p99 <= 1.00 s": (100, 1000 * MS, "met"),
    }  # fmt: skip


def test_objectives_of_size_buckets_are_marks_on_their_own_curves() -> None:
    made = document(
        {"buckets": {"0-256": {"endToEndLatency": {"p99": "1s"}}}}, buckets=(made_bucket("0-256"),)
    )
    assert objective_points(made.verdict.findings, {"endToEndLatency"}) == []
    (found,) = objective_points(made.verdict.findings, {"endToEndLatency"}, buckets=True)
    assert found["label"].startswith("buckets.0-256.endToEndLatency.p99")


def test_windows_and_drift_are_no_marks_on_the_curve_of_the_whole_run() -> None:
    """A bound in windows is a level over time; a bound on drift is a share, not a latency."""
    finding = document().verdict.findings[1]
    assert finding.name == "endToEndLatency.p99"
    windows = WindowsSection(
        width=10**9, violations=0, number=1, missed=1, generator_limited=0, no_data=0, listed=()
    )
    windowed = replace(finding, windows=windows)
    drift = replace(finding, name="drift.endToEndLatency.p99", unit="ratio", maximum=1.0)
    assert [
        one["y"] for one in objective_points([finding, windowed, drift], {"endToEndLatency"})
    ] == [15 * MS]
    assert [one["y"] for one in latency_levels([finding, windowed, drift])] == [15 * MS, 15 * MS]
