"""objectives × measurements → verdict."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from builders.measurements import MS, Limits, lateness, made, made_bucket, spread
from builders.objectives import parse_slo
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.clocks import HostTime, WithinHosts
from pytest_loadtest.metrics.expected import WorkerEvidence
from pytest_loadtest.metrics.full_windows import BlockedTopic, FullWindows
from pytest_loadtest.metrics.histogram import histogram
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict import slo
from pytest_loadtest.verdict.finding import Window
from pytest_loadtest.verdict.objectives import EXACTLY_ONCE, IMPLICIT, NO_FOREIGN
from pytest_loadtest.verdict.observations import samples_needed
from pytest_loadtest.verdict.slo import (
    REMEDY,
    WINDOW_REMEDY,
    Finding,
    Outcome,
    Verdict,
    evaluate,
    overall,
    worst,
)

if TYPE_CHECKING:
    from pytest_loadtest.metrics.measurements import Measurements


def full_windows(dropped: int, *, waited: int = 1, topics: int = 1) -> FullWindows:
    """Return messages that were dropped before full windows; the first topic is number 3, the others begin to wait later."""
    first = tuple(
        BlockedTopic(topic=3 + i, dropped=dropped, start=(2_000 + 1_000 * i) * MS, end=10_000 * MS)
        for i in range(min(topics, 7))
    )
    return FullWindows(dropped=dropped, waited=waited, topics=topics, first_topics=first)


FULL_WINDOW = {
    "sent": 60_000,
    "sent_in_time": 50_000,
    "dropped": 40_000,
    "acked": 60_000,
    "received": 60_000,
    "received_in_time": 50_000,
}


def verdict(section: dict[str, Any], run: Measurements) -> Verdict:
    return evaluate(parse_slo(section), run, Limits())


def finding(section: dict[str, Any], run: Measurements) -> Finding:
    return verdict(section, run).findings[0]


def worker(cpu: float = 0.5, stalled: int = 0, name: str = "gw0") -> WorkerEvidence:
    return WorkerEvidence(worker=name, cpu=cpu, stalled=stalled, longest_stall=stalled, gc=0)


def test_a_good_run_meets_everything() -> None:
    """Every explicit and implicit objective is met, on all samples."""
    result = verdict(
        {"throughput": "100%", "endToEndLatency": {"p99": "25ms", "max": "20ms"}, "outOfOrder": 0},
        made(),
    )
    assert result.outcome is Outcome.MET
    assert result.reasons == ()
    assert {f.outcome for f in result.findings} == {Outcome.MET}
    assert {f.samples for f in result.findings if f.objective.metric != "silent"} == {100_000}


def test_a_miss_has_value_bound_distance_and_samples_in_one_line() -> None:
    assert (
        finding({"endToEndLatency": {"max": "15ms"}}, made()).text
        == "endToEndLatency.max 20.0 ms > 15.0 ms: over by 33 % (100 000 samples)"
    )
    run = made(counts={"lost": 1020, "received": 98_980, "received_in_time": 50_300})
    assert (
        finding({"loss": 0}, run).text
        == "loss 1 020 > 0: 1 020 too many (1 020 of 100 000 deliveries)"
    )
    assert (
        finding({"loss": "0.01%"}, run).text
        == "loss 1.02 % > 0.01 %: 102 times the bound (1 020 of 100 000 deliveries)"
    )
    assert (
        finding({"throughput": "99%"}, run).text
        == "throughput 50.3 % < 99 %: short by 49 % (5 030 msg/s of 10.0 k msg/s offered)"
    )
    assert finding({"throughput": "9000/s"}, run).text.startswith(
        "throughput 5 030 msg/s < 9 000 msg/s: short by 44 %"
    )


def test_bounds_are_inclusive_and_both_are_judged() -> None:
    """A value on its bound holds; outside of either it does not."""
    assert finding({"endToEndLatency": {"max": "20ms"}}, made()).outcome is Outcome.MET
    assert finding({"endToEndLatency": {"max": {"min": "20ms"}}}, made()).outcome is Outcome.MET
    assert (
        finding({"endToEndLatency": {"max": {"min": "21ms", "max": "22ms"}}}, made()).outcome
        is Outcome.MISSED
    )


def test_half_the_rate_is_missed_by_the_implicit_objectives() -> None:
    """Even if the profile bounds only a latency."""
    result = verdict({"endToEndLatency": {"p99": "1s"}}, made(counts={"sent_in_time": 50_000}))
    assert result.outcome is Outcome.MISSED
    assert [f.objective.name for f in result.having(Outcome.MISSED)] == ["sent"]


def test_failed_and_unanswered_messages_have_an_implicit_bound() -> None:
    """Neither loss nor a median shows them."""
    run = made(counts={"acked": 90_000, "failed": 4_000, "unknown": 6_000, "received": 90_000})
    (missed,) = verdict({"endToEndLatency": {"p50": "1s"}}, run).having(Outcome.MISSED)
    assert (
        missed.text
        == "failed 10 % > 1 %: 10 times the bound (10 000 of 100 000 offered, 6 000 of them unanswered)"
    )


@pytest.mark.parametrize(
    ("statistic", "n", "enough"),
    [
        ("p50", 20, True),
        ("p50", 19, False),
        ("p99", 1_000, True),
        ("p99", 999, False),
        ("p99.9", 500, False),
        ("p99.9", 10_000, True),
    ],
)
def test_a_percentile_needs_ten_samples_beyond_it(statistic: str, n: int, enough: bool) -> None:
    """Fewer are no data, not a number."""
    found = finding({"endToEndLatency": {statistic: "1s"}}, made(end_to_end=spread(1, 20, n)))
    assert found.outcome is (Outcome.MET if enough else Outcome.NO_DATA)
    assert (found.observed is not None) is enough


@given(st.integers(1, 99_999))
def test_samples_needed_is_the_smallest_number_with_ten_beyond(thousandths: int) -> None:
    """In exact arithmetic, for every percentile of three decimals."""
    needed = samples_needed(thousandths / 1000)
    assert needed * (100_000 - thousandths) >= 1_000_000 > (needed - 1) * (100_000 - thousandths)


@pytest.mark.parametrize(
    ("counts", "cause"),
    [
        ({"received": 0, "received_in_time": 0, "lost": 100_000}, "nothing was received"),
        ({"offered": 0, "sent": 0, "acked": 0, "received": 0}, "nothing was offered"),
        ({"sent": 0, "acked": 0, "received": 0, "dropped": 100_000}, "nothing was sent"),
        ({"acked": 0, "unknown": 100_000}, "nothing was acknowledged"),
    ],
)
def test_nothing_measured_is_no_data_and_never_zero_loss(
    counts: dict[str, int], cause: str
) -> None:
    """Loss and everything like it has no value then."""
    result = verdict({"loss": 0}, made(counts=counts))
    assert result.outcome is Outcome.NO_DATA
    assert cause in result.reasons[0]
    assert (result.findings[0].observed, result.findings[0].samples) == (None, 0)


def test_an_objective_that_is_not_applicable_is_no_data() -> None:
    """Order on shared subscriptions, publish latency without acknowledgements."""
    assert (
        finding({"outOfOrder": 0}, made(counts={"out_of_order": None})).outcome is Outcome.NO_DATA
    )
    assert finding({"publishLatency": {"p99": "1s"}}, made(publish=None)).outcome is Outcome.NO_DATA


def test_latencies_below_zero_are_no_data() -> None:
    """The clocks disagree, so that no statistic of them is true."""
    run = made(end_to_end=replace(spread(1, 20), negative=3))
    assert "clocks" in finding({"endToEndLatency": {"p50": "1s"}}, run).text


@pytest.mark.parametrize("missing", [{"own_send_delay": None}, {"workers": ()}])
def test_without_evidence_about_the_generator_nothing_is_met(missing: dict[str, Any]) -> None:
    """A generator that was not watched cannot be cleared."""
    assert verdict({}, made(**missing)).outcome is Outcome.NO_DATA


@pytest.mark.parametrize(
    ("changed", "evidence"),
    [
        (
            {"own_send_delay": spread(0, 312)},
            "own send delay p99 309 ms > 100 ms (generator.sendDelayP99)",
        ),
        (
            {"workers": (worker(cpu=0.5), worker(cpu=1.02, name="gw1"))},
            "worker gw1 used 1.02 cores > 0.95 (generator.cpu)",
        ),
        (
            {"workers": (worker(1.0), worker(1.2, name="gw1"))},
            "worker gw1 used 1.20 cores > 0.95 (generator.cpu), and so did 1 more",
        ),
        (
            {"workers": (worker(stalled=2_000 * MS),)},
            "worker gw0 woke up late for 20 % of the run > 10 % (generator.stalled), once by 2.00 s",
        ),
    ],
)
def test_a_slow_generator_is_named_with_evidence_and_remedy(
    changed: dict[str, Any], evidence: str
) -> None:
    """Even if every objective was met."""
    result = verdict({}, made(**changed))
    assert (result.outcome, result.reasons) == (Outcome.GENERATOR_LIMITED, (evidence, REMEDY))


@pytest.mark.parametrize(
    ("blocked", "changed", "remedy"),
    [
        (0.9, {}, WINDOW_REMEDY),
        (0.4, {}, REMEDY),
        (0.9, {"workers": (worker(stalled=2_000 * MS),)}, REMEDY),
    ],
)
def test_more_workers_are_no_remedy_for_messages_that_waited_for_each_other(
    blocked: float, changed: dict[str, Any], remedy: str
) -> None:
    """Only where late sends are the only evidence, and most of the delay was before full windows."""
    delay = spread(1, 10_000)
    run = made(
        send_delay=delay,
        own_send_delay=spread(0, 312),
        blocked=int(delay.total * blocked),
        **changed,
    )
    result = verdict({}, run)
    assert (result.outcome, result.reasons[-1]) == (Outcome.GENERATOR_LIMITED, remedy)


def test_the_parts_of_a_run_have_one_remedy() -> None:
    """That of windows only if no part needs the other one."""
    waited = Verdict(
        outcome=Outcome.GENERATOR_LIMITED, findings=(), reasons=("late", WINDOW_REMEDY)
    )
    slow = Verdict(outcome=Outcome.GENERATOR_LIMITED, findings=(), reasons=("stalled", REMEDY))
    both = overall([("", waited), ("stage a: ", slow)])
    assert both.reasons == ("late", "stage a: stalled", REMEDY)
    alone = overall([("", waited), ("stage a: ", waited)])
    assert alone.reasons == ("late", "stage a: late", WINDOW_REMEDY)


def test_consumers_that_lag_are_evidence_if_deliveries_were_late() -> None:
    """A target waits for a consumer that does not take what it has; if nothing was late it did not have to."""
    late = {"end_to_end": spread(1, 900), "receive_lag": spread(0, 200)}
    missed = verdict({"endToEndLatency": {"p99": "500ms"}}, made(**late))
    assert (missed.outcome, missed.reasons) == (
        Outcome.GENERATOR_LIMITED, ("receive lag p99 198 ms > 100 ms (generator.receiveLagP99)", REMEDY)
    )  # fmt: skip
    assert verdict({"endToEndLatency": {"p99": "2s"}}, made(**late)).outcome is Outcome.MET
    assert (
        verdict(
            {"endToEndLatency": {"p99": "500ms"}}, made(**late | {"receive_lag": spread(0, 90)})
        ).outcome
        is Outcome.MISSED
    )
    assert verdict({"publishLatency": {"p99": "1ms"}}, made(**late)).outcome is Outcome.MISSED


def test_a_lag_does_not_explain_messages_that_never_came() -> None:
    """A service that died in mid-run is missed on a busy machine too."""
    lost = made(
        counts={"lost": 60_000, "received": 40_000, "received_in_time": 40_000},
        end_to_end=spread(1, 900, 40_000),
        receive_lag=spread(0, 200, 40_000),
    )
    never = verdict({"endToEndLatency": {"p99": "1s"}}, lost)
    assert never.outcome is Outcome.MISSED
    late = verdict({"endToEndLatency": {"p99": "1s", "p25": "100ms"}}, lost)
    assert late.outcome is Outcome.GENERATOR_LIMITED, "what came was late, and lag may be why"


def test_a_window_of_which_too_much_never_came_hides_no_late_one() -> None:
    """The worst window is the one with messages that never came; lag may be why the other is late."""
    late = Window(start=0, end=SECOND, observed=200 * MS, samples=100, outcome=Outcome.MISSED)
    lost = late._replace(start=SECOND, end=2 * SECOND, observed=math.inf)
    found = finding({"endToEndLatency": {"p99": "100ms"}}, made())
    found = replace(found, outcome=Outcome.MISSED, observed=math.inf)
    run = made(receive_lag=spread(0, 200))
    for windows, evidence in (((late, lost), 1), ((lost,), 0)):
        lagging = slo._lagging([replace(found, windows=windows)], run, Limits())
        assert len(lagging) == evidence


def test_the_worst_of_several_workers_is_named() -> None:
    """By each kind of delay; a worker without values is not among them."""
    delays = {
        "own_send_delay": (spread(0, 10), spread(0, 500)),
        "receive_lag": (spread(0, 700), spread(0, 10)),
    }
    workers = [
        replace(worker(name=f"gw{i}"), latencies={kind: parts[i] for kind, parts in delays.items() if i < 2}) for i in range(3)
    ]  # fmt: skip
    run = made(
        workers=tuple(workers),
        end_to_end=spread(1, 900),
        own_send_delay=spread(0, 312),
        receive_lag=spread(0, 200),
    )
    assert verdict({"endToEndLatency": {"p50": "1ms"}}, run).reasons == (
        "own send delay p99 309 ms > 100 ms (generator.sendDelayP99), most on worker gw1: 495 ms",
        "receive lag p99 198 ms > 100 ms (generator.receiveLagP99), most on worker gw0: 693 ms", REMEDY,
    )  # fmt: skip


def test_a_stall_beyond_the_phase_takes_no_more_than_all_of_it() -> None:
    """The loop is watched until the drain ends; a limit of 1 is never passed."""
    run = made(workers=(worker(stalled=20_000 * MS),))
    assert (
        verdict({}, run)
        .reasons[0]
        .startswith("worker gw0 woke up late for 100 % of the run > 10 % (generator.stalled)")
    )
    assert evaluate((), run, Limits(stalled=1)).outcome is Outcome.MET


def test_messages_dropped_behind_a_full_window_are_a_miss() -> None:
    """With the reason."""
    delay = spread(1, 10_000)
    full = full_windows(40_000, waited=delay.total)
    run = made(
        counts=FULL_WINDOW,
        send_delay=delay,
        own_send_delay=spread(0, 3),
        blocked=int(delay.total * 0.94) + delay.total,
        full_windows=full,
    )
    result = verdict({"throughput": "99%"}, run)
    assert result.outcome is Outcome.MISSED
    assert (
        "97 % of the send delay was spent before the target's full window"
        in result.findings[0].text
    )
    assert result.reasons == (
        "40 000 messages were dropped because the target's in-flight windows were full: topic 3 from 2.00 s to 10.0 s of the phase",
    )


def test_a_miss_names_a_bounded_number_of_topics_that_stood_before_full_windows() -> None:
    full = full_windows(40_000, topics=20)
    result = verdict({}, made(counts=FULL_WINDOW, full_windows=full))
    named = "topic 3 from 2.00 s to 10.0 s, topic 4 from 3.00 s to 10.0 s, topic 5 from 4.00 s to 10.0 s, and 17 more of the phase"
    assert result.outcome is Outcome.MISSED
    assert result.reasons[0].endswith(named)


def test_a_single_drop_of_the_generators_own_among_those_before_full_windows_limits_the_run() -> (
    None
):
    """Both numbers are exact."""
    result = verdict({}, made(counts=FULL_WINDOW, full_windows=full_windows(39_999)))
    assert result.outcome is Outcome.GENERATOR_LIMITED
    assert result.reasons[0].startswith(
        "1 messages were dropped, late by the generator's own delay; 39 999 messages were dropped because the target's in-flight windows"
    )


def test_messages_dropped_without_a_full_window_are_caused_by_the_generator() -> None:
    """Even if its p99 is good, because the stall was short."""
    run = made(counts={"dropped": 10, "offered": 100_010}, blocked=0)
    assert verdict({}, run).outcome is Outcome.GENERATOR_LIMITED


@pytest.mark.parametrize("section", [{}, {"throughput": "95%"}, {"throughput": "9500/s"}])
def test_what_the_generator_itself_sent_after_the_phase_is_not_the_targets_miss(
    section: dict[str, Any],
) -> None:
    """Even if the profile's limits on the generator are wider than its delay."""
    counts, limits = (
        {"sent_in_time": 90_000, "received_in_time": 90_000},
        Limits(send_delay_p99=10**12),
    )

    def judged(own_late: int, **more: int) -> Verdict:
        return evaluate(parse_slo(section), made(counts=counts | more, own_late=own_late), limits)

    result = judged(10_000)
    assert result.outcome is Outcome.GENERATOR_LIMITED
    assert "would hold with the 10 000 messages that the generator" in result.reasons[0]
    assert result.reasons[-1] == REMEDY
    assert judged(4_999).outcome is Outcome.MISSED, (
        "the target would have missed both bounds all the same"
    )
    assert judged(0).outcome is Outcome.MISSED
    # What was never delivered would not have been in time either.
    lost = judged(10_000, lost=9_000, received=91_000)
    assert {one.objective.metric for one in lost.having(Outcome.MISSED)} == {"throughput", "loss"}


