"""Profiles that are wrong: every problem at once, with its place, the offending value and what to write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest import profile
from pytest_loadtest.errors import ProfileError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "name: a\nproducerRate: 1\ntestDuration: 1s\n"
LEAST = HEAD + "messageSize: 100\n"
MIX = HEAD + "messageSizeDistribution:\n"


def problems(text: str) -> str:
    with pytest.raises(ProfileError) as caught:
        profile.loads(text, "p.yaml")
    return str(caught.value)


YAML_TRAPS = [
    ("producerRate: 1e6", "p.yaml:1:15: producerRate: '1e6' is text, not a number (write 1000000)"),
    ('topics: "10"', "p.yaml:1:9: topics: '10' is text, not a whole number (write 10)"),
    ("topics: 2.5", "p.yaml:1:9: topics: 2.5 is not a whole number (write 2)"),
    ("topics: 010", "p.yaml:1:9: topics: YAML reads 010 as 8 (write 10, or 8 if that is meant)"),
    ("topics: 0x10", "p.yaml:1:9: topics: YAML reads 0x10 as 16 (write 16)"),
    ("topics: true", "p.yaml:1:9: topics: true is not a whole number"),
    ("testDuration: 1:30", "p.yaml:1:15: testDuration: YAML reads 1:30 as 90 (for minutes and seconds write 90s; for text quote it)"),
    ("name: no", 'p.yaml:1:7: name: YAML reads no as false (write false, or "no" for the text)'),
    ("checksum: on", 'p.yaml:1:11: checksum: YAML reads on as true (write true, or "on" for the text)'),
    ("checksum: 1", "p.yaml:1:11: checksum: 1 is not true or false (write true or false)"),
    ("name: 2026", 'p.yaml:1:7: name: 2026 is not text (quote it: "2026")'),
    ("name: ''", "p.yaml:1:7: name is empty (give it a value, or remove the key)"),
    ("name:", "p.yaml:1:6: name: no value (give it one, or remove the key)"),
    ("producerRate: .inf", "p.yaml:1:15: producerRate: Input should be a finite number"),
    ("broker: {version: 4.10}", 'p.yaml:1:19: broker.version: 4.10 is not text (quote it: "4.10")'),
    ("name: !!python/none x", "p.yaml:1:7: name: tag !!python/none is not allowed (remove it)"),
    ("topics: !!int x", "p.yaml:1:9: topics: 'x' is not what its tag says (remove the tag)"),
    ("slo: !!set {loss}", "p.yaml:1:6: slo: tag !!set is not allowed (remove it)"),
    ("name: &x a\ndescription: *x", "p.yaml:2:1: description: aliases (*name) are not read (write the value out)"),
    ("slo: &x {loss: *x}", "p.yaml:1:10: slo.loss: aliases (*name) are not read (write the value out)"),
    ("broker: {<<: {version: a}}", "p.yaml:1:10: merge keys (<<) are not read (write the keys out)"),
    ("? [a, b]\n: 1", "p.yaml:1:3: a key must be text, not a list"),
    ("topics: 1\nname: a\ntopics: 2", "p.yaml:3:1: duplicate key 'topics', first in line 1 (remove one)"),
    ("slo: {loss: 0, loss: 1}", "p.yaml:1:16: duplicate key 'loss', first in line 1 (remove one)"),
]


@pytest.mark.parametrize(("text", "line"), YAML_TRAPS, ids=[text for text, _ in YAML_TRAPS])
def test_yaml_traps(text: str, line: str) -> None:
    """What YAML 1.1 reads otherwise than people do is an error that says so."""
    assert line in problems(text + "\n").splitlines()


NOT_YAML = [
    ("", "p.yaml:1:1: the profile is empty"),
    ("# nothing\n", "p.yaml:1:1: the profile is empty"),
    ("- a\n- b\n", "p.yaml:1:1: a profile is a mapping, not a list"),
    ("prod-2m\n", "p.yaml:1:1: a profile is a mapping, not 'prod-2m'"),
    ("name: a\nslo:\n  loss: [0\n", "p.yaml:4:1: not valid YAML: while parsing a flow sequence"),
    ("slo:\n\tloss: 0\n", "p.yaml:2:1: not valid YAML: while scanning for the next token, found character '\\t'"),
    ("slo:\n  throughput: >= 95%\n", "p.yaml:2:16: not valid YAML: while scanning a block scalar"),
    ("name: @home\n", "p.yaml:1:7: not valid YAML: while scanning for the next token, found character '@'"),
    ("name: a\x00b\n", "p.yaml:1:8: character U+0000 is not allowed in YAML"),
    ("name: a\n---\nname: b\n", "p.yaml:2:1: not valid YAML: expected a single document in the stream"),
    ("a: " + "[" * 1500, "p.yaml:1:1: nested too deeply"),
]


@pytest.mark.parametrize(("text", "start"), NOT_YAML, ids=[repr(text[:20]) for text, _ in NOT_YAML])
def test_not_a_profile_at_all(text: str, start: str) -> None:
    """An empty file, another document and broken YAML have a place too."""
    assert problems(text).startswith(start)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("slo:\n\tloss: 0\n", "(indent with spaces, not with tabs)"),
        ("slo:\n  throughput: >= 95%\n", "(write the bound alone, 95%: each metric knows its direction)"),
        ("name: @home\n", '(quote the value: "@home")'),
    ],
)
def test_broken_yaml_says_what_to_write(text: str, hint: str) -> None:
    """The usual slips come with their remedy."""
    assert problems(text).endswith(hint)


WRONG_KEYS = [
    ("prodcerRate: 1", "5:1: unknown key 'prodcerRate' (did you mean producerRate?)"),
    ("producer_rate: 1", "5:1: unknown key 'producer_rate' (did you mean producerRate?)"),
    ("ioThreads: 1", "5:1: unknown key 'ioThreads' (ioThreads belongs under driver (name: pulsar))"),
    ("adminUrl: x", "5:1: unknown key 'adminUrl' (adminUrl belongs under target)"),
    ("driver: {name: pulsar, ioThread: 1}", "5:24: unknown key 'ioThread' (did you mean ioThreads?)"),
    ("driver: {name: pulsar, qos: 1}", "5:24: unknown key 'qos' (qos belongs under driver (name: mqtt))"),
    ("driver: {name: pulsar, topics: 1}", "5:24: unknown key 'topics' (topics belongs under the top level)"),
    ("driver: {name: pulsar, serviceUrl: x}", "5:24: unknown key 'serviceUrl' (write target: {url: …} beside driver)"),
    ("chunking: true\ndriver: {name: pulsar}", "5:1: unknown key 'chunking' (write driver: {chunkingEnabled: true})"),
    ("driver: {name: pulsar, chunking: true}", "5:24: unknown key 'chunking' (write driver: {chunkingEnabled: true})"),
    ("enableBatching: false\ndriver: {name: pulsar}", "5:1: unknown key 'enableBatching' (write driver: {batchingEnabled: false})"),
    ("chunking: true\ndriver: {name: mqtt}", "5:1: unknown key 'chunking' (chunkingEnabled belongs under driver (name: pulsar))"),
    ("driver: {name: loopback, stall: {at: 1s, duration: 1s, n: 1}}", "5:56: unknown key 'n' (known: at, duration)"),
    ("driver: {name: kafka}", "5:16: driver.name: 'kafka' is not a driver (known: pulsar, mqtt, loopback)"),
    ("driver: {name: pulsr}", "5:16: driver.name: 'pulsr' is not a driver (did you mean pulsar?)"),
    ("driver: {ioThreads: 8}", "5:1: driver.name is missing (write name: pulsar | mqtt | loopback)"),
    ("driver: {name: loopback, stall: {at: 1s}}", "5:26: driver.stall.duration is missing"),
    ("driver: pulsar", "5:9: driver: 'pulsar' is text, not a mapping"),
    ("scalable: topics", "5:11: scalable: 'topics' is text, not a list"),
    ("scalable: [topic]", "5:12: scalable.0: 'topic' is not a valid value (did you mean topics?)"),
    ("target: {adminUrl: http://a}", "5:9: target.url is missing (write url: pulsar://host:port, or image: IMAGE)"),
    (
        "target: {url: pulsar://a, image: b}",
        "5:34: target.image: an image has no address before it runs (remove image, or url and adminUrl)",
    ),
]


@pytest.mark.parametrize(("lines", "line"), WRONG_KEYS, ids=[lines for lines, _ in WRONG_KEYS])
def test_wrong_keys(lines: str, line: str) -> None:
    """A key that is unknown, misplaced or missing is told apart, with the nearest right one."""
    assert problems(f"{LEAST}{lines}\n").splitlines() == [f"p.yaml:{line}"]


WRONG_VALUES = [
    ("topics: 0", "5:9: topics: 0 must be at least 1"),
    ("drainTimeout: 30", "5:15: drainTimeout: 30 has no unit (write 30s, or another of ns, us, ms, s, min, h, d)"),
    ("drainTimeout: 30 secs", "5:15: drainTimeout: '30 secs' is not a duration (did you mean 30s?)"),
    ("drainTimeout: 3KB", "5:15: drainTimeout: '3KB' is not a duration (write a number and a unit: ns, us, ms, s, min, h, d)"),
    ("drainTimeout: -3s", "5:15: drainTimeout: '-3s' is not a duration (write a number and a unit: ns, us, ms, s, min, h, d)"),
    ("randomBytesRatio: 1.5", "5:19: randomBytesRatio: 1.5 must be at most 1"),
    ("generator: {cpu: 0}", "5:18: generator.cpu: 0 must be above 0"),
    ("keyDistributor: RANDOM", "5:17: keyDistributor: 'RANDOM' is not a valid value (did you mean RANDOM_NANO?)"),
    ("driver: {name: mqtt, qos: 3}", "5:27: driver.qos: 3 is not a valid value (known: 0, 1, 2)"),
    (
        "driver: {name: mqtt, keepAlive: 500ms}",
        "5:33: driver.keepAlive: 500 ms is not a whole number of seconds (write whole seconds: MQTT has no smaller unit)",
    ),
    (
        "driver: {name: pulsar, batchingMaxBytes: 1 XB}",
        "5:42: driver.batchingMaxBytes: '1 XB' is not a size (write bytes, or a number and B, KB, MB or GB (1KB is 1024 bytes))",
    ),
    ("driver: {name: loopback, client: native}", "5:34: driver.client: loopback has no native client (write library)"),
    ("driver: {name: pulsar, client: paho}", "5:32: driver.client: 'paho' is not a valid value (known: library, native)"),
    ("driver: {name: pulsar, namespacePrefix: x}", r"5:41: driver.namespacePrefix: 'x' does not match ^[\w.=:-]+/[\w.=:-]+$"),
    (
        "broker: {settings: {maxMessageSize: 1MB}}",
        "5:37: broker.settings.maxMessageSize: '1MB' is not a number of bytes (write 5242880)",
    ),
    (
        "target: {url: mqtt://a}",
        "5:15: target.url: 'mqtt://a' is not for the driver pulsar (write pulsar://host:port, or another driver.name)",
    ),
]


@pytest.mark.parametrize(("lines", "line"), WRONG_VALUES, ids=[lines for lines, _ in WRONG_VALUES])
def test_wrong_values(lines: str, line: str) -> None:
    """A value out of range, of another kind or with the wrong unit is shown with what fits."""
    assert problems(f"{LEAST}{lines}\n").splitlines() == [f"p.yaml:{line}"]


WRONG_MIXES = [
    ('  "0-256": 0', "5:12: messageSizeDistribution.0-256: 0 must be at least 1 (remove the bucket)"),
    ('  "0-256": 5\n  "256-512": 0', "6:14: messageSizeDistribution.256-512: 0 must be at least 1 (remove the bucket)"),
    ('  "0-256": -1', "5:12: messageSizeDistribution.0-256: -1 must be at least 1 (remove the bucket)"),
    ('  "0-256": 1e3', "5:12: messageSizeDistribution.0-256: '1e3' is text, not a whole number (write 1000)"),
    ("  {}", "5:3: messageSizeDistribution is empty (give it a value, or remove the key)"),
    ("  []", "5:3: messageSizeDistribution: a list is not a mapping"),
    (
        '  "256-0": 1',
        "5:3: messageSizeDistribution.256-0: size range '256-0' is empty (it holds sizes from 256 up to, but without, 0; the larger goes second)",
    ),
    (
        '  "64-64": 1',
        "5:3: messageSizeDistribution.64-64: size range '64-64' is empty (it holds sizes from 64 up to, but without, 64; the larger goes second)",
    ),
    ('  "big": 1', "5:3: messageSizeDistribution.big: 'big' is not a size range (write two sizes, as in 1KB-4KB)"),
    ('  "1-2-3": 1', "5:3: messageSizeDistribution.1-2-3: '1-2-3' is not a size range (write two sizes, as in 1KB-4KB)"),
    (
        '  "0-1KB": 1\n  "1000-2000": 1',
        "6:3: size range '1000-2000' overlaps '0-1KB' (write ranges that meet but do not overlap: the high end is excluded)",
    ),
    (
        '  "1000-2000": 1\n  "0-1KB": 1',
        "5:3: size range '1000-2000' overlaps '0-1KB' (write ranges that meet but do not overlap: the high end is excluded)",
    ),
    ('  "0-10": 1', "5:3: size range '0-10' has no size of 16 B or more, which the envelope needs (end it above 16)"),
    ('  "6MB-7MB": 1', "5:3: size range '6MB-7MB' starts above what the broker takes, 5241856 B (remove it)"),
    (
        "  0-256: 1\nmessageSize: 100",
        "6:1: messageSizeDistribution and messageSize exclude each other (keep one, e.g. messageSizeDistribution)",
    ),
]


@pytest.mark.parametrize(("lines", "line"), WRONG_MIXES, ids=[lines for lines, _ in WRONG_MIXES])
def test_wrong_distributions(lines: str, line: str) -> None:
    """Ranges and weights that mean nothing are errors at the entry itself."""
    assert problems(f"{MIX}{lines}\n").splitlines() == [f"p.yaml:{line}"]


def test_every_range_inside_a_wide_one_overlaps() -> None:
    """Not only neighbours are compared."""
    assert len(problems(f'{MIX}  "0-1000": 1\n  "100-200": 1\n  "300-400": 1\n').splitlines()) == 2


CONFLICTS = [
    ("testDurationMinutes: 1", "5:1: testDuration and testDurationMinutes exclude each other (keep one, e.g. testDuration)"),
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
        "driver: {name: pulsar, persistence: {ensembleSize: 2, writeQuorum: 3}}",
        "5:24: driver.persistence: needs ackQuorum ≤ writeQuorum ≤ ensembleSize",
    ),
    ("driver: {name: pulsar, authentication: {plugin: token}}", "5:24: driver.authentication: token needs either token or tokenFile"),
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
    ("target: {security: {tls: false}}", "5:10: target.security: requires nothing of clients (write tls: true, or auth: token)"),
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


@pytest.mark.parametrize(("lines", "line"), CONFLICTS, ids=[lines.splitlines()[0] for lines, _ in CONFLICTS])
def test_keys_that_contradict_each_other(lines: str, line: str) -> None:
    """Each key alone would do, both together do not."""
    assert problems(f"{LEAST}{lines}\n").splitlines() == [f"p.yaml:{line}"]


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ("messageSize: 15", "4:14: messageSize: 15 B is below the 16 B of the smallest envelope (write 16 or more)"),
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
        ("payloadFile: a", '1:1: messageSize is missing (write messageSize: 1KB, or messageSizeDistribution: {"0-256": 3, "256-1KB": 1})'),
    ],
)
def test_sizes_that_cannot_be_sent(lines: str, line: str) -> None:
    """The envelope needs its room, the broker has its limit, and some size must be given."""
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


@pytest.mark.parametrize(("lines", "expected"), [(lines, expected) for lines, *expected in CROWDS], ids=[lines for lines, *_ in CROWDS])
def test_more_clients_than_can_be(lines: str, expected: list[str]) -> None:
    """Told at the largest of the numbers that multiply, before anything is made of them."""
    assert problems(f"{LEAST}{lines}\ndriver: {{name: pulsar, subscriptionType: Shared}}\n").splitlines() == expected


def test_as_many_clients_as_can_be() -> None:
    """The bound itself is allowed."""
    assert profile.loads(f"{LEAST}topics: 20000000\n", "p.yaml").topics == 20_000_000


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
    ("topics: 1", "throughput: 120%", "6:19: slo.throughput: '120%' is more than all (write 100% or less)"),
    ("topics: 1", "endToEndLatency: {p99: 5}", "6:30: slo.endToEndLatency.p99: '5' has no unit (write 5ms or 5s)"),
]


@pytest.mark.parametrize(("driver", "slo", "line"), OBJECTIVES, ids=[f"{slo} with {driver}" for driver, slo, _ in OBJECTIVES])
def test_objectives_that_cannot_be_judged(driver: str, slo: str, line: str) -> None:
    """An objective on a thing that is not there, or that makes no sense, is an error at its place in the file."""
    assert problems(f"{LEAST}{driver}\nslo: {{{slo}}}\n").splitlines() == [f"p.yaml:{line}"]


def test_percentile_out_of_range() -> None:
    """p100 and more are no percentiles."""
    assert "p.yaml:5:25: slo.endToEndLatency.p101: percentile 101 is out of range" in problems(
        LEAST + "slo: {endToEndLatency: {p101: 5ms}}\n"
    )


def test_all_at_once() -> None:
    """Problems of the text, of single values, between keys and of the objectives come together, in the order of the file."""
    text = """\
