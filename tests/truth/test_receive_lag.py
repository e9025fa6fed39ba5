"""A slow broker and a consumer that does not read are told apart: by receive lag, and by arrivals that do not contain it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytest_loadtest.drivers.arrival_clock import stamps_work
from pytest_loadtest.metrics.histogram import Histogram
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.engine.progress import Progress

    from .conftest import Bench

pytestmark = pytest.mark.skipif(not stamps_work(), reason="this kernel does not stamp packets")

PROFILE = """
name: truth
messageSize: 128
producerRate: 500
testDuration: 4s
drainTimeout: 10s
maxSendDelay: 60s
driver: {name: loopback, delay: DELAY}
slo: {sent: 1%, throughput: 1%, endToEndLatency: {BOUND}}
generator: {sendDelayP99: 5s, receiveLagP99: 5s, stalled: 1, cpu: 5}
"""


def test_a_broker_that_is_slow_by_250_ms_is_missed_with_hardly_any_lag(
    bench: Bench, report: Callable[[str, object], None]
) -> None:
    profile = PROFILE.replace("DELAY", "250ms").replace("BOUND", "p50: 100ms")
    judged = bench.quiet(lambda: bench.run(profile), SECOND // 10, report)
    lag, latency = (judged.measurements.latencies[kind] for kind in ("receive_lag", "end_to_end"))
    assert isinstance(lag, Histogram) and isinstance(latency, Histogram)
    report("receive lag p50", lag.percentile(50))
    assert judged.outcome is Outcome.MISSED
    assert latency.percentile(50) >= 250 * MILLISECOND > 5 * lag.percentile(50)


def test_a_consumer_that_stops_for_half_a_second_has_lag_and_true_arrivals(
    bench: Bench, report: Callable[[str, object], None]
) -> None:
    """What was under way arrived a tenth of a second after it was sent, and was taken later. The stop is the generator's."""
    stopped = []

    def stop(progress: Progress) -> None:
        if not stopped and progress.elapsed > 2 * SECOND:
            stopped.append(time.monotonic_ns())
            time.sleep(0.5)

    profile = PROFILE.replace("DELAY", "100ms").replace("BOUND", "max: 300ms")
    judged = bench.run(profile, act=stop)
    rows = judged.samples("received")
    late = (rows["lag"] > 300_000) & (rows["intended"] < stopped[0])
    report("copies taken late", int(late.sum()))
    assert late.sum() > 10
    took = (rows["received"] - rows["intended"])[late]
    report("their latency, ms", (took / MILLISECOND).round().tolist())
    # By the clock of the client each would have at least 400 ms. Small packets that wait are merged by the kernel, with the last one's time.
    assert np.median(took) < 300 * MILLISECOND
    assert judged.outcome is Outcome.GENERATOR_LIMITED
