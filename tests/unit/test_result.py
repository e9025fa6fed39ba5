"""What the ``load`` fixture gives a test."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from made_measurements import Limits, made, spread

from pytest_loadtest.errors import GeneratorLimited, NoData, UsageError
from pytest_loadtest.result import Load, SloMissed, ms
from pytest_loadtest.slo import evaluate, parse

SLO = {"throughput": "99%", "endToEndLatency": {"p99": "15ms"}}


def load(section: dict[str, Any] = SLO, scale: float | None = None, **changed: Any) -> Load:
    run = made(**changed)
    return Load(profile_name="smoke", measurements=run, verdict=evaluate(parse(section), run, Limits()), scale=scale)


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
