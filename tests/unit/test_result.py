"""What the ``load`` fixture gives a test."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from made_measurements import Limits, made, made_bucket, spread

from pytest_loadtest.errors import GeneratorLimited, NoData, UsageError
from pytest_loadtest.result import Load, SloMissed, ms, together
from pytest_loadtest.slo import Outcome, evaluate, parse

SLO = {"throughput": "99%", "endToEndLatency": {"p99": "15ms"}}


def load(section: dict[str, Any] = SLO, scale: float | None = None, name: str = "", stages: tuple[Load, ...] = (), **changed: Any) -> Load:
    run = made(**changed)
    judged = evaluate(parse(section), run, Limits())
    return Load(profile_name="smoke", measurements=run, verdict=judged, scale=scale, name=name, stages=stages)


def test_a_failure_lists_every_miss_then_what_held() -> None:
    """All of it in one assertion error, marked as scaled."""
    run = load(scale=0.001, counts={"lost": 2, "received": 99_998})
    with pytest.raises(SloMissed) as caught:
        run.assert_slo()
    lines = str(caught.value).splitlines()
    assert lines[0] == "2 of 7 objectives missed (profile smoke, scaled ×0.001: this says nothing about the full load)"
    assert lines[1].startswith("  missed  endToEndLatency.p99 19.8 ms > 15.0 ms: over by 32 %")
    assert lines[2] == "  missed  loss 2 > 0: 2 too many (2 of 100 000 deliveries)  [implicit]"
    assert [line.split()[0] for line in lines[3:]] == ["met"] * 5
    assert isinstance(caught.value, AssertionError)


def test_a_run_that_met_everything_says_nothing() -> None:
    """No exception, no output."""
    load({"endToEndLatency": {"p99": "25ms"}}).assert_slo()


def test_a_profile_without_objectives_cannot_be_asserted() -> None:
    """Not even when an implicit one is missed."""
    for run in (load({}), load({}, counts={"lost": 2})):
        with pytest.raises(UsageError, match="no objectives"):
            run.assert_slo()


def test_a_broken_run_is_an_error_and_not_a_failure() -> None:
    """With its causes, or its evidence and remedy."""
    with pytest.raises(NoData, match="nothing was received"):
        load(counts={"received": 0}).assert_slo()
    with pytest.raises(GeneratorLimited, match=r"generator.sendDelayP99[^$]*--load-scale auto"):
        load(own_send_delay=spread(0, 500)).ensure_judged()


def test_latencies_are_durations() -> None:
    """Every statistic compares with ``ms``."""
    run = load()
    assert ms(19.7) < run.end_to_end.p99 < run.end_to_end.p999 < run.end_to_end.max == ms(20)
    assert run.end_to_end.min == ms(1)
    assert ms(6) < run.publish.p50 < run.publish.p90
    assert run.send_delay.mean < ms(1)
    assert (run.end_to_end.p99.label, run.end_to_end.p99.samples) == ("end-to-end p99", 100_000)
    assert run.end_to_end.percentile(99.99).label == "end-to-end p99.99"


def test_what_was_not_measured_raises_and_is_never_a_number() -> None:
    """Absent latencies, too few samples, order that is not applicable, loss of nothing."""
    run = load(publish=None, end_to_end=spread(1, 20, 500), counts={"out_of_order": None, "acked": 0, "unknown": 100_000})
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


@pytest.mark.parametrize("p", [0, 100, -1, 100.1])
def test_a_percentile_out_of_range_is_a_value_error(p: float) -> None:
    """p100 is ``max``."""
    with pytest.raises(ValueError, match="out of range"):
        load().end_to_end.percentile(p)


def test_counts_are_whole_numbers() -> None:
    """By the words of the glossary."""
    counts = {"lost": 1, "duplicates": 2, "out_of_order": 3, "corrupt": 4, "foreign": 5, "failed": 6, "unknown": 1, "dropped": 8}
    run = load(counts=counts)
    assert (run.lost, run.duplicates, run.out_of_order, run.corrupt, run.foreign, run.failed, run.dropped) == (1, 2, 3, 4, 5, 7, 8)
    assert run.throughput == 10_000.0


def test_it_survives_pickling_and_introduces_itself() -> None:
    """Short names keep pytest's explanation of an assert readable."""
    run = pickle.loads(pickle.dumps(load()))
    assert repr(run) == "<load run of smoke: missed>"
    assert repr(run.end_to_end) == "<end-to-end latency: 100 000 samples>"
    assert repr(load(publish=None).publish).startswith("<publish latency: nothing was acknowledged")
    assert run.end_to_end.p99 == load().end_to_end.p99


GOOD = {"endToEndLatency": {"p99": "25ms"}}


