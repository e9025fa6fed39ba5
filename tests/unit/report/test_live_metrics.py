"""The OpenMetrics that are served while load runs."""

from __future__ import annotations

import numpy as np
from builders.progress import made_progress
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pytest_loadtest.plan.phases import Phase
from pytest_loadtest.report.live_metrics import BUCKETS, COUNTS, LiveMetrics
from pytest_loadtest.schedule.pacing import Pacer, StreamCounts
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.slo import Outcome


def phase(name: str = "measure", rate: float = 100.0) -> Phase:
    pacer = Pacer.through([(10 * SECOND, rate)], 1)
    return Phase(
        name=name, duration=10 * SECOND, pacer=pacer, before=StreamCounts(streams=1), recorded=True
    )


def served(metrics: LiveMetrics) -> dict[tuple[str, ...], float]:
    """Parse the served text: name and label values by label names → value."""
    registry = CollectorRegistry()
    registry.register(metrics)
    families = text_string_to_metric_families(generate_latest(registry).decode())
    samples = [sample for family in families for sample in family.samples]
    return {
        (sample.name, *(text for _, text in sorted(sample.labels.items()))): sample.value
        for sample in samples
    }


def told(latencies: list[int], **said: int) -> dict[str, object]:
    """Return what a worker reports of copies with these latencies; two other bounds come first."""
    values = np.array(latencies, np.int64)
    return {
        "received": len(values),
        "beyond_bounds": (99, 98, *(int((values > edge).sum()) for edge in BUCKETS)),
        **said,
    }


@given(st.lists(st.lists(st.integers(0, 100 * SECOND), max_size=20), min_size=1, max_size=3))
def test_the_histogram_adds_up_all_workers(latencies: list[list[int]]) -> None:
    """Buckets are cumulative."""
    metrics = LiveMetrics(dict)
    metrics.show("t", "p", "", phase(), [made_progress(**told(mine)) for mine in latencies], 1)
    found = served(metrics)
    together = np.array([one for mine in latencies for one in mine], np.int64)
    for edge in BUCKETS:
        key = (
            "loadtest_end_to_end_latency_seconds_bucket",
            str(edge / SECOND),
            "measure",
            "p",
            "t",
            "",
        )
        assert found[key] == (together <= edge).sum()
    assert found[
        "loadtest_end_to_end_latency_seconds_bucket", "+Inf", "measure", "p", "t", ""
    ] == len(together)


def test_counts_are_sums_over_workers_and_stay_when_the_phase_is_over() -> None:
    """Each phase has its own; gauges belong to the running phase only."""
    metrics = LiveMetrics(dict)
    both = [
        made_progress(**told([1], sent=3, elapsed=SECOND)),
        made_progress(**told([1, 2], sent=4, elapsed=2 * SECOND), blocked=True),
    ]
    metrics.show("t", "p", "w", phase("warm-up"), both, 1)
    metrics.show("t", "p", "w", phase(), [made_progress(**told([], sent=1))], 1)
    found = served(metrics)
    assert found["loadtest_messages_total", "sent", "warm-up", "p", "t", "w"] == 7
    assert found["loadtest_messages_total", "sent", "measure", "p", "t", "w"] == 1
    assert {key[1] for key in found if key[0] == "loadtest_messages_total"} == set(COUNTS)
    assert {key[1] for key in found if key[0] == "loadtest_blocked_workers"} == {"measure"}


def test_delays_are_those_of_the_worst_worker_and_missing_where_they_are_unknown() -> None:
    metrics = LiveMetrics(dict)
    workers = [
        made_progress(**told([]), send_delay_p99=SECOND),
        made_progress(**told([]), send_delay_p99=2 * SECOND),
    ]
    metrics.show("t", "p", "", phase(), workers, 1)
    assert {key[0]: value for key, value in served(metrics).items() if "p99" in key[0]} == {
        "loadtest_send_delay_p99_seconds": 2
    }
    metrics.show(
        "t", "p", "", phase(), [made_progress(**told([]), receive_lag_p99=SECOND), *workers], 1
    )
    assert served(metrics)["loadtest_receive_lag_p99_seconds", "measure", "p", "t", ""] == 1


def test_messages_of_other_producers_have_no_latency() -> None:
    """They are counted, but their intended time is unknown."""
    metrics = LiveMetrics(dict)
    metrics.show(
        "t",
        "p",
        "",
        phase(rate=0.0),
        [made_progress(received=5, beyond_bounds=(0,) * len(BUCKETS))],
        1,
    )
    found = served(metrics)
    assert found["loadtest_messages_total", "received", "measure", "p", "t", ""] == 5
    assert not [key for key in found if "latency" in key[0]]


def test_a_run_that_has_ended_has_its_outcome_and_no_phase() -> None:
    metrics = LiveMetrics(lambda: {("test_it.py::test_it", "smoke", ""): (Outcome.MISSED, 1)})
    metrics.show("test_it.py::test_it", "smoke", "", phase(), [made_progress(**told([1]))], 1)
    found = served(metrics)
    assert [key[1] for key in found if key[0] == "loadtest_outcome"] == ["missed"]
    assert not [key for key in found if key[0] == "loadtest_workers"]


def test_a_test_that_runs_again_has_no_outcome_until_its_second_attempt_ends() -> None:
    """The gauges of the phase are there meanwhile; both attempts may have the same outcome."""
    outcomes: dict[tuple[str, str, str], tuple[Outcome, int]] = {}
    metrics = LiveMetrics(lambda: outcomes)

    def state() -> tuple[bool, bool]:
        """Return whether there are a running phase and an outcome."""
        names = {key[0] for key in served(metrics)}
        return "loadtest_workers" in names, "loadtest_outcome" in names

    for attempt in (1, 2):
        metrics.show("t", "p", "", phase(), [made_progress(**told([1]))], attempt)
        assert state() == (True, False)
        outcomes["t", "p", ""] = Outcome.MISSED, attempt
        assert state() == (False, True)
    outcomes["t", "p", ""] = Outcome.NO_DATA, 3
    assert state() == (False, True), "the third broke before its load"


def test_a_scaled_run_is_called_scaled_while_it_runs_and_after_it() -> None:
    outcomes: dict[tuple[str, str, str], tuple[Outcome, int]] = {}
    metrics = LiveMetrics(lambda: outcomes)
    metrics.show("t", "p", "", phase(), [made_progress(**told([]))], 1, "scaled ×0.01")
    metrics.show("t", "whole", "", phase(), [made_progress(**told([]))], 1)
    expected = {
        ("loadtest_run_info", "p", "scaled ×0.01", "t", ""): 1.0,
        ("loadtest_run_info", "whole", "", "t", ""): 1.0,
    }
    assert {
        key: value for key, value in served(metrics).items() if key[0] == "loadtest_run_info"
    } == expected
    outcomes["t", "p", ""] = Outcome.MET, 1
    assert expected.items() <= served(metrics).items()