@pytest.mark.parametrize("bound", ["95%", "9500/s"])
def test_a_throughput_that_would_hold_without_own_parts_of_copies_is_not_the_targets_miss(
    bound: str,
) -> None:
    """The count of what would be in time decides, and nothing else."""

    def judged(in_time: int, **more: Any) -> Verdict:
        run = made(counts={"received_in_time": 90_000}, in_time_without_own=in_time, **more)
        return verdict({"throughput": bound}, run)

    outcomes = [judged(in_time).outcome for in_time in (0, 90_000, 94_999, 95_000)]
    assert outcomes == [Outcome.MISSED] * 3 + [Outcome.GENERATOR_LIMITED]
    reason = judged(96_000).reasons[0]
    would_be = "96 %" if "%" in bound else "9 600 msg/s"
    assert reason == f"throughput would be {would_be} without the generator's own part of each copy"
    # Each delivery of every subscription is due.
    assert judged(189_999, subscriptions=2).outcome is Outcome.MISSED


def test_the_throughput_of_a_bucket_is_excused_by_its_own_copies() -> None:
    def judged(in_time: int) -> Outcome:
        bucket = made_bucket("64", received_in_time=40_000, in_time_without_own=in_time)
        run = made(buckets=(bucket, made_bucket("1kB", in_time_without_own=50_000)))
        return verdict({"buckets": {"64": {"throughput": "95%"}}}, run).outcome

    assert [judged(47_499), judged(47_500)] == [Outcome.MISSED, Outcome.GENERATOR_LIMITED]


