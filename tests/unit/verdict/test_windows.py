"""Objectives in windows: how many may miss, windows without data, and misses caused by the generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from builders.measurements import MS, Limits, histogram, made
from builders.objectives import parse_slo
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.clocks import HostTime
from pytest_loadtest.metrics.time_slices import Histograms, SlicedStats, of_parts
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.slo import Outcome, evaluate

if TYPE_CHECKING:
    from pytest_loadtest.metrics.histogram import Histogram
    from pytest_loadtest.verdict.finding import Finding


P99 = {"window": "1s", "endToEndLatency": {"p99": "100ms"}}


def constant(ms: float, n: int = 1000) -> Histogram | None:
    """``n`` messages of this latency."""
    return histogram(np.full(n, int(ms * MS))) if n else None


def windows(parts: Sequence[Histogram | None], **changed: Any) -> SlicedStats:
    """A second each, in which all that was due came: of these end-to-end latencies."""
    many = np.array([0 if part is None else part.n for part in parts])
    start, at = np.arange(len(parts)) * SECOND, np.arange(len(parts))
    found = of_parts(parts)
    latencies: dict[str, Histograms] = {} if found is None else {"end_to_end": found}
    every: dict[str, Any] = {
        "start": start, "end": start + SECOND, "begin": at, "after": at + 1, "offered": many, "received": many, "in_time": many,
        "own_late": many * 0, "in_time_without_own": many * 0, "fan_out": 1, "latencies": latencies,
    }  # fmt: skip
    return SlicedStats(**{**every, **changed})


def judged(section: dict[str, object], found: SlicedStats | None) -> Finding:
    """The first finding of the section."""
    return evaluate(parse_slo(section, implicit=()), made(windows=found), Limits()).findings[0]


def test_an_objective_is_met_if_every_window_meets_it() -> None:
    """The text has the worst window."""
    finding = judged(P99, windows([constant(2), constant(40), constant(3)]))
    assert finding.outcome is Outcome.MET
    assert finding.text.startswith(
        "endToEndLatency.p99 <= 100 ms in each 1.00 s: held in all 3 windows; worst 40."
    )
    assert finding.text.endswith(" ms at 0:00:01")
    assert finding.samples == 3000


@pytest.mark.parametrize(
    ("slow", "violations", "outcome"),
    [
        (1, 0, Outcome.MISSED),
        (1, "1%", Outcome.MET),
        (2, "1%", Outcome.MISSED),
        (2, "2.5%", Outcome.MET),
    ],
)
def test_a_share_of_the_windows_may_miss(slow: int, violations: object, outcome: Outcome) -> None:
    """One of a hundred is one per cent, and that is allowed."""
    found = windows([constant(500 if at < slow else 2) for at in range(100)])
    finding = judged({**P99, "violations": violations}, found)
    assert finding.outcome is outcome
    assert f"missed in {slow} of 100 windows" in finding.text
    assert [window.outcome for window in finding.windows] == [Outcome.MISSED] * slow + [
        Outcome.MET
    ] * (100 - slow)


def test_the_whole_run_hides_what_windows_show() -> None:
    """A second of a hundred in which all take half a second: p99 of the whole holds, and that of the window does not."""
    section = {**P99, "whole": {"endToEndLatency": {"p99": "100ms"}}}
    in_windows, whole = evaluate(
        parse_slo(section, implicit=()), made(windows=windows([constant(2), constant(500), constant(2)])), Limits()
    ).findings  # fmt: skip
    assert (in_windows.outcome, whole.outcome) == (Outcome.MISSED, Outcome.MET)
    assert whole.objective.name == "whole.endToEndLatency.p99"


def test_a_window_with_too_few_samples_is_no_data_and_named() -> None:
    """Whatever the others are."""
    finding = judged(
        {**P99, "violations": "50%"}, windows([constant(2), constant(2, 999), constant(2), None])
    )
    assert finding.outcome is Outcome.NO_DATA
    assert finding.observed is None
    assert (
        "no data in 2 of 4 windows: at 0:00:01 (p99 needs 1 000 samples, there are 999), at 0:00:03 (no message was due)"
        in finding.text
    )


def test_more_missed_windows_than_allowed_are_a_miss_even_with_windows_without_data() -> None:
    assert judged(P99, windows([constant(500), constant(2, 10)])).outcome is Outcome.MISSED
    assert (
        judged({**P99, "violations": "50%"}, windows([constant(500), constant(2, 10)])).outcome
        is Outcome.NO_DATA
    )


def test_messages_that_never_came_are_later_than_any_bound() -> None:
    """Two in a hundred of a window; a window without any message is missed too."""
    found = windows(
        [constant(2, 1000), constant(2, 980), None],
        offered=np.full(3, 1000),
        received=np.array([1000, 980, 0]),
    )
    finding = judged(P99, found)
    assert [window.outcome for window in finding.windows] == [
        Outcome.MET,
        Outcome.MISSED,
        Outcome.MISSED,
    ]
    assert finding.observed == float("inf")
    assert "worst never at 0:00:01" in finding.text


def test_a_window_with_unknown_receive_lags_is_no_data() -> None:
    """More than half of the second one's."""
    found = windows([constant(1), constant(1)])
    lags = of_parts([constant(1), constant(1, 499)])
    assert lags is not None
    found = replace(found, latencies={**found.latencies, "receive_lag": lags})
    run = made(windows=found, receive_lag=constant(1, 1499))
    finding = evaluate(
        parse_slo({"window": "10s", "receiveLag": {"p50": "20ms"}}, implicit=()), run, Limits()
    ).findings[0]
    assert finding.outcome is Outcome.NO_DATA
    assert "501 of 1 000 have no time of the kernel" in finding.text


