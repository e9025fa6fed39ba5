"""A dead topic of many is within every bound on shares, so silence has an objective of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from builders.measurements import Limits, made, spread
from builders.objectives import parse_slo

from pytest_loadtest.metrics.silent import Silent, SilentPair, SilentStream
from pytest_loadtest.verdict.objectives import scale_objectives
from pytest_loadtest.verdict.slo import Outcome, Verdict, evaluate

if TYPE_CHECKING:
    from pytest_loadtest.metrics.measurements import Measurements

DEAD = Silent(
    pairs=1,
    pairs_due=200,
    streams=1,
    streams_due=200,
    first_pairs=(SilentPair(17, 0),),
    first_streams=(SilentStream(17, 17),),
)
PRODUCERS = {
    "subscriptions": 0,
    "end_to_end": None,
    "counts": {"received": 0, "received_in_time": 0},
}


def dead_topic(**changed: Any) -> Measurements:
    """200 topics, 600 messages each; of topic 17 none was acknowledged, and none came: half a percent."""
    counts = {
        "offered": 120_000,
        "sent": 120_000,
        "sent_in_time": 120_000,
        "acked": 119_400,
        "unknown": 600,
    }
    counts |= {"received": 119_400, "received_in_time": 119_400}
    return made(
        counts=counts,
        rate=12_000.0,
        publish=spread(1, 20, 119_400),
        end_to_end=spread(1, 20, 119_400),
        **{"silent": DEAD, **changed},
    )


def verdict(section: dict[str, Any], run: Measurements) -> Verdict:
    return evaluate(parse_slo(section), run, Limits())


def test_a_dead_topic_of_200_is_missed() -> None:
    """Though half a percent breaks neither p99 nor the share that may fail."""
    found = verdict({"endToEndLatency": {"p99": "100ms"}}, dead_topic())
    (missed,) = found.having(Outcome.MISSED)
    assert missed.text == (
        "silent 2 > 0: 2 too many (1 of 200 subscriptions of topics, 1 of 200 streams: topic 17 subscription 0; stream 17 of topic 17)"
    )
    assert (missed.objective.implicit, missed.samples) == (True, 400)


def test_the_first_few_are_named_and_all_are_counted() -> None:
    """The results have more names."""
    many = Silent(
        pairs=50,
        pairs_due=60,
        streams=0,
        streams_due=60,
        first_pairs=tuple(SilentPair(topic, 1) for topic in range(10)),
        first_streams=(),
    )
    (missed,) = verdict({}, dead_topic(silent=many)).having(Outcome.MISSED)
    assert missed.text.endswith(
        "50 of 60 subscriptions of topics, 0 of 60 streams: topic 0 subscription 1, topic 1 subscription 1, topic 2 subscription 1, …)"
    )


@pytest.mark.parametrize(
    ("bound", "outcome"),
    [(2, Outcome.MET), (1, Outcome.MISSED), ("0.5%", Outcome.MET), ("0.4%", Outcome.MISSED)],
)
def test_a_bound_in_the_profile_overrides_the_implicit_one(bound: object, outcome: Outcome) -> None:
    """As a number or a share of the subscriptions and streams that had messages due."""
    assert verdict({"silent": bound}, dead_topic()).outcome is outcome


@pytest.mark.parametrize("section", [{}, {"silent": 0}])
def test_unknown_silence_of_a_run_with_consumers_is_no_data(section: dict[str, Any]) -> None:
    assert verdict(section, made(silent=None)).outcome is Outcome.NO_DATA


def test_without_consumers_and_acknowledgements_only_an_explicit_bound_applies() -> None:
    """It is then no data."""
    run = made(silent=None, **PRODUCERS)
    assert "silent" not in [finding.objective.metric for finding in verdict({}, run).findings]
    assert verdict({"silent": 0}, run).outcome is Outcome.NO_DATA


def test_producers_alone_are_judged_by_what_was_acknowledged() -> None:
    """A stream of which nothing was acknowledged is missed."""
    streams = replace(DEAD, pairs=0, pairs_due=0, first_pairs=())
    (missed,) = verdict({}, made(silent=streams, **PRODUCERS)).having(Outcome.MISSED)
    assert missed.text == "silent 1 > 0: 1 too many (1 of 200 streams: stream 17 of topic 17)"


def test_silence_does_not_apply_to_a_run_that_sends_nothing() -> None:
    run = made(rate=0.0, silent=None, counts={"offered": 0, "sent": 0, "acked": 0})
    assert "silent" not in [finding.objective.metric for finding in verdict({}, run).findings]


def test_a_tolerance_shrinks_with_a_scaled_run() -> None:
    """As those in messages do: it never grows by it."""
    (objective,) = (
        one
        for one in scale_objectives(parse_slo({"silent": 30}), 0.1, 0.1)
        if one.metric == "silent"
    )
    assert objective.maximum == 3


def test_silence_that_a_service_may_have_chosen_is_judged_only_if_asked_for() -> None:
    """The share is judged in any case; a bound of the profile's own that nothing decides is no data."""
    few = Silent(pairs=0, pairs_due=0, streams=0, streams_due=0)
    run = made(counts={"lost": None, "received": 20_000}, answered=(20_000,), silent=few)
    objectives = parse_slo({"endToEndLatency": {"p99": "100ms"}})
    assert not [
        finding
        for finding in evaluate(objectives, run, Limits()).findings
        if finding.objective.metric == "silent"
    ]
    found = verdict({"silent": 0}, run).having(Outcome.NO_DATA)
    assert "the service may have chosen none of them" in found[0].text
    dead = replace(run, silent=DEAD)
    assert "silent" in [
        finding.objective.metric
        for finding in evaluate(objectives, dead, Limits()).having(Outcome.MISSED)
    ]