def test_receive_lag_beyond_its_limit_does_not_excuse_a_throughput() -> None:
    """It may be missed by messages that never came."""
    run = made(counts={"received_in_time": 90_000}, receive_lag=spread(150, 200))
    assert verdict({"throughput": "95%"}, run).outcome is Outcome.MISSED


@given(data=st.booleans(), generator=st.booleans(), objective=st.booleans())
def test_the_worst_outcome_wins(data: bool, generator: bool, objective: bool) -> None:
    """In the order of the design: no data, generator-limited, missed, met."""
    run = made(
        counts={} if objective else {"lost": 5},
        workers=(worker(cpu=0.5 if generator else 1.5),),
        publish=spread(1, 2) if data else None,
    )
    expected = (
        Outcome.NO_DATA
        if not data
        else Outcome.GENERATOR_LIMITED
        if not generator
        else Outcome.MET
        if objective
        else Outcome.MISSED
    )
    assert verdict({"publishLatency": {"p50": "1s"}, "loss": 0}, run).outcome is expected


@given(st.integers(0, 200), st.integers(0, 200))
def test_a_count_is_met_exactly_up_to_its_bound(lost: int, bound: int) -> None:
    """As a number and as a share alike."""
    run = made(counts={"lost": lost, "received": 100_000 - lost})
    expected = Outcome.MET if lost <= bound else Outcome.MISSED
    assert finding({"loss": bound}, run).outcome is expected
    assert finding({"loss": f"{bound / 1000:.3f}%"}, run).outcome is expected


