"""Keys for load: rates, sizes, clients, backlog, search; and keys that cannot be combined."""

from __future__ import annotations

import json

import pytest

from pytest_loadtest import profile
from pytest_loadtest.errors import ProfileError
from pytest_loadtest.values.quantities import MINUTE, SECOND, ByteRate

HEAD = "name: a\nproducerRate: 1000\nmessageSize: 100\n"


LEAST = HEAD + "testDuration: 1s\n"


SEARCH = "name: a\nproducerRate: 0\nmessageSize: 100\nslo: {loss: 0}\n"


def loads(text: str) -> profile.Profile:
    return profile.loads(text, "p.yaml")


def problems(text: str) -> list[str]:
    with pytest.raises(ProfileError) as caught:
        loads(text)
    return str(caught.value).splitlines()


def test_a_rate_in_bytes_has_a_type_of_its_own() -> None:
    """It reads back from results."""
    found = loads(LEAST.replace("1000", "200MB/s"))
    assert (found.producer_rate, found.in_bytes) == (ByteRate(200 * 1024**2), True)
    assert found.document()["producerRate"] == "209715200B/s"
    assert profile.from_document(json.loads(json.dumps(found.document()))).in_bytes
    assert not loads(LEAST.replace("1000", "5000 msg/s")).in_bytes


def test_a_number_of_messages_sets_the_duration() -> None:
    found = loads(HEAD + "messages: 2500\n")
    assert (found.messages, found.test_duration) == (2500, 2500 * SECOND // 1000)


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ("", "midpoint"),
        ("payloadsPerBucket: 4", "uniform"),
        ("payloadsPerBucket: 4\nrepresentative: max", "max"),
    ],
)
def test_several_payloads_are_spread_over_their_range(lines: str, kind: str) -> None:
    """Unless representative is given."""
    text = LEAST.replace("messageSize: 100", "messageSizeDistribution: {0-256: 1}")
    assert loads(f"{text}{lines}\n").representative == kind


def test_a_search_has_defaults() -> None:
    """A rate of 0 is enough; the section can replace the rate."""
    plain, named = (
        loads(SEARCH),
        loads(SEARCH.replace("producerRate: 0", "search: {hold: 10s, precision: 5%, max: 1e5/s}")),
    )
    assert plain.search == profile.SearchSection()
    assert (plain.peak_search, named.peak_search, loads(LEAST).search) == (True, True, None)
    assert named.search is not None
    assert (named.search.hold, named.search.confirm, named.search.precision, named.search.max) == (
        10 * SECOND,
        20 * SECOND,
        0.05,
        1e5,
    )
    assert profile.from_document(named.document()).search == named.search


def test_a_search_with_rates_in_bytes_is_in_bytes() -> None:
    assert loads(SEARCH.replace("producerRate: 0", "search: {start: 1MB/s}")).in_bytes


def test_a_run_may_have_no_producers_or_no_consumers() -> None:
    """A run that only receives needs no rate and no size."""
    assert loads(LEAST + "subscriptionsPerTopic: 0\nslo: {sent: 99%}\n").producer_only
    assert loads(LEAST + "consumerPerSubscription: 0\n").producer_only
    found = loads(
        "name: a\nproducersPerTopic: 0\ntopic: persistent://public/default/t\ntestDuration: 1s\nslo: {throughput: 100/s}\n"
    )
    assert (found.consumer_only, found.producer_only, found.peak_search, found.search) == (
        True,
        False,
        False,
        None,
    )
    assert profile.from_document(found.document()) == found


@pytest.mark.parametrize(
    "lines",
    [
        "topic: persistent://public/default/t",
        "topic: non-persistent://a/b/c\ndriver: {name: pulsar, topicType: non-persistent}",
        "topic: a/b/c\ndriver: {name: mqtt}",
        "topic: anything\ndriver: {name: loopback}",
    ],
)
def test_one_existing_topic_can_be_named(lines: str) -> None:
    assert loads(f"{LEAST}{lines}\n").topic == lines.split()[1]


def test_a_backlog_may_have_parts_of_a_gigabyte() -> None:
    """With a limit on the drain."""
    found = loads(LEAST + "consumerBacklogSizeGB: 0.5\nbacklogDrainTimeout: 2min\n")
    assert (found.consumer_backlog_size_gb, found.backlog_drain_timeout) == (0.5, 2 * MINUTE)
    assert loads(LEAST).backlog_drain_timeout == 10 * MINUTE


