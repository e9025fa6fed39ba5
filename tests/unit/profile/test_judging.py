"""Objectives, windows, drift and ``abort`` against the other keys of a profile."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml

from pytest_loadtest import profile
from pytest_loadtest import profile as profiles
from pytest_loadtest.commands.starter import schema_text
from pytest_loadtest.errors import ProfileError
from pytest_loadtest.metrics import catalogue

PROFILE = "name: windows\nmessageSize: 100\nproducerRate: 1000\ntestDuration: 60s\ndriver: {name: loopback}\n"


def wrong(text: str) -> str:
    with pytest.raises(ProfileError) as caught:
        profile.loads(text, "p.yaml")
    return str(caught.value)


def test_windows_violations_and_drift_fit_in_one_line_of_yaml() -> None:
    """The schema for editors agrees."""
    text = (
        PROFILE
        + "slo: {window: 10s, endToEndLatency: {p99: 100ms}, violations: 1%, drift: {endToEndLatency.p99: 20%}}\n"
    )
    found = [one.name for one in profile.loads(text, "p.yaml").objectives if not one.implicit]
    assert found == ["endToEndLatency.p99", "drift.endToEndLatency.p99"]
    jsonschema.validate(yaml.safe_load(text), json.loads(schema_text("profile")))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "slo: {window: 90s, throughput: 99%}\n",
            "p.yaml:6:15: slo.window: 90.0 s is longer than the measured phase, 60.0 s",
        ),
        (
            "slo: {throughput: 99%}\nscaled: {slo: {window: 90s}}\n",
            "p.yaml:7:24: scaled.slo.window: 90.0 s is longer than the measured phase",
        ),
        (
            "slo: {window: 1s, publishLatency: {p99: 1s}, whole: {endToEndLatency: {p99: 1s}}}\nsubscriptionsPerTopic: 0\n",
            "p.yaml:6:54: slo.whole.endToEndLatency: nothing is received without consumers",
        ),
        (
            "slo: {drift: {endToEndLatency.p99: 5%}}\nsubscriptionsPerTopic: 0\n",
            "p.yaml:6:15: slo.drift.endToEndLatency.p99: nothing is received without consumers",
        ),
        (
            "slo: {window: 1s, sendDelay: {p99: 1s}, whole: {lateness: {p99: 1s}}}\n",
            "slo.whole.lateness: no message is delayed",
        ),
        (
            "slo: {window: 10s, throughput: 99%, whole: {buckets: {1-2: {loss: 0}}}}\n",
            "slo.whole.buckets.1-2: '1-2' is not a size bucket of this profile",
        ),
        (
            "slo: {throughput: 99%}\nscaled: {slo: {violations: 1%}}\n",
            "p.yaml:7:16: scaled.slo.violations: 'violations' has no effect without",
        ),
    ],
)
def test_a_window_that_does_not_fit_is_an_error_with_its_place(more: str, message: str) -> None:
    assert message in wrong(PROFILE + more)


def test_a_window_is_no_longer_than_its_stage_or_step() -> None:
    stages = PROFILE.replace(
        "testDuration: 60s\n", "stages: [{duration: 5s, slo: {window: 6s, throughput: 1%}}]\n"
    )
    assert "stages.0.slo.window: 6.00 s is longer than the stage 'stage 1', 5.00 s" in wrong(stages)
    tenth = stages.replace("{window: 6s, throughput: 1%}", "{drift: {throughput: 1%}}")
    assert (
        "stages.0.slo.drift: a tenth of the stage 'stage 1', 5.00 s, is less than a second"
        in wrong(tenth)
    )
    search = (
        PROFILE.replace("producerRate: 1000\ntestDuration: 60s\n", "search: {hold: 20s}\n")
        + "slo: {window: 30s, throughput: 99%}\n"
    )
    assert "slo.window: 30.0 s is longer than a step of the search, 20.0 s" in wrong(search)
    assert profile.loads(search.replace("30s, t", "10s, t"), "p.yaml").objectives[0].window


def test_more_than_100_000_windows_are_an_error() -> None:
    """They would take as long to judge as to measure."""
    text = PROFILE.replace("60s", "30h") + "slo: {window: 1s, throughput: 99%}\n"
    assert "the measured phase, 30.0 h, has more than 100,000 of them (write 2s or more)" in wrong(
        text
    ).replace("1.25 d", "30.0 h")


def test_a_section_for_scaled_runs_applies_to_the_windows_of_the_profile() -> None:
    found = profile.loads(
        PROFILE + "slo: {window: 10s, throughput: 99%}\nscaled: {slo: {violations: 5%}}\n", "p.yaml"
    )
    assert (found.objectives[0].violations, found.as_scaled().objectives[0].violations) == (
        0.0,
        0.05,
    )


HEAD = "name: a\nproducerRate: 1\ntestDuration: 1s\n"


LEAST = HEAD + "messageSize: 100\n"


def problems(text: str) -> str:
    with pytest.raises(ProfileError) as caught:
        profile.loads(text, "p.yaml")
    return str(caught.value)


OBJECTIVES = [
    (
        "driver: {name: pulsar, subscriptionType: Shared}",
        "outOfOrder: 0",
        "6:7: slo.outOfOrder: order cannot be judged on a Shared subscription (use Failover, or remove it)",
    ),
    (
        "driver: {name: pulsar, subscriptionType: Key_Shared}",
        "outOfOrder: 0",
        "6:7: slo.outOfOrder: order cannot be judged on Key_Shared without keys (use keyDistributor: KEY_ROUND_ROBIN, or remove it)",
    ),
    (
        "driver: {name: mqtt, sharedSubscription: true}",
        "outOfOrder: 0",
        "6:7: slo.outOfOrder: order cannot be judged on a shared subscription (use one consumer per subscription, or remove it)",
    ),
    (
        "driver: {name: mqtt, qos: 0}",
        "publishLatency: {p50: 1s}",
        "6:7: slo.publishLatency: messages are not acknowledged at QoS 0 (use qos: 1, or bound endToEndLatency)",
    ),
    (
        "driver: {name: pulsar}",
        "connectLatency: {p50: 1s}",
        "6:7: slo.connectLatency: clients of pulsar do not report how long connecting took (remove it)",
    ),
    (
        "driver: {name: mqtt}",
        "broadcastCompletion: {p50: 1s}",
        "6:7: slo.broadcastCompletion: no message goes to 64 subscriptions or more of one consumer each (bound endToEndLatency)",
    ),
    (
        "driver: {name: pulsar, topicType: non-persistent}",
        "publishLatency: {p50: 1s}",
        "6:7: slo.publishLatency: messages are not acknowledged on non-persistent topics (use topicType: persistent, or bound endToEndLatency)",
    ),
    (
        "driver: {name: mqtt, qos: 0}\nsubscriptionsPerTopic: 0",
        "silent: 0",
        "7:7: slo.silent: without consumers and acknowledgements it is unknown what arrived (add consumers, or remove it)",
    ),
    ("topics: 1", "los: 0", "6:7: slo.los: 'los' is not a metric (did you mean loss?)"),
    (
        "topics: 1",
        "throughput: 120%",
        "6:19: slo.throughput: '120%' is above 100% (write 100% or less)",
    ),
    (
        "topics: 1",
        "endToEndLatency: {p99: 5}",
        "6:30: slo.endToEndLatency.p99: '5' has no unit (write 5ms or 5s)",
    ),
]


@pytest.mark.parametrize(
    ("driver", "slo", "line"),
    OBJECTIVES,
    ids=[f"{slo} with {driver}" for driver, slo, _ in OBJECTIVES],
)
def test_an_objective_that_cannot_be_judged_is_an_error_at_its_place(
    driver: str, slo: str, line: str
) -> None:
    assert problems(f"{LEAST}{driver}\nslo: {{{slo}}}\n").splitlines() == [f"p.yaml:{line}"]


RUNS = (
    "driver: {name: mqtt, connectRate: 10}",
    "deliverAfter: 1s\ndriver: {name: pulsar, subscriptionType: Shared}",
)


@pytest.mark.parametrize("metric", catalogue.named(per_stage=False))
def test_an_objective_on_a_metric_that_no_stage_has_is_an_error_in_a_stage(metric: str) -> None:
    """Else it would be no data after the load."""
    bound = (
        "{p50: 1s}"
        if metric in catalogue.named(form="latency")
        else "95%"
        if metric in catalogue.named(form="share")
        else "1s"
    )
    bound = {"foreign": "0", "delayedIndexBytesPerMessage": "2.5"}.get(metric, bound)
    head = (
        "name: a\nproducerRate: 1\nmessageSize: 100\nstages: [{duration: 1s, slo: {"
        f"{metric}: {bound}"
        "}}]\n"
    )
    for run in RUNS:
        assert f"p.yaml:4:31: stages.0.slo.{metric}: " in problems(head + run)


def test_p100_and_more_are_not_percentiles() -> None:
    assert "p.yaml:5:25: slo.endToEndLatency.p101: percentile 101 is out of range" in problems(
        LEAST + "slo: {endToEndLatency: {p101: 5ms}}\n"
    )


SENDING = "name: a\nproducerRate: 1000\nmessageSize: 100\n"


SECOND_LONG = SENDING + "testDuration: 1s\n"


def loads(text: str) -> profile.Profile:
    return profile.loads(text, "p.yaml")


def lines_of(text: str) -> list[str]:
    with pytest.raises(ProfileError) as caught:
        loads(text)
    return str(caught.value).splitlines()


def test_an_objective_on_an_unknown_bucket_is_an_error_with_the_nearest_one() -> None:
    text = (
        SECOND_LONG.replace("messageSize: 100", "messageSizeDistribution: {0-256: 1, 256-1KB: 1}")
        + "slo: {buckets: {256-1K: {loss: 0}}}\n"
    )
    assert lines_of(text) == [
        "p.yaml:5:17: slo.buckets.256-1K: '256-1K' is not a size bucket of this profile (did you mean 256-1KB?)"
    ]


RELAYED = "name: p\nmessageSize: 100\ndriver: {name: loopback}\n"


LASTS = "testDuration: 1min\n"


RATE = "producerRate: 100\n"


ABORT = "abort: {endToEndLatency.p99: 5s, for: 30s}\n"


def placed(*lines: str) -> list[str]:
    """The problems, each with its line."""
    with pytest.raises(ProfileError) as caught:
        profiles.loads(RELAYED + "".join(lines), "p.yaml")
    return [
        f"{problem.line}:{problem.column}: {problem.message} ({problem.suggestion})"
        for problem in caught.value.problems
    ]


def test_the_abort_section_reads_back_from_results() -> None:
    profile = profiles.loads(RELAYED + RATE + LASTS + ABORT, "p.yaml")
    assert profile.abort is not None
    assert (profile.abort.hold, profile.abort.latest) == (30, 5 * 10**9)
    assert profiles.from_document(profile.document()).abort == profile.abort
    assert profiles.loads(RELAYED + RATE + LASTS, "p.yaml").abort is None


def test_a_wrong_condition_of_abort_has_its_place() -> None:
    """That of the key or of the value."""
    assert placed(RATE, LASTS, "abort:\n  loss: 0\n  failed: lots\n") == [
        (
            "7:3: abort.loss: loss cannot end a run: messages under way may arrive until the drain ends"
            " (write endToEndLatency.p99: 5s; a message that never arrives breaks any bound on latency)"
        ),
        "8:11: abort.failed: 'lots' is not a whole number of messages (as a share, write 0 or 0.01%)",
    ]


@pytest.mark.parametrize(("lines", "message"), [
    (("producerRate: 0\n",), "abort: a search ends each lost step by its own objectives"),
    ((RATE, LASTS, "producersPerTopic: 0\ntopic: t\n"), "abort: the run sends nothing"),
    ((RATE, LASTS, "consumerBacklogSizeGB: 1\n"), "abort: with consumerBacklogSizeGB messages wait on purpose"),
    ((RATE, LASTS, "subscriptionsPerTopic: 0\n"), "abort.endToEndLatency.p99: nothing is received without consumers"),
    (("producerRate: 1MB/s\n", LASTS), "abort.endToEndLatency.p99: needs a rate in messages; producerRate is in bytes"),
])  # fmt: skip
def test_abort_is_an_error_if_it_could_never_end_the_run(
    lines: tuple[str, ...], message: str
) -> None:
    """With the reason."""
    assert any(message in problem for problem in placed(*lines, ABORT))