def test_deliveries_count_over_all_subscriptions() -> None:
    """A share of the deliveries that were due: acked × subscriptions."""
    run = made(
        subscriptions=4, counts={"received": 399_000, "received_in_time": 399_000, "lost": 1_000}
    )
    assert finding({"loss": "1%"}, run).observed == 0.0025
    assert finding({"throughput": "99%"}, run).observed == 0.9975


def test_a_verdict_survives_pickling() -> None:
    """It crosses from the controller to the lead."""
    result = verdict({"loss": 0}, made())
    assert pickle.loads(pickle.dumps(result)) == result


SMALL, LARGE = "0-256", "1048576-5242880"


def bucket_finding(metrics: dict[str, Any], **changed: Any) -> Finding:
    run = made(
        subscriptions=changed.pop("subscriptions", 1),
        buckets=(made_bucket(SMALL), made_bucket(LARGE, **changed)),
    )
    return finding({"buckets": {LARGE: metrics}}, run)


def test_a_bucket_is_judged_on_its_own_messages() -> None:
    """By its own histograms and counts; what happened to other sizes does not matter."""
    slow = {
        "end_to_end": spread(1, 200, 50_000),
        "publish": spread(1, 300, 50_000),
        "lost": 500,
        "received": 49_500,
        "received_in_time": 49_500,
    }
    assert bucket_finding({"endToEndLatency": {"max": "150ms"}}, **slow).text == (
        f"buckets.{LARGE}.endToEndLatency.max never > 150 ms: too many never came (50 000 samples, 500 never came)"
    )
    assert bucket_finding({"publishLatency": {"max": "150ms"}}, **slow).observed == 300 * MS
    assert (
        bucket_finding({"loss": 0}, **slow).text
        == f"buckets.{LARGE}.loss 500 > 0: 500 too many (500 of 50 000 deliveries)"
    )
    assert bucket_finding({"throughput": "99.5%"}, **slow).text == (
        f"buckets.{LARGE}.throughput 99 % < 99.5 %: short by 0.5 % (4 950 msg/s of 5 000 msg/s offered)"
    )
    assert bucket_finding({"throughput": "4950/s"}, **slow).outcome is Outcome.MET
    assert (
        verdict(
            {"buckets": {SMALL: {"loss": 0}}},
            made(buckets=(made_bucket(SMALL), made_bucket(LARGE, **slow))),
        ).outcome
        is Outcome.MET
    )


