"""The verdict on connections, alone or with messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders.measurements import MS, Limits, made, spread
from builders.objectives import parse_slo

from pytest_loadtest.metrics.expected import Opening
from pytest_loadtest.verdict.objectives import AT_RATE
from pytest_loadtest.verdict.slo import REMEDY, Outcome, Verdict, evaluate

if TYPE_CHECKING:
    from pytest_loadtest.metrics.measurements import Measurements

NOTHING = dict.fromkeys(
    ("offered", "sent", "sent_in_time", "acked", "received", "received_in_time"), 0
)


def opening(**changed: Any) -> Opening:
    every: dict[str, Any] = {
        "alone": True,
        "connections": 1000,
        "rate": 100.0,
        "took": 10_000 * MS,
        "busiest": "gw1",
        "cpu": 0.2,
    }
    return Opening(**{**every, "begun_late": MS, "in_time": 1000, **changed})


def alone(*, latency: tuple[float, float] | None = (1, 20), **changed: Any) -> Measurements:
    """Connections and nothing else. :param latency: ms, least and most."""
    return made(
        rate=0.0, subscriptions=0, counts=NOTHING, end_to_end=None, publish=None, send_delay=None, own_send_delay=None, blocked=0,
        connect=spread(*latency, 1000) if latency else None, opening=opening(**changed),
    )  # fmt: skip


def verdict(run: Measurements, section: dict[str, Any] | None = None) -> Verdict:
    return evaluate(
        parse_slo(section or {"connectLatency": {"mean": "15ms", "max": "25ms"}}), run, Limits()
    )


def test_a_run_that_only_connects_has_no_implicit_objectives_on_messages() -> None:
    found = verdict(alone())
    assert found.outcome is Outcome.MET
    assert verdict(alone(in_time=949)).outcome is Outcome.MET, (
        "no profile with a rate, no objective of it"
    )
    assert [finding.objective.name for finding in found.findings] == [
        "connectLatency.mean",
        "connectLatency.max",
    ]
    missed = verdict(alone(latency=(1, 80)))
    assert missed.outcome is Outcome.MISSED
    assert (
        missed.findings[0].text
        == "connectLatency.mean 40.5 ms > 15.0 ms: over by 170 % (1 000 samples)"
    )


@pytest.mark.parametrize(
    "run", [alone(latency=None), alone(connections=0)], ids=["nobody told", "nobody came"]
)
def test_a_run_without_connections_is_no_data(run: Measurements) -> None:
    """So is one without their times."""
    assert verdict(run).outcome is Outcome.NO_DATA


def test_too_few_connections_for_a_percentile_are_no_data() -> None:
    run = alone()
    found = verdict(run, {"connectLatency": {"p99.9": "1s"}})
    assert found.outcome is Outcome.NO_DATA
    assert found.reasons == ("connectLatency.p99.9: p99.9 needs 10 000 samples, there are 1 000",)


LATE = "connections were begun late though there was room, p99 150 ms > 100 ms (generator.sendDelayP99)"
BUSY = "worker gw1 used 0.97 cores while it connected > 0.95 (generator.cpu)"


@pytest.mark.parametrize(
    ("changed", "evidence"), [({"begun_late": 150 * MS}, LATE), ({"cpu": 0.97}, BUSY)]
)
def test_late_connecting_by_the_generator_makes_the_run_generator_limited(
    changed: dict[str, Any], evidence: str
) -> None:
    """Whatever the latencies are; also with messages."""
    for run in (
        alone(**changed),
        alone(latency=(1, 500), **changed),
        made(opening=opening(alone=False, **changed)),
    ):
        found = evaluate(parse_slo({}), run, Limits()) if run.rate else verdict(run)
        assert (found.outcome, found.reasons) == (Outcome.GENERATOR_LIMITED, (evidence, REMEDY))


@pytest.mark.parametrize(
    ("section", "in_time", "outcome"),
    [
        ({}, 950, Outcome.MET),
        ({}, 949, Outcome.MISSED),
        ({"connectRate": "100%"}, 999, Outcome.MISSED),
        ({"connectRate": "50%"}, 500, Outcome.MET),
    ],
)
def test_connections_below_their_rate_are_missed(
    section: dict[str, Any], in_time: int, outcome: Outcome
) -> None:
    """Even if each latency is within its bound."""
    run = alone(in_time=in_time)
    found = evaluate(
        parse_slo({"connectLatency": {"mean": "1s"}} | section, implicit=(AT_RATE,)), run, Limits()
    )
    assert found.outcome is outcome
    text = next(
        finding.text for finding in found.findings if finding.objective.metric == "connectRate"
    )
    assert f"({in_time} of 1 000 connections in time)" in text


def test_connections_without_a_rate_are_never_late() -> None:
    assert verdict(alone(rate=None, begun_late=None, cpu=1.0)).outcome is Outcome.MET