name: no
topics: 3
topics: 4
prodcerRate: 5
messageSize: 100
messageSizeDistribution: {"0-10": 0, "256-1024": 1, "512-2048": 1}
testDuration: 30 sec
testDurationMinutes: 1
driver:
  name: mqtt
  qos: 0
slo:
  endToEndLatency: {p101: 1ms}
target: {url: pulsar://x}
"""
    places = [line.split(": ")[0].removeprefix("p.yaml:") for line in problems(text).splitlines()]
    assert places == ["1:1", "1:7", "3:1", "4:1", "5:1", "6:35", "6:53", "7:15", "8:1", "13:21", "14:15"]


def test_wrong_value_hides_nothing_else() -> None:
    """A check between keys still runs when other keys are wrong, and does not speak of those that are."""
    found = problems(
        f"{LEAST}topics: x\ndriver: {{name: mqtt, qos: 7}}\nslo: {{publishLatency: {{p50: 1s}}, outOfOrder: 0}}\nconsumerPerSubscription: 2\n"
    )
    assert [line.split(":")[1:3] for line in found.splitlines()] == [["5", "9"], ["6", "27"], ["7", "34"]]


def test_no_such_profile(tmp_path: Path) -> None:
    """A wrong name comes with the nearest right one; an empty folder with the option that names another."""
    with pytest.raises(UsageError, match="load_profiles"):
        profile.find("smoke", tmp_path)
    (tmp_path / "smoke.yaml").write_text(LEAST)
    with pytest.raises(UsageError, match=r"no profile 'smok' in .* \(did you mean smoke\?\)"):
        profile.find("smok", tmp_path)
    with pytest.raises(UsageError, match=r"no profile file a/smoke\.yaml"):
        profile.find("a/smoke.yaml", tmp_path)


def test_file_that_is_no_text(tmp_path: Path) -> None:
    """A byte that is not UTF-8 has a place; a folder is no file."""
    file = tmp_path / "a.yaml"
    file.write_bytes(b"name: a\nname: \xff\n")
    with pytest.raises(ProfileError, match=r"a\.yaml:2:7: byte 0xff is not UTF-8 \(save the file as UTF-8\)"):
        profile.load(file)
    with pytest.raises(UsageError, match="is not a regular file"):
        profile.load(tmp_path)


def test_payload_file_missing_or_of_another_size(tmp_path: Path) -> None:
    """A payload file must be there and have the size that the profile says."""
    found = profile.loads(LEAST + "payloadFile: a.data\n", "p.yaml")
    with pytest.raises(UsageError, match=r"payloadFile .*a\.data cannot be read"):
        profile.payload(found, tmp_path / "p.yaml")
    (tmp_path / "a.data").write_bytes(bytes(99))
    with pytest.raises(UsageError, match="has 99 B, but messageSize is 100 B: write messageSize: 99"):
        profile.payload(found, tmp_path / "p.yaml")


WORDS = """name topics driver slo messageSize target broker qos p99 loss scalable url x stages workloads matrix search rate sine from replay
    duration producersPerTopic buckets driver.qos"""
KEYS = st.sampled_from(WORDS.split())
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 300)
    | st.floats()
    | st.sampled_from(["1e6", "pulsar", "mqtt", "5s", "99%", "1KB", "", "0-9"])
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12)


@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_mapping_is_a_profile_or_a_list_of_problems(value: dict[str, object]) -> None:
    """Whatever the values, the only error is ProfileError, and each problem has a line of the text and says something."""
    text = "\n".join(f"{key}: {_flow(item)}" for key, item in value.items())
    with pytest.raises(ProfileError) as caught:
        profile.loads(text, "p.yaml")
    assert all(1 <= problem.line <= max(1, len(value)) and problem.message for problem in caught.value.problems)


@given(st.text())
def test_any_text_is_a_profile_or_a_list_of_problems(text: str) -> None:
    """Whatever the text, the only error is ProfileError."""
    with pytest.raises(ProfileError):
        profile.loads(text, "p.yaml")


def _flow(value: object) -> str:
    """YAML in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return "~" if value is None else f'"{value}"' if isinstance(value, str) and not value.isalnum() else str(value)


@pytest.mark.parametrize(
    ("key", "address"),
    [
        ("url", "mqtt://user:secret@host"),
        ("url", "mqttx://user:secret@host"),
        ("url", "secret@host"),
        ("adminUrl", "http://user:secret@host"),
        ("subscriberUrl", "mqtts://user:secret@host"),
    ],
)
def test_users_and_passwords_of_a_target_are_not_shown(key: str, address: str) -> None:
    """They belong to the driver, whose secrets no result has."""
    url = "" if key == "url" else "url: mqtt://host, "
    (line,) = [
        line
        for line in problems(f"{LEAST}driver: {{name: mqtt}}\ntarget: {{{url}{key}: '{address}'}}\n").splitlines()
        if "***@host" in line
    ]
    assert line.startswith("p.yaml:6:")
    assert "an address has no user and no password (write driver.username and driver.password" in line
    assert "secret" not in line