def test_deliveries_of_a_bucket_count_over_all_subscriptions() -> None:
    """Each subscription is due each message."""
    changed: dict[str, Any] = {
        "subscriptions": 2,
        "received": 99_500,
        "received_in_time": 99_000,
        "lost": 1_000,
    }
    assert bucket_finding({"loss": "1%"}, **changed).observed == 0.01
    assert bucket_finding({"throughput": "99%"}, **changed).observed == 0.99


@pytest.mark.parametrize(
    ("metrics", "changed", "cause"),
    [
        (
            {"endToEndLatency": {"p99": "1s"}},
            {"end_to_end": spread(1, 2, 500)},
            "p99 needs 1 000 samples, there are 500",
        ),
        ({"endToEndLatency": {"p99": "1s"}}, {"end_to_end": None}, "nothing was received"),
        ({"loss": 0}, {"offered": 0}, "no message of this size was due"),
        ({"loss": 0}, {"acked": 0}, "no delivery was due"),
        ({"throughput": "9%"}, {"received": 0}, "nothing was received"),
    ],
)
def test_a_bucket_in_which_nothing_was_measured_is_no_data(
    metrics: dict[str, Any], changed: dict[str, Any], cause: str
) -> None:
    """Never a pass, never a zero."""
    found = bucket_finding(metrics, **changed)
    assert (found.outcome, found.observed) == (Outcome.NO_DATA, None)
    assert cause in found.text


def test_a_bucket_that_the_run_does_not_have_is_no_data() -> None:
    """The profile's check names it first; should one get through, it is no pass."""
    assert verdict({"buckets": {"1-2": {"loss": 0}}}, made()).outcome is Outcome.NO_DATA


PRODUCER_ONLY: dict[str, Any] = {
    "subscriptions": 0,
    "end_to_end": None,
    "counts": {"received": 0, "received_in_time": 0, "out_of_order": None},
}
CONSUMER_ONLY: dict[str, Any] = {
    "rate": 0.0, "publish": None, "end_to_end": None, "send_delay": None, "own_send_delay": None,
    "counts": {"offered": 0, "sent": 0, "sent_in_time": 0, "acked": 0},
}  # fmt: skip


