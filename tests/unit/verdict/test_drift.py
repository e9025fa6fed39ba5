"""Drift: the last tenth of a run compared with the first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from builders.measurements import MS, Limits, histogram, made
from builders.objectives import parse_slo

from pytest_loadtest.metrics.clocks import HostTime
from pytest_loadtest.metrics.time_slices import SlicedStats, of_parts
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.finding import Finding, Outcome
from pytest_loadtest.verdict.slo import evaluate

if TYPE_CHECKING:
    from pytest_loadtest.metrics.histogram import Histogram


def constant(us: int, n: int = 1000) -> Histogram:
    return histogram(np.full(n, us * MS // 1000))


def tenths(
    first: Histogram,
    last: Histogram,
    in_time: tuple[int, int] = (1000, 1000),
    own: Histogram | None = None,
    own_late: int = 0,
    without_own: int = 0,
) -> SlicedStats:
    """The first and the last second of ten."""
    latencies = {
        "end_to_end": of_parts([first, last]),
        "own_send_delay": of_parts([constant(1), own or constant(1)]),
    }
    many = np.array([first.n, last.n])
    return SlicedStats(
        start=np.array([0, 9]) * SECOND, end=np.array([1, 10]) * SECOND, begin=np.arange(2), after=np.arange(1, 3), offered=many,
        received=many, in_time=np.array(in_time), own_late=np.array([0, own_late]), in_time_without_own=np.array([0, without_own]), fan_out=1, latencies={kind: found for kind, found in latencies.items() if found},
    )  # fmt: skip


def judged(bounds: dict[str, object], found: SlicedStats | None) -> Finding:
    return evaluate(
        parse_slo({"drift": bounds}, implicit=()), made(tenths=found), Limits()
    ).findings[0]


@pytest.mark.parametrize(
    ("last", "bound", "outcome"),
    [
        (11_900, "20%", Outcome.MET),
        (12_200, "20%", Outcome.MISSED),
        (5_000, "20%", Outcome.MET),
        (5_000, {"min": "40%", "max": "20%"}, Outcome.MISSED),
        (29_000, "200%", Outcome.MET),
    ],
)
def test_a_latency_may_rise_by_its_bound(last: int, bound: object, outcome: Outcome) -> None:
    """From 10 ms; without a lower bound it may fall freely."""
    assert (
        judged({"endToEndLatency.p99": bound}, tenths(constant(10_000), constant(last))).outcome
        is outcome
    )


def test_the_text_has_both_values() -> None:
    """With the change, the times of the tenths, and the samples."""
    finding = judged({"endToEndLatency.p50": "20%"}, tenths(constant(10_000), constant(15_000)))
    assert finding.objective.name == "drift.endToEndLatency.p50"
    assert finding.observed == pytest.approx(0.5, abs=0.01)
    assert finding.text.startswith("drift.endToEndLatency.p50 10.0 ms, then 15.0 ms: +")
    assert finding.text.endswith(
        "> +20 % (0:00:00 to 0:00:01 and 0:00:09 to 0:00:10; 1 000 and 1 000 samples)"
    )


def test_throughput_may_fall_by_its_bound() -> None:
    found = tenths(constant(1), constant(1), in_time=(1000, 900))
    assert judged({"throughput": "11%"}, found).outcome is Outcome.MET
    missed = judged({"throughput": "9%"}, found)
    assert missed.outcome is Outcome.MISSED
    assert missed.text.startswith("drift.throughput 100 %, then 90 %: -10 % < -9 %")
    assert (
        judged({"throughput": "9%"}, tenths(constant(1), constant(1), in_time=(500, 1000))).outcome
        is Outcome.MET
    )


def test_too_few_samples_in_either_tenth_are_no_data() -> None:
    """The text names the tenth."""
    few = judged({"endToEndLatency.p99": "20%"}, tenths(constant(10_000), constant(10_000, 999)))
    assert few.outcome is Outcome.NO_DATA
    assert "the last tenth, 0:00:09 to 0:00:10: p99 needs 1 000 samples, there are 999" in few.text
    assert (
        judged(
            {"endToEndLatency.p99": "20%"}, tenths(constant(10_000, 10), constant(10_000))
        ).outcome
        is Outcome.NO_DATA
    )
    assert judged({"endToEndLatency.p99": "20%"}, None).outcome is Outcome.NO_DATA


def test_a_first_tenth_of_0_is_no_data() -> None:
    finding = judged({"throughput": "5%"}, tenths(constant(1), constant(1), in_time=(0, 1000)))
    assert finding.outcome is Outcome.NO_DATA
    assert "is 0: a change cannot be a share of it" in finding.text


@pytest.mark.parametrize(
    ("last", "error_us", "outcome"),
    [
        (11_000, 300, Outcome.MET),
        (11_000, 500, Outcome.NO_DATA),
        (13_000, 300, Outcome.MISSED),
        (13_000, 500, Outcome.NO_DATA),
        (13_000, 20_000, Outcome.NO_DATA),
    ],
)
def test_a_drift_that_the_error_of_the_clocks_leaves_open_is_no_data(
    last: int, error_us: int, outcome: Outcome
) -> None:
    """From 10 ms, and 20 % are allowed. Each tenth may be wrong by the error, in either direction."""
    clocks = (HostTime(host="h1", error=error_us * 1000, round_trip=MS, holds=True),)
    run = made(tenths=tenths(constant(10_000), constant(last)), clocks=clocks)
    finding = evaluate(
        parse_slo({"drift": {"endToEndLatency.p50": "20%"}}, implicit=()), run, Limits()
    ).findings[0]
    assert finding.outcome is outcome
    assert ("the error of the clocks between hosts" in finding.text) is (outcome is Outcome.NO_DATA)


@pytest.mark.parametrize(("holds", "outcome"), [(True, Outcome.MET), (False, Outcome.NO_DATA)])
def test_a_drift_of_throughput_needs_only_that_no_clock_was_set(
    holds: bool, outcome: Outcome
) -> None:
    clocks = (HostTime(host="h1", error=SECOND, round_trip=MS, holds=holds),)
    run = made(tenths=tenths(constant(1), constant(1), in_time=(1000, 950)), clocks=clocks)
    slo = parse_slo({"drift": {"throughput": "10%"}}, implicit=())
    assert evaluate(slo, run, Limits()).findings[0].outcome is outcome


def test_a_drift_caused_by_the_generator_is_generator_limited() -> None:
    """It paused in the last tenth."""
    finding = judged(
        {"endToEndLatency.p99": "20%"},
        tenths(constant(10_000), constant(500_000), own=constant(490_000)),
    )
    assert finding.outcome is Outcome.GENERATOR_LIMITED
    assert "own send delay" in str(finding.own)


@pytest.mark.parametrize(
    ("last", "bound"), [(400_000, "20%"), (10_000, {"min": "20%", "max": "20%"})]
)
def test_a_pause_of_the_generator_in_the_first_tenth_neither_hides_a_drift_nor_makes_one(
    last: int, bound: object
) -> None:
    """50 of 1 000 copies came after 500 ms, and would have come after 10 ms without it."""
    slow = histogram(np.repeat(np.array([10 * MS, 500 * MS]), [950, 50]))
    found = tenths(slow, constant(last))
    own = {
        "end_to_end_with_own": of_parts([constant(500_000, 50), None]),
        "end_to_end_without_own": of_parts([constant(10_000, 50), None]),
    }
    found = replace(found, latencies={**found.latencies, **own})
    run = made(tenths=found, pauses_known=True)
    slo = parse_slo({"drift": {"endToEndLatency.p99": bound}}, implicit=())
    finding = evaluate(slo, run, Limits()).findings[0]
    assert finding.outcome is Outcome.GENERATOR_LIMITED
    assert "without the generator's own part" in str(finding.own)


def test_a_pause_in_both_tenths_leaves_a_drift_within_its_bounds() -> None:
    """Each would be 10 ms without it."""
    own = {
        "end_to_end_with_own": of_parts([constant(50_000), constant(50_000)]),
        "end_to_end_without_own": of_parts([constant(10_000), constant(10_000)]),
    }
    found = tenths(constant(50_000), constant(50_000))
    found = replace(found, latencies={**found.latencies, **own})
    slo = parse_slo({"drift": {"endToEndLatency.p99": "20%"}}, implicit=())
    run = made(tenths=found, pauses_known=True)
    assert evaluate(slo, run, Limits()).findings[0].outcome is Outcome.MET


@pytest.mark.parametrize(
    ("with_own", "without", "outcome"),
    [
        ((10_000, 15_000), (5_000, 11_000), Outcome.MISSED),
        ((10_000, 15_000), (10_000, 11_000), Outcome.GENERATOR_LIMITED),
        ((10_000, 10_000), (0, 10_000), Outcome.GENERATOR_LIMITED),
        ((10_000, 10_000), (0, 0), Outcome.MET),
    ],
)
def test_a_drift_is_judged_with_and_without_the_generators_own_part(
    with_own: tuple[int, int], without: tuple[int, int], outcome: Outcome
) -> None:
    """It may rise by 20 %. Only if both agree is it the target's."""
    lengthened = [constant(us) for us in with_own]
    own = {
        "end_to_end_with_own": of_parts(lengthened),
        "end_to_end_without_own": of_parts([constant(us) for us in without]),
    }
    found = tenths(*lengthened)
    found = replace(found, latencies={**found.latencies, **own})
    slo = parse_slo({"drift": {"endToEndLatency.p99": "20%"}}, implicit=())
    run = made(tenths=found, pauses_known=True)
    assert evaluate(slo, run, Limits()).findings[0].outcome is outcome