def test_a_window_broken_by_the_generator_is_neither_missed_nor_met() -> None:
    """Its own pause of half a second; if more windows than allowed are missed anyway, the objective is missed."""
    own = of_parts([constant(500), constant(1), constant(1)])
    both = of_parts([constant(500), constant(2), constant(2)])
    assert own is not None
    assert both is not None
    found = windows(
        [constant(500), constant(2), constant(2)],
        latencies={"end_to_end": both, "own_send_delay": own},
    )
    finding = judged(P99, found)
    assert finding.outcome is Outcome.GENERATOR_LIMITED
    assert finding.own is not None
    assert (
        "would hold without the 1 000 messages that had own send delay above 50.0 ms" in finding.own
    )
    assert judged({**P99, "violations": "34%"}, found).outcome is Outcome.MET
    worse = of_parts([constant(500), constant(2), constant(500)])
    assert worse is not None
    found = windows(
        [constant(500), constant(2), constant(500)],
        latencies={"end_to_end": worse, "own_send_delay": own},
    )
    assert judged(P99, found).outcome is Outcome.MISSED


def test_throughput_of_a_window_counts_its_messages_received_before_its_end() -> None:
    """As a share of those due, or per second; the last window may be longer."""
    lies = {"start": np.array([0, SECOND]), "end": np.array([SECOND, 5 * SECOND // 2])}
    found = windows([constant(2), constant(2)], in_time=np.array([900, 300]), **lies)
    share = judged({"window": "1s", "throughput": "50%"}, found)
    assert [window.observed for window in share.windows] == [0.9, 0.3]
    assert "worst 30 % at 0:00:01" in share.text
    rate = judged({"window": "1s", "throughput": "500/s"}, found)
    assert [window.observed for window in rate.windows] == [900, 200]


def test_a_clock_that_was_set_leaves_open_what_came_in_a_window() -> None:
    run = made(
        windows=windows([constant(2), constant(2)]),
        clocks=(HostTime(host="h2", error=0, round_trip=MS, holds=False),),
    )
    section = parse_slo({"window": "1s", "throughput": "50%"}, implicit=())
    (result,) = evaluate(section, run, Limits()).findings
    assert result.outcome is Outcome.NO_DATA
    assert "was set while load ran, so what was in time is unknown" in result.text


def test_a_run_without_windows_is_no_data() -> None:
    """It ended before the first one, or received nothing."""
    assert (
        judged(P99, None).text
        == "endToEndLatency.p99: the measured phase, 10.0 s, is shorter than a window of 1.00 s"
    )
    assert judged(P99, None).outcome is Outcome.NO_DATA
    finding = evaluate(
        parse_slo(P99, implicit=()), made(windows=windows([None]), end_to_end=None), Limits()
    ).findings[0]
    assert finding.text == "endToEndLatency.p99: nothing was received"


@given(
    slow=st.lists(st.sampled_from([2, 500, None]), min_size=1, max_size=30),
    violations=st.sampled_from([0.0, 0.05, 0.1, 0.3, 0.5]),
)
def test_the_outcome_follows_from_the_counts(slow: list[int | None], violations: float) -> None:
    """Missed for certain, unknown, or met."""
    section = {**P99, **({"violations": f"{violations:.0%}"} if violations else {})}
    finding = judged(section, windows([constant(ms or 2, 1000 if ms else 5) for ms in slow]))
    missed, unknown, allowed = slow.count(500), slow.count(None), int(violations * len(slow) + 1e-9)
    assert finding.outcome is (
        Outcome.MISSED if missed > allowed else Outcome.NO_DATA if unknown else Outcome.MET
    )
    assert sum(window.outcome is Outcome.MISSED for window in finding.windows) == missed


@pytest.mark.parametrize(
    ("loss", "outcome"),
    [({}, Outcome.MISSED), ({"loss": 0}, Outcome.MISSED), ({"loss": 1}, Outcome.MET)],
)
def test_the_largest_latency_of_a_window_with_missing_messages_is_infinite(
    loss: dict[str, int], outcome: Outcome
) -> None:
    """Unless the profile tolerates them."""
    section = {"window": "1s", "endToEndLatency": {"max": "100ms"}, **loss}
    found = windows([constant(2), constant(3)], offered=np.array([1000, 1001]))
    run = made(windows=found, counts={"lost": 1, "received": 99_999})
    finding = next(
        one
        for one in evaluate(parse_slo(section, implicit=()), run, Limits()).findings
        if one.objective.statistic == "max"
    )
    assert finding.outcome is outcome
    assert (finding.windows[1].observed == np.inf) is (outcome is Outcome.MISSED)


@pytest.mark.parametrize("bound", ["95%", "950/s"])
def test_a_window_whose_messages_the_generator_sent_after_its_end_is_not_the_targets_miss(
    bound: str,
) -> None:
    """The target may still have lost some of them."""
    parts = [constant(10)] * 3

    def outcome(own_late: int, received: int = 1000) -> Outcome:
        counts = {
            "in_time": np.array([1000, 900, 1000]),
            "received": np.array([1000, received, 1000]),
        }
        late = windows(
            parts, offered=np.full(3, 1000), own_late=np.array([0, own_late, 0]), **counts
        )
        return judged({"throughput": bound, "window": "1s"}, late).outcome

    assert [outcome(late) for late in (0, 49, 50, 100)] == [Outcome.MISSED] * 2 + [
        Outcome.GENERATOR_LIMITED
    ] * 2
    assert outcome(100, received=949) is Outcome.MISSED


@pytest.mark.parametrize("bound", ["95%", "950/s"])
def test_a_window_whose_copies_the_generator_read_after_its_end_is_not_the_targets_miss(
    bound: str,
) -> None:
    def outcome(without_own: int) -> Outcome:
        late = windows(
            [constant(10)] * 3,
            offered=np.full(3, 1000),
            in_time=np.array([1000, 900, 1000]),
            received=np.full(3, 1000),
            in_time_without_own=np.array([1000, without_own, 1000]),
        )
        return judged({"throughput": bound, "window": "1s"}, late).outcome

    assert [outcome(late) for late in (0, 949, 950)] == [
        Outcome.MISSED,
        Outcome.MISSED,
        Outcome.GENERATOR_LIMITED,
    ]