def test_a_miss_of_a_stage_is_a_miss_of_the_run() -> None:
    """Every line says which stage it is about."""
    run = load(GOOD, stages=(load(GOOD, name="ramp"), load(name="spike")))
    assert (run.outcome, run.verdict.outcome, run.stage("ramp").outcome) == (Outcome.MISSED, Outcome.MET, Outcome.MET)
    with pytest.raises(SloMissed) as caught:
        run.assert_slo()
    lines = str(caught.value).splitlines()
    assert lines[0] == "1 of 21 objectives missed (profile smoke)"
    assert lines[1].startswith("  missed  stage spike: endToEndLatency.p99 19.8 ms > 15.0 ms")
    assert lines[2].startswith("  met     endToEndLatency.p99")
    assert lines[3].startswith("  met     stage ramp: endToEndLatency.p99")
    assert lines[4].startswith("  met     stage spike: throughput")
    assert lines[5:] == ["  met     17 implicit objectives"]
    run.stage("ramp").assert_slo()


def test_a_broken_stage_breaks_the_run() -> None:
    """No data is worse than a miss."""
    run = load(stages=(load(GOOD, name="ramp", counts={"received": 0}), load(name="spike")))
    with pytest.raises(NoData, match=r"profile smoke: no data\n  stage ramp: nothing was received"):
        run.ensure_judged()


def test_objectives_of_a_stage_are_enough_to_assert() -> None:
    """The profile's own section may be empty."""
    load({}, stages=(load(GOOD, name="ramp"),)).assert_slo()


def test_an_unknown_part_is_a_usage_error_that_lists_what_there_is() -> None:
    """Stages, workloads and buckets alike."""
    run = load(GOOD, stages=(load(GOOD, name="ramp"), load(GOOD, name="hold")), buckets=(made_bucket("0-256"),))
    with pytest.raises(UsageError, match="profile smoke has no stage 'rampp'; there are ramp, hold"):
        run.stage("rampp")
    with pytest.raises(UsageError, match="profile smoke has no workload 'small'; there are none"):
        run.workload("small")
    with pytest.raises(UsageError, match="profile smoke has no size bucket '0-257'; there are 0-256"):
        run.bucket("0-257")


def test_workloads_that_ran_together_are_asked_one_by_one() -> None:
    """The whole has a verdict, but no numbers of its own."""
    run = together("mixed", [load(GOOD, name="telemetry"), load(name="files", stages=(load(GOOD, name="ramp"),))])
    assert (run.outcome, run.verdict.outcome) == (Outcome.MISSED, Outcome.MISSED)
    assert run.workload("telemetry").end_to_end.max == ms(20)
    with pytest.raises(SloMissed, match=r"1 of 21 objectives missed \(profile mixed\)\n  missed  workload files: endToEndLatency.p99"):
        run.assert_slo()
    for use in (lambda: run.end_to_end, lambda: run.lost, lambda: run.measurements.counts, lambda: run.bucket("0-256")):
        with pytest.raises(UsageError, match=r"ask load.workload\('telemetry'\); there are telemetry, files"):
            use()
    assert repr(pickle.loads(pickle.dumps(run))) == "<load run of mixed: missed>"


def test_workloads_without_any_objective_cannot_be_asserted() -> None:
    """One that has some is enough."""
    with pytest.raises(UsageError, match="profile mixed has no objectives"):
        together("mixed", [load({}, name="a"), load({}, name="b")]).assert_slo()
    together("mixed", [load({}, name="a"), load(GOOD, name="b")]).assert_slo()


def test_a_bucket_has_its_own_numbers() -> None:
    """Latencies know what they measure; what is absent raises."""
    slow = made_bucket("1048576-5242880", end_to_end=spread(1, 200, 500), publish=None, lost=3, received=49_997, sent=50_001)
    bucket = load(GOOD, buckets=(made_bucket("0-256"), slow)).bucket("1048576-5242880")
    assert (bucket.end_to_end.max, bucket.lost, bucket.sent, bucket.throughput) == (ms(200), 3, 50_001, 4999.7)
    assert bucket.end_to_end.max.label == "1048576-5242880 end-to-end max"
    assert repr(bucket) == "<size bucket 1048576-5242880: 50 001 messages sent>"
    with pytest.raises(NoData, match="p99 needs 1 000 samples, there are 500"):
        _ = bucket.end_to_end.p99
    with pytest.raises(NoData, match="not applicable"):
        _ = bucket.publish.max
    with pytest.raises(NoData, match="no buckets.0-256.loss: no message of this size was due"):
        _ = load(GOOD, buckets=(made_bucket("0-256", offered=0),)).bucket("0-256").lost


def test_a_run_without_consumers_has_no_deliveries() -> None:
    """They are not applicable, and no zero."""
    run = load({"publishLatency": {"p99": "1s"}}, subscriptions=0, end_to_end=None, counts={"received": 0, "received_in_time": 0})
    run.assert_slo()
    for use in (lambda: run.lost, lambda: run.throughput, lambda: run.corrupt):
        with pytest.raises(NoData, match="nothing subscribes in this run"):
            use()
