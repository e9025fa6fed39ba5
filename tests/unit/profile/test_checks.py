"""Checks between the keys of a profile; profiles of runs that only connect."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from pytest_loadtest import profile
from pytest_loadtest.commands.starter import schema_text
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.errors import ProfileError
from pytest_loadtest.values.quantities import MINUTE, SECOND

ONLY = "name: a\nmessages: 0\nsubscriptionsPerTopic: 0\ndriver: {name: mqtt, connectRate: 100}\nslo: {connectLatency: {p50: 1s}}\n"


LEAST = ONLY + "testDuration: 9s\n"


SCHEMA = jsonschema.Draft202012Validator(json.loads(schema_text("profile")))


def loads(text: str) -> profile.Profile:
    return profile.loads(text, "p.yaml")


def fits(text: str) -> bool:
    """Return whether the JSON Schema accepts it."""
    return not list(SCHEMA.iter_errors(yaml.safe_load(text)))


@pytest.mark.parametrize(
    "text",
    [
        LEAST,
        ONLY + "testDurationMinutes: 2\n",
        LEAST + "producerRate: 0\nmessageSize: 16\nwarmupDuration: 1s\n",
    ],
)
def test_a_run_that_only_connects_needs_a_duration_and_no_rate_or_size(text: str) -> None:
    """A rate of 0 asks for no search. Results read back the same."""
    found = loads(text)
    assert (found.connects_only, found.peak_search, found.search, found.connect_rate) == (
        True,
        False,
        None,
        100,
    )
    assert found.test_duration in (9 * SECOND, 2 * MINUTE)
    back = profile.from_document(json.loads(json.dumps(found.document())))
    assert (back.connects_only, back.connect_rate, back.test_duration) == (
        True,
        100,
        found.test_duration,
    )
    assert fits(text)


SENDING = "name: a\nproducerRate: 10\nmessageSize: 100\ntestDuration: 9s\npairConsumers: host\n"


def test_consumers_are_paired_by_host_or_not_at_all() -> None:
    """The key survives results, and is not in those of other profiles."""
    found = loads(SENDING)
    assert (
        profile.from_document(json.loads(json.dumps(found.document()))).pair_consumers
        == found.pair_consumers
        == "host"
    )
    assert "pairConsumers" not in loads(SENDING.replace("pairConsumers: host", "")).document()
    assert fits(SENDING)
    assert not fits(SENDING.replace("host", "worker"))
    with pytest.raises(
        ProfileError, match=r"5:16: pairConsumers: 'worker' is not a valid value \(known: host\)"
    ):
        loads(SENDING.replace("host", "worker"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            SENDING + "subscriptionsPerTopic: 64\n",
            "cannot be combined with 64 subscriptions of a topic or more, which all hosts share",
        ),
        (
            SENDING + "subscriptionsPerTopic: 0\n",
            "has no effect, because no message goes from a producer of this run to a consumer of it",
        ),
        (SENDING + "consumerPerSubscription: 0\n", "has no effect"),
        (LEAST + "pairConsumers: host\n", "has no effect"),
        (
            SENDING.replace("producerRate: 10\n", "producersPerTopic: 0\ntopic: a\n"),
            "has no effect",
        ),
    ],
)
def test_a_pairing_of_nothing_or_of_a_broadcast_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ProfileError, match=rf":\d+:1: pairConsumers: {message}.* \(remove it\)"):
        loads(text)


def test_a_connect_rate_has_an_implicit_objective_of_95_percent() -> None:
    """Unless the profile bounds it; a bound without a rate is an error."""
    asked, said = loads(LEAST), loads(LEAST.replace("slo: {", "slo: {connectRate: 99%, "))
    for found, bound in ((asked, 0.95), (said, 0.99)):
        assert [one.minimum for one in found.objectives if one.metric == "connectRate"] == [bound]
    none = LEAST.replace(", connectRate: 100", "")
    assert not [one for one in loads(none).objectives if one.metric == "connectRate"]
    with pytest.raises(
        ProfileError,
        match=r"5:7: slo.connectRate: driver.connectRate is missing \(write driver: {connectRate: 100}",
    ):
        loads(none.replace("slo: {", "slo: {connectRate: 99%, "))
    with pytest.raises(ProfileError, match="'100/s' is not a share of the connections"):
        loads(LEAST.replace("slo: {", "slo: {connectRate: 100/s, "))


def test_a_run_that_only_subscribes_needs_no_producer_and_no_topic() -> None:
    text = LEAST.replace("subscriptionsPerTopic: 0", "producersPerTopic: 0").replace(
        "connectLatency", "subscribeLatency"
    )
    assert (loads(text).consumer_only, loads(text).connects_only) == (True, True)
    assert fits(text)


def test_a_run_with_messages_may_have_a_connect_rate() -> None:
    """By default it has none."""
    text = "name: a\nproducerRate: 5\nmessageSize: 100\ntestDuration: 1s\n"
    assert loads(text + "driver: {name: mqtt, connectRate: 0.5}\n").connect_rate == 0.5
    assert loads(text + "driver: {name: mqtt}\n").connect_rate is loads(text).connect_rate is None


REFUSED = [
    ("producerRate: 5", "7:15: producerRate: 5 msg/s, but messages: 0 sends none (remove producerRate, or messages; driver.connectRate paces connections)"),
    ("search: true", "7:1: search: finds the highest rate of messages, but messages: 0 sends none (remove search, and write a matrix of driver.connectRate)"),
    ("consumerBacklogSizeGB: 1", "7:24: consumerBacklogSizeGB: messages: 0 builds no backlog (write 0)"),
    ("scaled: {slo: {loss: 0}}", "7:16: scaled.slo.loss: the run has no messages (messages: 0) (bound connectLatency or subscribeLatency or reconnectLatency)"),
    ("producersPerTopic: 0", "2:11: messages: 0 only connects, but the run has no clients (write producersPerTopic: 1)"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), REFUSED)
def test_a_key_for_messages_is_an_error_in_a_run_that_only_connects(
    line: str, expected: str
) -> None:
    """One error each, with its place and what to write."""
    with pytest.raises(ProfileError) as caught:
        loads(LEAST + line + "\n")
    assert expected in [text.removeprefix("p.yaml:") for text in str(caught.value).splitlines()]


def test_another_wrong_key_adds_no_error_about_a_missing_rate() -> None:
    with pytest.raises(ProfileError) as caught:
        loads(LEAST.replace("connectRate: 100", "connectRate: 0"))
    assert str(caught.value) == "p.yaml:4:35: driver.connectRate: 0 must be at least 0.001"


BOUNDS = [
    ("throughput: 99%", "5:7: slo.throughput: the run has no messages (messages: 0) (bound connectLatency or subscribeLatency or reconnectLatency)"),
    ("endToEndLatency: {p99: 1s}", "5:7: slo.endToEndLatency: the run has no messages (messages: 0) (bound connectLatency or subscribeLatency or reconnectLatency)"),
    ("loss: 0", "5:7: slo.loss: the run has no messages (messages: 0) (bound connectLatency or subscribeLatency or reconnectLatency)"),
    ("custom: {mine: 5}", "5:7: slo.custom: the run has no messages (messages: 0) (bound connectLatency or subscribeLatency or reconnectLatency)"),
    ("subscribeLatency: {p50: 1s}", "5:7: slo.subscribeLatency: the run has no consumers (bound connectLatency)"),
    ("connectRate: 90%", "2:11: messages: 0 only connects, but slo bounds no latency of connecting (write slo: {connectLatency: {mean: 500ms}})"),
    ("", "2:11: messages: 0 only connects, but slo bounds no latency of connecting (write slo: {connectLatency: {mean: 500ms}})"),
]  # fmt: skip


@pytest.mark.parametrize(("bound", "expected"), BOUNDS)
def test_an_objective_that_cannot_be_measured_is_one_error(bound: str, expected: str) -> None:
    """Before any broker is started."""
    with pytest.raises(ProfileError) as caught:
        loads(LEAST.replace("connectLatency: {p50: 1s}", bound))
    assert str(caught.value) == f"p.yaml:{expected}"


@pytest.mark.parametrize("name", ["pulsar", "loopback"])
def test_clients_that_share_connections_have_no_connect_latency(name: str) -> None:
    """Nor a rate of connections."""
    with pytest.raises(ProfileError, match=f"clients of {name} do not report how long that took"):
        loads(LEAST.replace("{name: mqtt, connectRate: 100}", f"{{name: {name}}}"))
    with pytest.raises(ProfileError, match="connectRate"):
        loads(LEAST.replace("mqtt", name))


def test_a_run_without_messages_needs_a_duration() -> None:
    with pytest.raises(ProfileError, match="testDuration is missing"):
        loads(ONLY)
    assert not fits(ONLY)


@pytest.mark.parametrize(
    ("changes", "messages", "rate", "seconds"),
    [
        ({"testDuration": "2s"}, 0, 0, 2),
        ({"testDurationMinutes": 1}, 0, 0, 60),
        ({"driver.connectRate": 5}, 0, 0, 9),
        ({"producerRate": 7, "messageSize": 64}, None, 7, 9),
        ({"messages": 14, "producerRate": 7, "messageSize": 64}, 14, 7, 2),
        ({"messages": None, "producerRate": 7, "messageSize": 64}, None, 7, 9),
        ({"stages": [{"duration": "3s"}], "producerRate": 7, "messageSize": 64}, None, 7, 3),
    ],
)
def test_a_mark_replaces_messages_and_durations(
    tmp_path: Path, changes: dict[str, object], messages: int | None, rate: float, seconds: int
) -> None:
    """Another duration leaves messages: 0; a number of messages replaces it."""
    path = tmp_path / "p.yaml"
    path.write_text(LEAST)
    found = profile.override(path, changes)
    assert (found.messages, found.producer_rate, found.test_duration) == (
        messages,
        rate,
        seconds * SECOND,
    )


def test_messages_0_replaces_a_rate(tmp_path: Path) -> None:
    """As in a matrix with and without messages; the duration stays."""
    path = tmp_path / "p.yaml"
    path.write_text(
        "name: a\nproducerRate: 5\nmessageSize: 100\ntestDuration: 3s\ndriver: {name: mqtt}\nslo: {loss: 0}\n"
    )
    found = profile.override(path, {"messages": 0, "slo": {"connectLatency": {"p50": "1s"}}})
    assert (found.connects_only, found.producer_rate, found.test_duration) == (True, 0, 3 * SECOND)


FOLDER = Path(__file__).parents[3] / "profiles"


@pytest.mark.parametrize(
    ("security", "tls", "version"),
    [
        ("plain", False, None),
        ("tls13-chacha20", True, "TLSv1.3"),
        ("tls12", True, "TLSv1.2"),
        ("tlsClientCert", True, "TLSv1.3"),
    ],
)
def test_a_cell_of_connburst_has_the_rate_and_transport_of_its_name(
    security: str, tls: bool, version: str | None
) -> None:
    path = profile.find("mqtt/connburst", FOLDER)
    (one,) = profile.matrix_of(
        path, {"clients": "10K-clients", "security": security, "rate": "2000-a-second"}
    )
    found = profile.override(path, one.changes)
    assert (found.producers_per_topic, found.subscriptions_per_topic, found.connect_rate) == (
        10_000,
        0,
        2000,
    )
    assert isinstance(found.driver, MqttSettings)
    assert (found.driver.tls and found.driver.tls.version) == version
    secured = found.target.security if found.target else None
    assert bool(secured and secured.tls) == tls
    assert bool(secured and secured.auth == "tls") == (security == "tlsClientCert")


def test_the_connections_of_the_suite_have_no_sizes_and_bounds_of_messages() -> None:
    """10 000 at a hundred a second, held for half an hour."""
    path = profile.find("mqtt/mqttbs", FOLDER)
    (one,) = profile.matrix_of(path, {"case": "conn-tcp-10K-100"})
    found = profile.override(path, one.changes)
    assert (
        found.connects_only,
        found.producers_per_topic,
        found.producer_only,
        found.connect_rate,
    ) == (True, 10_000, True, 100)
    assert (found.test_duration, list(found.slo)) == (30 * MINUTE, ["connectLatency"])


HEAD = "name: a\nproducerRate: 1\ntestDuration: 1s\n"


ORDINARY = HEAD + "messageSize: 100\n"


MIX = HEAD + "messageSizeDistribution:\n"


def problems(text: str) -> str:
    with pytest.raises(ProfileError) as caught:
        profile.loads(text, "p.yaml")
    return str(caught.value)


WRONG_MIXES = [
    (
        '  "0-256": 0',
        "5:12: messageSizeDistribution.0-256: 0 must be at least 1 (remove the bucket)",
    ),
    (
        '  "0-256": 5\n  "256-512": 0',
        "6:14: messageSizeDistribution.256-512: 0 must be at least 1 (remove the bucket)",
    ),
    (
        '  "0-256": -1',
        "5:12: messageSizeDistribution.0-256: -1 must be at least 1 (remove the bucket)",
    ),
    (
        '  "0-256": 1e3',
        "5:12: messageSizeDistribution.0-256: '1e3' is text, not a whole number (write 1000)",
    ),
    ("  {}", "5:3: messageSizeDistribution is empty (give it a value, or remove the key)"),
    ("  []", "5:3: messageSizeDistribution: a list is not a mapping"),
    (
        '  "256-0": 1',
        "5:3: messageSizeDistribution.256-0: size range '256-0' is empty (the second size, which is excluded, must be above 256)",
    ),
    (
        '  "64-64": 1',
        "5:3: messageSizeDistribution.64-64: size range '64-64' is empty (the second size, which is excluded, must be above 64)",
    ),
    (
        '  "big": 1',
        "5:3: messageSizeDistribution.big: 'big' is not a size range (write two sizes, as in 1KB-4KB)",
    ),
    (
        '  "1-2-3": 1',
        "5:3: messageSizeDistribution.1-2-3: '1-2-3' is not a size range (write two sizes, as in 1KB-4KB)",
    ),
    (
        '  "0-1KB": 1\n  "1000-2000": 1',
        "6:3: size range '1000-2000' overlaps '0-1KB' (write ranges that meet but do not overlap: the high end is excluded)",
    ),
    (
        '  "1000-2000": 1\n  "0-1KB": 1',
        "5:3: size range '1000-2000' overlaps '0-1KB' (write ranges that meet but do not overlap: the high end is excluded)",
    ),
    (
        '  "0-10": 1',
        "5:3: size range '0-10' has no size of 16 B or more, which the envelope needs (end it above 16)",
    ),
    (
        '  "6MB-7MB": 1',
        "5:3: size range '6MB-7MB' starts above what the broker takes, 5241856 B (remove it)",
    ),
    (
        "  0-256: 1\nmessageSize: 100",
        "6:1: messageSizeDistribution and messageSize exclude each other (keep one, e.g. messageSizeDistribution)",
    ),
]


@pytest.mark.parametrize(("lines", "line"), WRONG_MIXES, ids=[lines for lines, _ in WRONG_MIXES])
def test_a_wrong_range_or_weight_is_an_error_at_its_entry(lines: str, line: str) -> None:
    assert problems(f"{MIX}{lines}\n").splitlines() == [f"p.yaml:{line}"]


def test_every_range_inside_a_wide_one_overlaps() -> None:
    """Not only neighbours are compared."""
    assert len(problems(f'{MIX}  "0-1000": 1\n  "100-200": 1\n  "300-400": 1\n').splitlines()) == 2


CONFLICTS = [
    (
        "testDurationMinutes: 1",
        "5:1: testDuration and testDurationMinutes exclude each other (keep one, e.g. testDuration)",
    ),
    (
        "warmupDuration: 1s\nwarmupDurationMinutes: 1",
        "6:1: warmupDuration and warmupDurationMinutes exclude each other (keep one, e.g. warmupDuration)",
    ),
    (
        "driver: {name: pulsar, maxPendingMessages: 1, pendingQueueSize: 1}",
        "5:47: driver.maxPendingMessages and driver.pendingQueueSize exclude each other (keep one, e.g. driver.maxPendingMessages)",
    ),
    (
        "driver: {name: pulsar, subscriptionType: Exclusive}\nconsumerPerSubscription: 2",
        "5:42: driver.subscriptionType: Exclusive admits one consumer, consumerPerSubscription says 2 (write Failover, Shared or Key_Shared)",
    ),
    (
        "driver: {name: mqtt, sharedSubscription: false}\nconsumerPerSubscription: 2",
        "5:42: driver.sharedSubscription: without it each of 2 consumers gets every message (write true, or subscriptionsPerTopic for more copies)",
    ),
    (
        "driver: {name: mqtt, protocolVersion: 3.1.1, sessionExpiry: 1min}",
        '5:46: driver.sessionExpiry: MQTT 3.1.1 does not have it (remove it, or write protocolVersion: "5")',
    ),
    (
        "driver: {name: mqtt, protocolVersion: 3.1.1, topicAliasMaximum: 1}",
        '5:46: driver.topicAliasMaximum: MQTT 3.1.1 does not have it (remove it, or write protocolVersion: "5")',
    ),
    (
        "driver: {name: mqtt, protocolVersion: 3.1.1, password: sesame}",
        "5:56: driver.password: MQTT 3.1.1 sends no password without a user name (write username too)",
    ),
    (
        "driver: {name: mqtt, client: library, password: sesame}",
        "5:49: driver.password: paho sends no password without a user name (write username too)",
    ),
    (
        "driver: {name: pulsar, persistence: {ensembleSize: 2, writeQuorum: 3}}",
        "5:24: driver.persistence: needs ackQuorum ≤ writeQuorum ≤ ensembleSize",
    ),
    (
        "driver: {name: pulsar, authentication: {plugin: token}}",
        "5:24: driver.authentication: token needs either token or tokenFile",
    ),
    (
        "driver: {name: pulsar, authentication: {plugin: tls, certFile: a}}",
        "5:24: driver.authentication: tls needs certFile and keyFile",
    ),
    (
        "driver: {name: pulsar, authentication: {plugin: basic, userId: a}}",
        "5:24: driver.authentication: basic needs userId and either password or passwordFile",
    ),
    (
        "target: {security: {auth: tls}}",
        "5:27: target.security.auth: tls needs a TLS port (write tls: true next to it)",
    ),
    (
        "broker: {brokers: 2}\ndriver: {name: mqtt}",
        "5:10: broker.brokers: only Pulsar and Artemis can be started as a cluster, not the driver mqtt (remove brokers)",
    ),
    (
        "broker: {brokers: 3}\ndriver: {name: mqtt, broker: artemis}",
        "5:19: broker.brokers: 3: a cluster of Artemis is a primary and its backup (write 2, or remove brokers for a single one)",
    ),
    (
        "broker: {brokers: 2, bookies: 3}\ndriver: {name: mqtt, broker: artemis}",
        "5:22: broker.bookies: Artemis has no bookies (remove bookies)",
    ),
    (
        "broker: {brokers: 2, settings: {persistence-enabled: false}}\ndriver: {name: mqtt, broker: artemis}",
        "5:54: broker.settings: the backup continues with what the primary has stored, which needs persistence-enabled (remove it, or brokers)",
    ),
    (
        "target: {security: {tls: false}}",
        "5:10: target.security: requires nothing of clients (write tls: true, or auth: token)",
    ),
    (
        "target: {security: {tls: true}, url: 'pulsar://h', adminUrl: 'http://h'}",
        "5:10: target.security: only a broker that the run starts as a process gets keys, but url names another one (remove security, or url, adminUrl)",
    ),
    (
        "target: {security: {tls: true}}\ndriver: {name: loopback}",
        "5:10: target.security: only Pulsar and MQTT brokers can be started with it, not the loopback relay (remove it, or write driver: {name: pulsar})",
    ),
    (
        "target: {security: {tls: true, auth: token}}\ndriver: {name: mqtt}",
        "5:38: target.security.auth: token is for Pulsar (write auth: tls, so that clients of MQTT use certificates)",
    ),
    (
        "target: {security: {tls: subscribers}}",
        "5:26: target.security.tls: only MQTT has a second port for subscribers (write tls: true)",
    ),
    (
        "target: {url: 'pulsar://h', adminUrl: 'http://h', subscriberUrl: 'mqtts://h'}",
        "5:51: target.subscriberUrl: only MQTT has a second address for consumers, not the driver pulsar (remove it)",
    ),
    (
        "target: {image: i, subscriberUrl: 'mqtts://h'}\ndriver: {name: mqtt}",
        "5:17: target.image: an image has no address before it runs (remove image, or url and adminUrl)",
    ),
    (
        "driver: {name: mqtt, tls: {version: TLSv1.3, ciphers: ECDHE-RSA-AES256-GCM-SHA384}}",
        "5:55: driver.tls.ciphers: ECDHE-RSA-AES256-GCM-SHA384 is not a cipher of TLSv1.3 (write e.g. TLS_AES_256_GCM_SHA384, or another version)",
    ),
    (
        "target: {security: {tls: true}}\ndriver: {name: mqtt, broker: artemis, tls: {ciphers: ECDHE-RSA-AES256-GCM-SHA384}}",
        "6:54: driver.tls.ciphers: ECDHE-RSA-AES256-GCM-SHA384 is not Java's name of a cipher, and Artemis runs in Java (name ciphers of TLS 1.3 only)",
    ),
    (
        "driver: {name: mqtt, tls: {keyFile: key.pem}}",
        "5:37: driver.tls.keyFile: a key without its certificate (write certFile too)",
    ),
    (
        "target: {url: 'mqtt://h'}\ndriver: {name: mqtt, broker: mosquitto}",
        "6:30: driver.broker: the run starts mosquitto, but target.url names another broker (leave out broker, or target.url)",
    ),
    (
        "target: {image: mosquitto}\ndriver: {name: mqtt, broker: artemis}",
        "6:30: driver.broker: the run starts artemis, but target.image names another broker (leave out broker, or target.image)",
    ),
]


@pytest.mark.parametrize(
    ("lines", "line"), CONFLICTS, ids=[lines.splitlines()[0] for lines, _ in CONFLICTS]
)
def test_a_contradiction_between_two_keys_is_one_error(lines: str, line: str) -> None:
    """Each key alone is valid."""
    assert problems(f"{ORDINARY}{lines}\n").splitlines() == [f"p.yaml:{line}"]


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (
            "messageSize: 15",
            "4:14: messageSize: 15 B is below the 16 B of the smallest envelope (write 16 or more)",
        ),
        (
            "messageSize: 18\nchecksum: true",
            "4:14: messageSize: 18 B leaves no room for the checksum behind an envelope of 16 B (write 20 or more, or checksum: false)",
        ),
        (
            "messageSize: 33\nchecksum: true",
            "4:14: messageSize: 33 B leaves no room for the checksum behind an envelope of 32 B (write 36 or more, or checksum: false)",
        ),
        (
            "messageSize: 6MB",
            "4:14: messageSize: 6291456 B is above what the broker takes, 5241856 B (write 5241856 or less, or raise broker.settings.maxMessageSize)",
        ),
        (
            "messageSize: 2001\ndriver: {name: mqtt}\nbroker: {settings: {message_size_limit: 2000}}",
            "4:14: messageSize: 2001 B is above what the broker takes, 2000 B (write 2000 or less, or raise broker.settings.message_size_limit)",
        ),
        (
            "payloadFile: a",
            '1:1: messageSize is missing (write messageSize: 1KB, or messageSizeDistribution: {"0-256": 3, "256-1KB": 1})',
        ),
    ],
)
def test_a_size_that_cannot_be_sent_is_an_error(lines: str, line: str) -> None:
    """The envelope needs room, the broker has a limit, and a size is required."""
    assert problems(f"{HEAD}{lines}\n").splitlines() == [f"p.yaml:{line}"]


STREAMS = "streams (topics × producersPerTopic), at most 20,000,000 are possible"


CONSUMERS = "consumers (topics × subscriptionsPerTopic × consumerPerSubscription), at most 20,000,000 are possible"


PARTITIONS = "partitions (topics × partitionsPerTopic), at most 20,000,000 are possible"


CROWDS = [
    (
        "topics: 1000000000",
        f"p.yaml:5:9: topics: 1000000000 gives 1,000,000,000 {STREAMS} (write 20000000 or less)",
        f"p.yaml:5:9: topics: 1000000000 gives 1,000,000,000 {PARTITIONS} (write 20000000 or less)",
        f"p.yaml:5:9: topics: 1000000000 gives 1,000,000,000 {CONSUMERS} (write 20000000 or less)",
    ),
    (
        "topics: 5000\nproducersPerTopic: 4001\nsubscriptionsPerTopic: 0",
        f"p.yaml:5:9: topics: 5000 gives 20,005,000 {STREAMS} (write 4998 or less)",
    ),
    (
        "topics: 2\nsubscriptionsPerTopic: 10000001",
        f"p.yaml:6:24: subscriptionsPerTopic: 10000001 gives 20,000,002 {CONSUMERS} (write 10000000 or less)",
    ),
    (
        "consumerPerSubscription: 20000001\nproducersPerTopic: 20000001",
        f"p.yaml:5:26: consumerPerSubscription: 20000001 gives 20,000,001 {CONSUMERS} (write 20000000 or less)",
        f"p.yaml:6:20: producersPerTopic: 20000001 gives 20,000,001 {STREAMS} (write 20000000 or less)",
    ),
]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [(lines, expected) for lines, *expected in CROWDS],
    ids=[lines for lines, *_ in CROWDS],
)
def test_too_many_clients_are_an_error_at_the_largest_number(
    lines: str, expected: list[str]
) -> None:
    """Before anything is made from the numbers."""
    assert (
        problems(
            f"{ORDINARY}{lines}\ndriver: {{name: pulsar, subscriptionType: Shared}}\n"
        ).splitlines()
        == expected
    )


def test_the_largest_number_of_clients_is_allowed() -> None:
    assert profile.loads(f"{ORDINARY}topics: 20000000\n", "p.yaml").topics == 20_000_000


def test_a_message_size_next_to_ranges_of_stages_is_one_of_the_ranges() -> None:
    def staged(ranges: int) -> profile.Profile:
        sizes = {f"{64 * number}-{64 * number + 64}": 1 for number in range(1, ranges + 1)}
        stages = json.dumps([{"duration": "1s", "messageSizeDistribution": sizes}])
        text = "name: p\nproducerRate: 1\nmessageSize: 64\n"
        return loads(f"{text}stages: {stages}\n")

    assert len(staged(255).stages[0].buckets or ()) == 255
    with pytest.raises(ProfileError, match="messageSizeDistribution: more than 256 ranges"):
        staged(256)
