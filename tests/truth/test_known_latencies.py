"""Latencies on a simulated clock are known: the measurements must have them, exact to the bucket and to the message."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from engine_rig import Finished, drive

from pytest_loadtest.metrics.expected import Expected, Recorded
from pytest_loadtest.metrics.histogram import hdr_index
from pytest_loadtest.metrics.stats import measure
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.histogram import Histogram
    from pytest_loadtest.metrics.measurements import Measurements

RATE, SECONDS = 1000, 5
PERCENTILES = (1, 25, 50, 75, 90, 95, 99, 99.5, 99.9)


def latency(seq: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return log-normal latencies around 2 ms with a tail up to a second; a message always has the same."""
    spread = np.random.default_rng(5).lognormal(0, 1.3, RATE * SECONDS)
    return np.minimum(spread[seq] * 2 * MILLISECOND, SECOND).astype(np.int64)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Return the run that all tests share."""
    return drive(tmp_path_factory.mktemp("known"), rate=RATE, seconds=SECONDS, latency=latency)


def measured(run: Finished) -> Measurements:
    """Return the measurements of the rig's two streams on one topic with one subscription."""
    half = RATE * SECONDS // 2
    plan = Expected(
        start=int(run.sent["intended"].min()), duration=SECONDS * SECOND, rate=RATE, topics=1, subscriptions=1, ordered=True, publish_acks=True,
        buckets=("64",), stream_topics=np.zeros(2, np.int64), first=np.zeros(2, np.int64), end=np.full(2, half),
    )  # fmt: skip
    return measure(run.sent, run.received, plan, Recorded())


def same_buckets(histogram: Histogram | None, exact: NDArray[np.int64]) -> None:
    """Assert that every percentile of the histogram is in the HDR bucket of the exact nearest rank."""
    assert histogram is not None
    assert (histogram.n, histogram.minimum, histogram.maximum, histogram.total) == (
        len(exact),
        exact.min(),
        exact.max(),
        exact.sum(),
    )
    values = np.sort(exact)
    for p in PERCENTILES:
        nearest_rank = values[math.ceil(p / 100 * len(values) - 1e-9) - 1]
        assert hdr_index(np.array([histogram.percentile(p)])) == hdr_index(
            np.array([nearest_rank])
        ), p


def test_percentiles_throughput_and_counts_are_exact(run: Finished) -> None:
    """End-to-end and publish latency to their bucket; messages in time and messages received exactly."""
    sent, measurements = run.sent, measured(run)
    # what a message took: how long it waited for the loop's tick, which the clock makes known, and the target's latency
    exact = sent["sent"] - sent["intended"] + latency(sent["seq"])
    assert (exact >= latency(sent["seq"])).all()
    assert (sent["sent"] - sent["intended"] <= MILLISECOND).all()
    same_buckets(measurements.latencies["end_to_end"], exact)
    same_buckets(measurements.latencies["publish"], exact)
    counts, offered = measurements.counts, RATE * SECONDS
    assert (counts.offered, counts.sent, counts.acked, counts.received) == (offered,) * 4
    assert (
        counts.failed,
        counts.dropped,
        counts.unknown,
        counts.lost,
        counts.duplicates,
        counts.foreign,
        counts.corrupt,
    ) == (0,) * 7
    start = int(sent["intended"].min())
    # The last message has a whole interval until the end, of which the first one gets half.
    room = start + SECONDS * SECOND - int(sent["intended"].max())
    begin = start + measurements.latencies["end_to_end"].percentile(50) - room // 2
    came = sent["intended"] + exact
    in_time = int(((came >= begin) & (came < begin + SECONDS * SECOND)).sum())
    assert 0.99 * offered < in_time < offered
    assert counts.received_in_time == in_time
    assert measurements.throughput == in_time / SECONDS


def test_exactly_the_overtaken_messages_are_out_of_order(run: Finished) -> None:
    late = 0
    for stream in range(2):
        mine = run.sent["stream"] == stream
        order = np.argsort(run.sent["seq"][mine])
        came = (run.sent["sent"][mine] + latency(run.sent["seq"][mine]))[order]
        soonest_after = np.minimum.accumulate(came[::-1])[::-1]
        late += int((came[:-1] > soonest_after[1:]).sum())
    assert late > 400
    assert measured(run).counts.out_of_order == late
