"""Latencies and size buckets as a test gets them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders.loads import load
from builders.measurements import made_bucket, spread
from builders.objectives import parse_slo

from pytest_loadtest.errors import NoData
from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.metrics.clocks import HostTime
from pytest_loadtest.results.load import Load, ms
from pytest_loadtest.verdict.tolerance import tolerances

GOOD = {"endToEndLatency": {"p99": "25ms"}}


def test_latencies_are_durations() -> None:
    run = load()
    assert ms(19.7) < run.end_to_end.p99 < run.end_to_end.p999 < run.end_to_end.max == ms(20)
    assert run.end_to_end.min == ms(1)
    assert ms(6) < run.publish.p50 < run.publish.p90
    assert run.send_delay.mean < ms(1)
    assert (run.end_to_end.p99.label, run.end_to_end.p99.samples) == ("end-to-end p99", 100_000)
    assert run.end_to_end.percentile(99.99).label == "end-to-end p99.99"


def test_former_names_of_properties_have_the_same_values() -> None:
    run = load(counts={"lost": 2, "received": 99_998}, buckets=(made_bucket("0-256", lost=3),))
    assert run.end_to_end.p999 == run.end_to_end.p99_9
    assert (run.lost, run.loss) == (2, 2)
    assert run.bucket("0-256").lost == run.bucket("0-256").loss == 3


def test_missing_values_raise_no_data() -> None:
    """Absent latencies, too few samples, order that is not applicable, loss of nothing."""
    run = load(
        publish=None,
        end_to_end=spread(1, 20, 500),
        counts={"out_of_order": None, "acked": 0, "unknown": 100_000},
    )
    with pytest.raises(NoData, match="not applicable"):
        _ = run.publish.p50
    with pytest.raises(NoData, match="p99 needs 1 000 samples, there are 500"):
        _ = run.end_to_end.p99
    with pytest.raises(NoData, match="order is not applicable"):
        _ = run.out_of_order
    with pytest.raises(NoData, match="no delivery was due"):
        _ = run.lost
    with pytest.raises(NoData, match="nothing was received"):
        _ = load(counts={"received": 0}).throughput
    assert run.end_to_end.max == ms(20)


def test_a_receive_lag_that_is_unknown_is_no_largest_one() -> None:
    run = load(receive_lag=spread(1, 2, 99_500))
    assert run.receive_lag.p99 < ms(2)
    for statistic in ("max", "p999"):
        with pytest.raises(
            NoData, match="no receive lag latency: 500 of 100 000 have no time of the kernel"
        ):
            getattr(run.receive_lag, statistic)


def test_a_clock_that_was_set_leaves_no_latency_to_assert() -> None:
    """Not of a bucket either. Counts need no clock, and receive lag is read on one."""
    clocks = (HostTime(host="h2", error=0, round_trip=1, holds=False),)
    run = load(clocks=clocks, buckets=(made_bucket("0-256"),), receive_lag=spread(1, 2))
    for latency in (run.end_to_end, run.send_delay, run.bucket("0-256").end_to_end):
        with pytest.raises(NoData, match="latency: the clock of host h2 was set while load ran"):
            _ = latency.p99
    assert run.receive_lag.max == ms(2)
    assert run.lost == 0


@pytest.mark.parametrize("p", [0, 100, -1, 100.1])
def test_a_percentile_out_of_range_is_a_value_error(p: float) -> None:
    with pytest.raises(ValueError, match="out of range"):
        load().end_to_end.percentile(p)


def test_a_bucket_has_its_own_numbers() -> None:
    """Labels name the bucket; missing values raise."""
    slow = made_bucket(
        "1048576-5242880",
        end_to_end=spread(1, 200, 500),
        publish=None,
        lost=3,
        received=50_000,
        received_in_time=49_997,
        sent=50_001,
    )
    bucket = load(GOOD, buckets=(made_bucket("0-256"), slow)).bucket("1048576-5242880")
    assert (bucket.end_to_end.max, bucket.lost, bucket.sent, bucket.throughput) == (
        ms(200),
        3,
        50_001,
        4999.7,
    )
    assert bucket.end_to_end.max.label == "1048576-5242880 end-to-end max"
    assert repr(bucket) == "<size bucket 1048576-5242880: 50 001 messages sent>"
    with pytest.raises(NoData, match="p99 needs 1 000 samples, there are 500"):
        _ = bucket.end_to_end.p99
    with pytest.raises(NoData, match="not applicable"):
        _ = bucket.publish.max
    with pytest.raises(NoData, match="no buckets.0-256.loss: no message of this size was due"):
        _ = load(GOOD, buckets=(made_bucket("0-256", offered=0),)).bucket("0-256").lost


def test_the_fixture_has_a_property_for_each_latency_that_an_objective_bounds() -> None:
    """They are written out, so that editors complete them."""
    wanted = {attribute for attribute, metric in LATENCIES.items() if metric.name}
    assert {name for name in wanted if not isinstance(getattr(Load, name, None), property)} == set()


def test_the_largest_latency_is_never_if_messages_never_came() -> None:
    """The profile's own bounds may allow it; minimum and mean ignore such messages."""
    measured = {"counts": {"lost": 2, "received": 99_998}, "end_to_end": spread(1, 20, 99_998)}
    untold = load(GOOD, **measured)
    assert not untold.end_to_end.max < ms(1_000_000)
    assert (untold.end_to_end.min, untold.publish.max) == (ms(1), ms(12))
    told = replace(untold, tolerances=tolerances(parse_slo({"loss": 2})))
    assert told.end_to_end.max == ms(20)
    assert replace(untold, tolerances=tolerances(parse_slo({"loss": 1}))).end_to_end.max > ms(20)


def test_a_size_of_which_nothing_came_is_later_than_any_bound() -> None:
    """As in an objective: messages of other sizes came, so this is no lack of data."""
    lost = made_bucket("1MB", end_to_end=None, received=0, lost=50_000)
    run = load(GOOD, buckets=(made_bucket("0-256"), lost))
    latency = run.bucket("1MB").end_to_end
    assert not latency.p99 < ms(1_000_000)
    assert not latency.max < ms(1_000_000)
    tolerated = replace(run, tolerances=tolerances(parse_slo({"loss": "100%"})))
    tolerant = tolerated.bucket("1MB").end_to_end
    for asked, statistic in ((latency, "min"), (latency, "mean"), (tolerant, "max")):
        with pytest.raises(NoData, match="no 1MB end-to-end latency: nothing was received"):
            getattr(asked, statistic)
    few = made_bucket("1MB", end_to_end=None, offered=500, received=0)
    with pytest.raises(NoData, match="p99 needs 1 000 samples, there are 0, 500 never came"):
        _ = load(GOOD, buckets=(few,)).bucket("1MB").end_to_end.p99


def test_a_broadcast_that_never_reached_all_is_later_than_any_bound() -> None:
    """Completion of a run without broadcasts is unknown."""
    assert not load(broadcasts=True).completion.p99 < ms(1_000_000)
    for run in (load(), load(broadcasts=True, counts={"received": 0})):
        with pytest.raises(NoData, match="no broadcast completion latency"):
            _ = run.completion.p99