def test_without_a_subscription_nothing_has_to_be_received() -> None:
    """Loss, corruption and throughput have no implicit bound there; what producers do still has."""
    result = verdict({"publishLatency": {"p99": "1s"}}, made(**PRODUCER_ONLY))
    assert result.outcome is Outcome.MET
    assert [f.objective.name for f in result.findings] == [
        "publishLatency.p99",
        "dropped",
        "sent",
        "failed",
        "silent",
    ]
    assert (
        verdict({}, made(**{**PRODUCER_ONLY, "counts": {"received": 0, "sent_in_time": 5}})).outcome
        is Outcome.MISSED
    )


@pytest.mark.parametrize(
    "section",
    [{"loss": 0}, {"throughput": "99%"}, {"endToEndLatency": {"p99": "1s"}}, {"corrupt": 0}],
)
def test_an_objective_on_deliveries_without_consumers_is_no_data(section: dict[str, Any]) -> None:
    assert "not applicable: nothing subscribes" in finding(section, made(**PRODUCER_ONLY)).text


def test_a_run_that_only_consumes_is_judged_by_what_arrived() -> None:
    """Nothing had to be sent, so no implicit objective applies; nothing received is still no data."""
    result = verdict({"throughput": "9000/s"}, made(**CONSUMER_ONLY))
    assert (result.outcome, len(result.findings)) == (Outcome.MET, 1)
    assert result.findings[0].text == "throughput 10.0 k msg/s >= 9 000 msg/s (10.0 k msg/s)"
    nothing = {**CONSUMER_ONLY, "counts": {**CONSUMER_ONLY["counts"], "received": 0}}
    assert verdict({"throughput": "9000/s"}, made(**nothing)).reasons == (
        "nothing was received in the measured phase",
    )


@given(st.lists(st.sampled_from(Outcome), min_size=1))
def test_the_worst_outcome_of_parts_is_that_of_the_whole(outcomes: list[Outcome]) -> None:
    """The order of the enumeration is that of the design."""
    assert list(Outcome) == [
        Outcome.MET,
        Outcome.MISSED,
        Outcome.GENERATOR_LIMITED,
        Outcome.NO_DATA,
    ]
    assert worst(outcomes) is next(o for o in reversed(Outcome) if o in outcomes)


def test_no_parts_are_no_data() -> None:
    """Nothing judged is never a pass."""
    assert worst(()) is Outcome.NO_DATA


def test_the_whole_has_the_reasons_of_the_worst_parts() -> None:
    """Each with its part's name; the remedy once, at the end."""
    slow = Verdict(
        outcome=Outcome.GENERATOR_LIMITED,
        findings=(),
        reasons=("worker gw0 used 1.02 cores", REMEDY),
    )
    good = verdict({"loss": 0}, made())
    whole = overall([("", slow), ("stage a: ", slow), ("stage b: ", good)])
    assert whole.reasons == (
        "worker gw0 used 1.02 cores",
        "stage a: worker gw0 used 1.02 cores",
        REMEDY,
    )
    assert whole.findings == good.findings
    broken = Verdict(outcome=Outcome.NO_DATA, findings=(), reasons=("nothing was sent",))
    assert overall([("", slow), ("stage a: ", broken)]).reasons == ("stage a: nothing was sent",)


def test_foreign_messages_of_a_stage_are_unknown() -> None:
    """When they came is not known: no zero."""
    found = finding({"foreign": 0}, made(counts={"foreign": None}))
    assert (found.outcome, found.text) == (
        Outcome.NO_DATA,
        "foreign: it is unknown whether foreign messages arrived in this stage",
    )


def test_throughput_of_a_bucket_counts_what_came_in_time() -> None:
    """Arrivals in the drain do not make it up."""
    late = finding(
        {"buckets": {LARGE: {"throughput": "99%"}}},
        made(buckets=(made_bucket(LARGE, received_in_time=35_000),)),
    )
    assert (late.outcome, late.observed) == (Outcome.MISSED, 0.7)


def test_foreign_messages_are_missed_on_topics_of_the_run() -> None:
    """50 000 copies at wrong subscriptions: they belong to no delivery, so no other objective sees them."""
    found = evaluate(
        parse_slo({}, implicit=(*IMPLICIT, NO_FOREIGN)), made(counts={"foreign": 50_000}), Limits()
    )
    (missed,) = found.having(Outcome.MISSED)
    assert (
        missed.text
        == "foreign 50 000 > 0: 50 000 too many (50 000 of 100 000 deliveries, at any time of the run)"
    )


@pytest.mark.parametrize(
    ("duplicates", "of_resent", "forgotten", "outcome", "observed"),
    [
        (3, 0, 0, Outcome.MISSED, 3),
        (
            3,
            3,
            0,
            Outcome.MISSED,
            3,
        ),  # the broker had the session, so it had to know what it was sent
        (3, 3, 1, Outcome.MET, 0),
        (3, 2, 1, Outcome.MISSED, 1),
        (3, 2, None, Outcome.MISSED, 1),
        (3, 3, None, Outcome.NO_DATA, None),
        (0, 0, None, Outcome.MET, 0),
    ],
)
def test_duplicates_at_qos_2_are_excused_only_where_a_session_was_forgotten(
    duplicates: int, of_resent: int, forgotten: int | None, outcome: Outcome, observed: int | None
) -> None:
    """Of messages that were sent again; whether a session was forgotten has to be known."""
    run = made(
        counts={"duplicates": duplicates, "resent": of_resent, "duplicates_of_resent": of_resent},
        forgotten=forgotten,
    )
    result = evaluate(parse_slo({}, implicit=(EXACTLY_ONCE,)), run, Limits())
    assert (result.outcome, result.findings[0].observed) == (outcome, observed)