UNDER_WAY = "are under way at any time (producerRate × 100 ms × subscriptionsPerTopic)"


CONFLICTS = [
    ("messages: 5", "4:1: messages and testDuration exclude each other (keep one, e.g. messages)"),
    (
        "search: {hold: 1s}",
        "5:1: search: finds the rate, but producerRate is 1 000 msg/s (write producerRate: 0, or remove search)",
    ),
    (
        "producersPerTopic: 0",
        "5:20: producersPerTopic: 0 receives messages of others, and topic is missing (write topic: NAME)",
    ),
    (
        "producersPerTopic: 0\nsubscriptionsPerTopic: 0",
        "6:24: subscriptionsPerTopic: 0 and producersPerTopic: 0: the run has no clients (write subscriptionsPerTopic: 1)",
    ),
    (
        "subscriptionsPerTopic: 0\nslo: {throughput: 99%}",
        "6:7: slo.throughput: nothing is received without consumers (use sent, connectRate, publishLatency, sendDelay, connectLatency, reconnectLatency, failed, dropped, silent)",
    ),
    (
        "driver: {name: mqtt}\nsubscriptionsPerTopic: 0\nslo: {subscribeLatency: {p99: 1s}}",
        "7:7: slo.subscribeLatency: nothing is received without consumers (use sent, connectRate, publishLatency, sendDelay, connectLatency, reconnectLatency, failed, dropped, silent)",
    ),
    (
        "producersPerTopic: 0\ntopic: persistent://a/b/c\nslo: {throughput: 99%}",
        "7:7: slo.throughput: a run without producers measures only throughput in messages per second (write throughput: 1000/s, and nothing else)",
    ),
    (
        "topic: t",
        "5:8: topic: 't' is not a topic of Pulsar (write persistent://tenant/namespace/name)",
    ),
    (
        "topic: non-persistent://a/b/c",
        "5:8: topic: 'non-persistent://a/b/c' is non-persistent, driver.topicType says persistent (write topicType: non-persistent)",
    ),
    (
        "topics: 3\ntopic: persistent://a/b/c",
        "5:9: topics: 3, but topic names a single one (remove topics, or topic)",
    ),
    (
        "topic: persistent://a/b/c\nscalable: [producers, topics]",
        "6:11: scalable: topics, but topic names a single one (remove topics from scalable)",
    ),
    (
        "driver: {name: mqtt}\ntopic: a/+/c",
        "6:8: topic: 'a/+/c' has a wildcard (write one topic, such as a/b/c, without + and #)",
    ),
    (
        "subscriptionsPerTopic: 0\nconsumerBacklogSizeGB: 1",
        "6:24: consumerBacklogSizeGB: a backlog needs producers and consumers (write 0)",
    ),
    (
        "payloadsPerBucket: 3",
        "5:1: payloadsPerBucket: without messageSizeDistribution there are no size buckets (write randomizedPayloadPoolSize for several payloads of one size)",
    ),
    (
        "consumerBacklogSizeGB: 0.000009",
        f"5:24: consumerBacklogSizeGB: 97 messages are not a backlog: 100 {UNDER_WAY} (write 9.3e-05 or more, or a lower producerRate)",
    ),
    (
        "consumerBacklogSizeGB: 0.00001\nsubscriptionsPerTopic: 2",
        f"5:24: consumerBacklogSizeGB: 107 messages are not a backlog: 200 {UNDER_WAY} (write 0.00019 or more, or a lower producerRate)",
    ),
    (
        "consumerBacklogSizeGB: 0.00001\nbacklogDrainRatio: 0.001",
        "6:20: backlogDrainRatio: 0.001 of 107 messages rounds to 0: nothing to drain (write 1.0, or a larger share)",
    ),
    (
        "slo: {backlogDrain: 1min}",
        "5:7: slo.backlogDrain: the profile builds no backlog (write consumerBacklogSizeGB: 1, or remove it)",
    ),
    (
        "consumerBacklogSizeGB: 1\nslo: {backlogDrain: 11min}",
        "6:21: slo.backlogDrain: 11.0 min is more than backlogDrainTimeout, 10.0 min (raise backlogDrainTimeout)",
    ),
    (
        "producersPerTopic: 0\ntopic: persistent://a/b/c\nscaled: {slo: {loss: 0}}",
        "7:16: scaled.slo.loss: a run without producers measures only throughput in messages per second (write throughput: 1000/s, and nothing else)",
    ),
    ("sizeSource: a.csv", "5:1: sizeSource is written in results only (remove it)"),
]


