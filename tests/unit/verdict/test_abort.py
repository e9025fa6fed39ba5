"""The section ``abort``, and the arithmetic that decides when a run is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders.measurements import Limits, made, spread
from builders.objectives import parse_slo
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.full_windows import BlockedTopic, FullWindows
from pytest_loadtest.metrics.histogram import rank
from pytest_loadtest.schedule.changes import Aborted
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.abort import Abort, evaluate_aborted, lost_seconds
from pytest_loadtest.verdict.slo import Outcome

NEVER = 1 << 62


def problems(section: dict[str, Any]) -> list[tuple[str, str]]:
    """Path and message of everything that is wrong."""
    return [
        (".".join(map(str, problem.path)), problem.message)
        for problem in Abort.read(section).problems
    ]


@pytest.mark.parametrize("section", [
    {"endToEndLatency.p99": "5s", "failed": "1%", "dropped": 10, "for": "20s"},
    {"endToEndLatency": {"p99": "5s"}, "failed": "1%", "dropped": 10, "for": "20s"},
])  # fmt: skip
def test_dotted_and_nested_keys_are_equal(section: dict[str, Any]) -> None:
    found = Abort.read(section)
    assert [(one.name, one.maximum, one.unit) for one in (*found.latencies, *found.counts)] == [
        ("endToEndLatency.p99", 5 * SECOND, "ns"), ("failed", 0.01, "ratio"), ("dropped", 10, "messages"),
    ]  # fmt: skip
    assert (found.hold, found.latest) == (20, 5 * SECOND)
    assert found.lines()[:3] == [
        "endToEndLatency.p99 > 5.00 s in every second of 20 s", "failed > 1 % of the messages planned", "dropped > 10",
    ]  # fmt: skip


def test_the_default_of_for_is_30_seconds() -> None:
    """Several percentiles may be bounded."""
    found = Abort.read({"endToEndLatency.p50": "1s", "endToEndLatency.p99.9": "10s"})
    assert (found.hold, [one.percentile for one in found.latencies]) == (30, [50, 99.9])


@pytest.mark.parametrize(("section", "path", "message"), [
    ({}, "", "has no condition that ends the run"),
    ({"for": "30s"}, "for", "applies to latencies only"),
    ({"failed": 1, "for": "30s"}, "for", "applies to latencies only"),
    ({"loss": 0}, "loss", "loss cannot end a run: messages under way may arrive until the drain ends"),
    ({"throughput": "99%"}, "throughput", "'throughput' does not end a run"),
    ({"publishLatency.p99": "1s"}, "publishLatency.p99", "'publishLatency.p99' does not end a run"),
    ({"endToEndLatency.max": "1s"}, "endToEndLatency.max", "max cannot end a run"),
    ({"endToEndLatency": {"p99": {"min": "1s"}}}, "endToEndLatency.p99", "only an upper bound"),
    ({"endToEndLatency.p99": "5"}, "endToEndLatency.p99", "'5' has no unit"),
    ({"endToEndLatency": {"p99": "5s"}, "endToEndLatency.p99": "6s"}, "endToEndLatency.p99", "endToEndLatency.p99 is bounded twice"),
    ({"endToEndLatency.p99": "5s", "endToEndLatency": {"p99": "6s"}}, "endToEndLatency", "endToEndLatency.p99 is bounded twice"),
    ({"endToEndLatency.p99": "5s", "endToEndLatency": "6s"}, "endToEndLatency", "endToEndLatency is bounded twice"),
    ({"endToEndLatency.p99": "2h"}, "endToEndLatency.p99", "workers keep counts of 60.0 min only"),
    ({"endToEndLatency.p99": "5s", "for": "1500ms"}, "for", "1500ms is not a whole number of seconds"),
    ({"endToEndLatency.p99": "5s", "for": "soon"}, "for", "'soon' is not a duration"),
    ({"dropped": "many"}, "dropped", "'many' is not a whole number"),
    ({"endToEndLatency": None}, "endToEndLatency", "has no statistic"),
])  # fmt: skip
def test_a_condition_that_cannot_end_a_run_is_a_problem_of_its_key(
    section: dict[str, Any], path: str, message: str
) -> None:
    found = problems(section)
    assert [(at, text[: len(message)]) for at, text in found] == [(path, message)]


def test_a_latency_without_statistic_before_a_percentile_is_a_problem_and_no_internal_error() -> (
    None
):
    found = problems({"endToEndLatency": "5s", "endToEndLatency.p99": "6s"})
    assert ("endToEndLatency.p99", "endToEndLatency is bounded twice") in found


@given(
    st.lists(
        st.lists(st.sampled_from([1, 5, 10, 11, 50, NEVER]), max_size=30), min_size=1, max_size=8
    ),
    st.sampled_from([50.0, 90.0, 99.0]),
)
def test_a_second_is_lost_if_its_percentile_is_beyond_the_bound(
    seconds: list[list[int]], p: float
) -> None:
    """By the nearest rank over all due messages, from the last second back to the first that held or had none."""
    bound = 10
    lost = [bool(values) and sorted(values)[rank(p, len(values)) - 1] > bound for values in seconds]
    expected = next((i for i, broken in enumerate(reversed(lost)) if not broken), len(lost))
    due, timely = (
        [len(values) for values in seconds],
        [sum(value <= bound for value in values) for values in seconds],
    )
    assert lost_seconds(due, timely, p) == expected


@given(
    st.lists(st.tuples(st.integers(0, 500), st.floats(0, 1)), min_size=1, max_size=30),
    st.sampled_from([50.0, 99.0, 99.9]),
)
def test_if_every_second_is_lost_the_whole_time_is_lost(
    seconds: list[tuple[int, float]], p: float
) -> None:
    """A percentile broken in each second is broken over all of them."""
    due = [n for n, _ in seconds]
    timely = [int(n * share) for n, share in seconds]
    if lost_seconds(due, timely, p) == len(due):
        assert sum(timely) < rank(p, sum(due))


@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(0, 500)), min_size=1, max_size=30),
    st.integers(0, 29),
)
def test_more_timely_messages_never_lose_more_seconds(
    seconds: list[tuple[int, int]], at: int
) -> None:
    due, timely = [n for n, _ in seconds], [min(n, came) for n, came in seconds]
    more = [came + (i == at % len(due)) for i, came in enumerate(timely)]
    assert lost_seconds(due, more, 99) <= lost_seconds(due, timely, 99)


def test_an_aborted_run_is_missed_even_with_too_few_samples() -> None:
    objectives = parse_slo({"endToEndLatency": {"p99.9": "1s"}})
    measured = made(end_to_end=spread(1, 20, 900))
    verdict = evaluate_aborted(
        objectives, measured, Limits(), Aborted(reason="aborted 9 s into the phase: because")
    )
    assert (verdict.outcome, verdict.reasons[0]) == (
        Outcome.MISSED,
        "aborted 9 s into the phase: because",
    )


@pytest.mark.parametrize(
    ("at_full_windows", "outcome"), [(10, Outcome.MISSED), (9, Outcome.GENERATOR_LIMITED)]
)
def test_drops_are_caused_by_the_target_if_messages_waited_for_full_windows(
    at_full_windows: int, outcome: Outcome
) -> None:
    """Otherwise by the generator."""
    topic = BlockedTopic(topic=0, dropped=at_full_windows, start=0, end=1)
    full = FullWindows(dropped=at_full_windows, waited=1, topics=1, first_topics=(topic,))
    measured = replace(made(counts={"dropped": 10}), full_windows=full)
    assert (
        evaluate_aborted(parse_slo({}), measured, Limits(), Aborted(reason="aborted")).outcome
        is outcome
    )


def test_an_aborted_run_in_which_nothing_came_is_no_data() -> None:
    """It is unknown whether the target is slow."""
    measured = made(end_to_end=None, counts={"received": 0})
    verdict = evaluate_aborted(
        parse_slo({}), replace(measured), Limits(), Aborted(reason="aborted")
    )
    assert verdict.outcome is Outcome.NO_DATA
    assert verdict.reasons[0] == "aborted"