def test_excused_duplicates_are_in_the_text() -> None:
    """The count in the report differs from the objective's."""
    run = made(counts={"duplicates": 3, "resent": 2, "duplicates_of_resent": 2}, forgotten=1)
    (found,) = evaluate(parse_slo({}, implicit=(EXACTLY_ONCE,)), run, Limits()).findings
    assert found.text == (
        "duplicates 1 > 0: 1 too many (1 of 100 000 deliveries, 2 further duplicates are excused: sent again to a broker that had forgotten the session)"
    )


def test_a_bound_of_the_profile_on_duplicates_excuses_none() -> None:
    """It says how many copies may come, whoever sent them."""
    run = made(counts={"duplicates": 3, "resent": 3, "duplicates_of_resent": 3}, forgotten=1)
    assert (
        evaluate(parse_slo({"duplicates": 2}, implicit=(EXACTLY_ONCE,)), run, Limits())
        .findings[0]
        .observed
        == 3
    )


def test_damaged_heads_are_counted_at_any_time_of_the_run() -> None:
    """A head that is damaged names no phase, so one of the warm-up counts too, and the text says so."""
    (missed,) = verdict({}, made(counts={"corrupt": 14, "corrupt_heads": 3}, checked=None)).having(
        Outcome.MISSED
    )
    assert missed.text.endswith(
        "(14 of 100 000 deliveries, 3 of them with a damaged head, at any time of the run)"
    )


@pytest.mark.parametrize(
    ("error_ms", "outcome"), [(1, Outcome.MISSED), (4, Outcome.MISSED), (6, Outcome.NO_DATA)]
)
def test_a_miss_by_less_than_the_error_of_the_clocks_is_no_data(
    error_ms: int, outcome: Outcome
) -> None:
    """The largest latency is 20 ms, 5 ms above its bound."""
    run = replace(
        made(), clocks=(HostTime(host="h1", error=error_ms * MS, round_trip=MS, holds=True),)
    )
    result = finding({"endToEndLatency": {"max": "15ms"}}, run)
    assert result.outcome is outcome
    assert ("the error of the clocks between hosts" in result.text) is (outcome is Outcome.NO_DATA)


def test_a_pass_by_less_than_the_error_of_the_clocks_is_no_data() -> None:
    """… and by more than it a pass."""
    run = replace(made(), clocks=(HostTime(host="h1", error=6 * MS, round_trip=MS, holds=True),))
    assert finding({"endToEndLatency": {"max": "25ms"}}, run).outcome is Outcome.NO_DATA
    assert finding({"endToEndLatency": {"max": "30ms"}}, run).outcome is Outcome.MET


def test_a_clock_that_was_set_leaves_counts_and_no_latency() -> None:
    """Loss needs no clock."""
    run = replace(made(), clocks=(HostTime(host="h2", error=0, round_trip=MS, holds=False),))
    result = verdict({"endToEndLatency": {"max": "30ms"}, "loss": 0}, run)
    latency, loss, *_ = result.findings
    assert (latency.outcome, loss.outcome) == (Outcome.NO_DATA, Outcome.MET)
    assert "the clock of host h2 was set while load ran" in latency.text


@pytest.mark.parametrize("slo", [{"throughput": "1%"}, {"throughput": "1/s"}, {"sent": "1%"}])
def test_a_clock_that_was_set_leaves_open_what_was_in_time(slo: dict[str, str]) -> None:
    """Sent and received times are wrong by as much as the clock was set."""
    run = replace(made(), clocks=(HostTime(host="h2", error=0, round_trip=MS, holds=False),))
    result = finding(slo, run)
    assert finding(slo, made()).outcome is Outcome.MET
    assert result.outcome is Outcome.NO_DATA
    assert "was set while load ran, so what was in time is unknown" in result.text


def test_a_clock_that_was_set_is_named_as_the_cause_of_values_below_zero() -> None:
    run = made(
        end_to_end=replace(spread(1, 20), negative=3),
        clocks=(HostTime(host="h2", error=0, round_trip=MS, holds=False),),
    )
    result = finding({"endToEndLatency": {"max": "30ms"}}, run)
    assert result.outcome is Outcome.NO_DATA
    assert "the clock of host h2 was set while load ran" in result.text


def test_a_message_that_never_came_is_late_by_any_clock() -> None:
    """A clock that was set leaves latencies unknown, but not that there are none."""
    run = made(
        counts={"received": 90_000, "lost": 10_000},
        clocks=(HostTime(host="h2", error=0, round_trip=MS, holds=False),),
    )
    assert (
        finding({"endToEndLatency": {"p99": "30ms"}, "loss": "50%"}, run).outcome is Outcome.MISSED
    )