def test_a_throughput_that_the_generator_reduced_in_the_first_tenth_hides_no_fall() -> None:
    found = tenths(constant(1), constant(1), (700, 700))
    found = replace(found, in_time_without_own=np.array([1000, 700]))
    slo = parse_slo({"drift": {"throughput": "20%"}}, implicit=())
    run = made(tenths=found, pauses_known=True)
    assert evaluate(slo, run, Limits()).findings[0].outcome is Outcome.GENERATOR_LIMITED


def test_a_fall_of_the_throughput_is_the_generators_if_it_read_the_copies_late() -> None:
    late = [
        judged({"throughput": "5%"}, tenths(constant(1), constant(1), (1000, 900), without_own=own))
        for own in (949, 950)
    ]
    assert [found.outcome for found in late] == [Outcome.MISSED, Outcome.GENERATOR_LIMITED]


def test_a_fall_of_the_throughput_is_the_generators_if_it_sent_the_messages_late() -> None:
    late = [
        judged({"throughput": "5%"}, tenths(constant(1), constant(1), (1000, 900), own_late=late))
        for late in (0, 49, 50)
    ]
    assert [found.outcome for found in late] == [
        Outcome.MISSED,
        Outcome.MISSED,
        Outcome.GENERATOR_LIMITED,
    ]
    assert "would hold with the 50 messages" in str(late[-1].own)