@pytest.mark.parametrize(("lines", "line"), CONFLICTS, ids=[lines for lines, _ in CONFLICTS])
def test_keys_that_cannot_be_combined_are_an_error(lines: str, line: str) -> None:
    """With which to change and how."""
    assert problems(f"{LEAST}{lines}\n") == [f"p.yaml:{line}"]


def test_a_backlog_decides_the_number_of_messages() -> None:
    (problem,) = problems(HEAD + "messages: 1000\nconsumerBacklogSizeGB: 0.01\n")
    conflict = "p.yaml:4:1: messages: cannot be combined with consumerBacklogSizeGB"
    assert problem == f"{conflict} (write testDuration: 30s, the time after the drain)"


SEARCHES = [
    (
        SEARCH + "search: {hold: 30s, confirm: 10s}",
        "5:30: search.confirm: 10.0 s is shorter than search.hold, 30.0 s (write 30.0s or more, or remove it for twice the hold)",
    ),
    (
        SEARCH + "stages: [{duration: 1s}]",
        "5:1: stages: cannot be combined with a search for the highest rate (write a producerRate above 0, or none if each stage has a rate; and no search)",
    ),
    (
        SEARCH + "messages: 5",
        "5:1: messages: cannot be combined with a search for the highest rate (write a producerRate above 0)",
    ),
    (
        SEARCH + "consumerBacklogSizeGB: 1",
        "5:1: consumerBacklogSizeGB: cannot be combined with a search for the highest rate (write a producerRate above 0)",
    ),
    (
        SEARCH + "search: {max: 1MB/s}",
        "5:15: search.max: search.start is in messages per second, this rate is not (write start and max in the same unit, as in search: {start: 1MB/s, max: 1GB/s})",
    ),
    (
        SEARCH + "search: {max: 10}",
        "5:15: search.max: 10 msg/s is below search.start, 1 000 msg/s (write a lower start, or a higher max)",
    ),
    (SEARCH + "search: {start: 0}", "5:17: search.start: 0 must be above 0"),
    (SEARCH + "search: {precision: 2}", "5:21: search.precision: 2 has no unit (write 2%)"),
    (
        SEARCH + "search: {precision: low}",
        "5:21: search.precision: 'low' is not a percentage (write a number and %, as in 2%)",
    ),
    (SEARCH + "search: {holds: 2s}", "5:10: unknown key 'holds' (did you mean hold?)"),
]


@pytest.mark.parametrize(
    ("text", "line"), SEARCHES, ids=[line.split(": ", 1)[1][:50] for _, line in SEARCHES]
)
def test_a_wrong_search_is_an_error_at_its_key(text: str, line: str) -> None:
    assert problems(f"{text}\n") == [f"p.yaml:{line}"]


BYTES = [
    ("messageSize: 20\nmessages: 5", ["3:14: messageSize: 20 B is below the 32 B that a rate in bytes needs (write 32 or more, or producerRate in messages)",
     "4:11: messages: cannot be combined with a rate in bytes (write producerRate in messages, as in 5000/s)"]),
    ("messageSizeDistribution: {0-40: 1, 40-80: 1}\ntestDuration: 1s",
     ["3:27: size range '0-40' has payloads of 20 B, below the 32 B that a rate in bytes needs (begin it at 32, or producerRate in messages)"]),
    ("messageSizeDistribution: {0-256: 1}\npayloadsPerBucket: 16\ntestDuration: 1s",
     ["3:27: size range '0-256' has payloads of 8 B, below the 32 B that a rate in bytes needs (begin it at 32, or producerRate in messages)"]),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "found"), BYTES, ids=[lines for lines, _ in BYTES])
def test_a_rate_in_bytes_needs_the_whole_envelope(lines: str, found: list[str]) -> None:
    """The compact one omits the time, which can be computed only for evenly spaced messages."""
    assert problems(f"name: a\nproducerRate: 1MB/s\n{lines}\n") == [
        f"p.yaml:{line}" for line in found
    ]


def test_too_many_payloads_are_an_error_with_the_largest_number() -> None:
    text = (
        LEAST.replace("messageSize: 100", "messageSizeDistribution: {0-256: 1, 256-512: 1}")
        + "payloadsPerBucket: 40000\n"
    )
    assert problems(text) == [
        "p.yaml:5:20: payloadsPerBucket: 40000 for 2 size ranges are more than 65536 payloads (write 32768 or less)"
    ]