@pytest.mark.parametrize(
    ("metric", "outcome"), [("endToEndLatency", Outcome.MET), ("deliveryGap", Outcome.NO_DATA)]
)
def test_a_time_between_arrivals_on_two_hosts_has_the_errors_of_both_clocks(
    metric: str, outcome: Outcome
) -> None:
    """The largest is 20 ms, 5 ms below its bound, and each clock may be off by 3 ms."""
    clocks = tuple(
        HostTime(host=host, error=error * MS, round_trip=MS, holds=True)
        for host, error in (("h1", 3), ("h2", 3), ("h3", 1))
    )
    run = made(delivery_gap=spread(1, 20), clocks=clocks)
    result = finding({metric: {"max": "25ms"}}, run)
    assert result.outcome is outcome
    assert ("the error of the clocks between hosts, 6.00 ms" in result.text) is (
        outcome is Outcome.NO_DATA
    )


def test_values_below_zero_within_the_error_of_the_clocks_have_percentiles() -> None:
    """Beyond it they say that the clocks disagree more than is known."""
    early = histogram(np.array([-2 * MS, *range(1, 2000)]))
    run = made(end_to_end=early)
    clocks = (HostTime(host="h1", error=3 * MS, round_trip=MS, holds=True),)
    assert (
        finding({"endToEndLatency": {"p99": "30ms"}}, replace(run, clocks=clocks)).outcome
        is Outcome.MET
    )
    assert finding({"endToEndLatency": {"p99": "30ms"}}, run).outcome is Outcome.NO_DATA


@pytest.mark.parametrize(
    ("statistic", "known", "outcome"),
    [
        ("p99", 100_000, Outcome.MET),
        ("p99", 99_900, Outcome.MET),
        ("p99", 99_000, Outcome.MET),
        ("p99", 98_999, Outcome.NO_DATA),
        ("p50", 98_999, Outcome.MET),
        ("max", 99_999, Outcome.NO_DATA),
        ("mean", 99_999, Outcome.NO_DATA),
    ],
)
def test_a_receive_lag_that_is_unknown_may_be_the_largest(
    statistic: str, known: int, outcome: Outcome
) -> None:
    """The kernel of one host stamps arrivals, that of another does not: what is known there says nothing about the rest."""
    result = finding({"receiveLag": {statistic: "21ms"}}, made(receive_lag=spread(1, 20, known)))
    assert result.outcome is outcome
    assert ("of 100 000 have no time of the kernel" in result.text) is (outcome is Outcome.NO_DATA)


@pytest.mark.parametrize("holds", [True, False])
def test_receive_lag_is_read_on_one_clock(holds: bool) -> None:
    """So it has no error of the clocks between hosts: from the arrival until the same host took it."""
    run = made(
        receive_lag=spread(1, 20),
        clocks=(HostTime(host="h1", error=50 * MS, round_trip=MS, holds=holds),),
    )
    assert finding({"receiveLag": {"max": "21ms"}}, run).outcome is Outcome.MET


@pytest.mark.parametrize(("earliest", "outcome"), [(5, Outcome.MET), (0.02, Outcome.NO_DATA)])
def test_what_came_late_beyond_the_error_of_the_clocks_was_not_early(
    earliest: float, outcome: Outcome
) -> None:
    """Its earliness is 0, which is the bound."""
    values = np.linspace(earliest * MS, 20 * MS, 100_000).astype(np.int64)
    clocks = (HostTime(host="h1", error=50_000, round_trip=MS, holds=True),)
    run = made(lateness=lateness(values), clocks=clocks)
    assert finding({"earliness": {"max": "0ms"}}, run).outcome is outcome


WITHIN = WithinHosts(deliveries=100_000, complete=True)


@pytest.mark.parametrize(
    ("within", "holds", "outcome"),
    [
        (WITHIN, True, Outcome.MISSED),
        (WITHIN, False, Outcome.NO_DATA),
        (replace(WITHIN, complete=False), True, Outcome.NO_DATA),
        (None, True, Outcome.NO_DATA),
    ],
)
def test_latencies_within_hosts_need_no_relation_of_clocks_that_nobody_set(
    within: WithinHosts | None, holds: bool, outcome: Outcome
) -> None:
    """The miss is by 5 ms, less than the error of the relation; a clock that was set cannot measure by itself either."""
    clock = HostTime(host="h1", error=6 * MS, round_trip=MS, holds=holds)
    run = replace(made(), clocks=(clock,), within_hosts=within)
    assert finding({"endToEndLatency": {"max": "15ms"}}, run).outcome is outcome


@pytest.mark.parametrize("section", [{"window": "1s"}, {"drift": {"endToEndLatency.p50": "200%"}}])
def test_windows_and_drift_need_even_clocks(section: dict[str, Any]) -> None:
    """They are latencies too."""
    run = replace(made(), clocks=(HostTime(host="h2", error=0, round_trip=MS, holds=False),))
    assert verdict(section | {"endToEndLatency": {"max": "30ms"}}, run).outcome is Outcome.NO_DATA
