"""Valid profiles as Python objects."""

from __future__ import annotations

import json
import pickle

import pytest
from pydantic import ValidationError

from pytest_loadtest import profile
from pytest_loadtest.drivers.loopback.settings import LoopbackSettings
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.message.payloads import Bucket
from pytest_loadtest.values.quantities import HOUR, MILLISECOND, MINUTE, SECOND

LEAST = "name: least\nproducerRate: 100\nmessageSize: 1KB\ntestDuration: 30s\n"


OMB = """
# as OpenMessaging Benchmark ships them
name: 1 topic / 1 partition / 1Kb
topics: 1
partitionsPerTopic: 1
keyDistributor: "NO_KEY"
messageSize: 1024
payloadFile: "payload/payload-1Kb.data"
useRandomizedPayloads: false
randomBytesRatio: 0.5
randomizedPayloadPoolSize: 100
subscriptionsPerTopic: 1
consumerPerSubscription: 1
producersPerTopic: 1
producerRate: 50000
consumerBacklogSizeGB: 0
backlogDrainRatio: 1.0
testDurationMinutes: 15
warmupDurationMinutes: 2
"""


def loads(text: str) -> profile.Profile:
    return profile.loads(text, "p.yaml")


def test_a_workload_file_of_omb_is_a_profile() -> None:
    found = loads(OMB)
    assert (found.message_size, found.producer_rate, found.randomized_payload_pool_size) == (
        1024,
        50_000,
        100,
    )
    assert (found.test_duration, found.warmup_duration) == (15 * MINUTE, 2 * MINUTE)
    assert found.driver == PulsarSettings()


@pytest.mark.parametrize(
    ("lines", "warmup"),
    [
        ("testDurationMinutes: 1", MINUTE),
        ("testDurationMinutes: 1\nwarmupDuration: 5s", 5 * SECOND),
        ("testDuration: 30s", 0),
        ("testDuration: 30s\nwarmupDurationMinutes: 0.5", 30 * SECOND),
        ("testDuration: 30s\nwarmupDuration: 0", 0),
    ],
)
def test_only_omb_spelling_has_a_minute_of_warm_up_by_default(lines: str, warmup: int) -> None:
    """Both spellings can be mixed."""
    assert loads(f"name: a\nproducerRate: 1\nmessageSize: 100\n{lines}\n").warmup_duration == warmup


def test_missing_keys_have_defaults_and_implicit_objectives() -> None:
    found = loads(LEAST)
    assert (
        found.topics,
        found.partitions_per_topic,
        found.drain_timeout,
        found.max_send_delay,
    ) == (1, 1, 30 * SECOND, 10 * SECOND)
    assert found.generator == profile.GeneratorLimits(
        send_delay_p99=100 * MILLISECOND, cpu=0.95, stalled=0.1
    )
    assert found.buckets is None
    assert found.target is None
    assert all(objective.implicit for objective in found.objectives)


def test_buckets_keep_the_order_and_spelling_of_the_file() -> None:
    """Ranges become half-open buckets of bytes; ranges that meet do not overlap."""
    text = LEAST.replace(
        "messageSize: 1KB",
        'messageSizeDistribution:\n  "4KB-16KB": 2\n  "0-256": 5\n  "256B-1KB": 1',
    )
    assert loads(text).buckets == (
        Bucket(name="4KB-16KB", low=4096, high=16384, weight=2),
        Bucket(name="0-256", low=0, high=256, weight=5),
        Bucket(name="256B-1KB", low=256, high=1024, weight=1),
    )


def test_durations_are_ns_and_sizes_are_bytes() -> None:
    driver = (
        "driver: {name: pulsar, sendTimeout: 0, operationTimeout: 1500ms, batchingMaxBytes: 1MB}"
    )
    found = loads(
        f"{LEAST}drainTimeout: 2min\nmaxSendDelay: 1h\n{driver}\ngenerator: {{sendDelayP99: 250us}}\n"
    )
    assert (found.drain_timeout, found.max_send_delay, found.generator.send_delay_p99) == (
        2 * MINUTE,
        HOUR,
        250_000,
    )
    assert isinstance(found.driver, PulsarSettings)
    assert (
        found.driver.send_timeout,
        found.driver.operation_timeout,
        found.driver.batching_max_bytes,
    ) == (0, 1_500_000_000, 1024**2)


def test_the_slo_section_is_parsed() -> None:
    found = loads(LEAST + "slo: {throughput: 99%, endToEndLatency: {p99: 100ms}}\n")
    assert [objective.name for objective in found.objectives if not objective.implicit] == [
        "throughput",
        "endToEndLatency.p99",
    ]


def test_a_rate_of_0_searches_the_highest_rate() -> None:
    """As in OMB."""
    assert loads(LEAST.replace("100", "0") + "slo: {loss: 0}\n").peak_search
    assert not loads(LEAST).peak_search


@pytest.mark.parametrize(
    ("lines", "ordered", "acks"),
    [
        ("", True, True),
        ("driver: {name: pulsar, subscriptionType: Shared}", False, True),
        ("driver: {name: pulsar, subscriptionType: Key_Shared}", False, True),
        (
            "driver: {name: pulsar, subscriptionType: Key_Shared}\nkeyDistributor: RANDOM_NANO",
            True,
            True,
        ),
        ("driver: {name: pulsar, topicType: non-persistent}", True, False),
        ("driver: {name: mqtt}", True, True),
        ("driver: {name: mqtt, qos: 0}", True, False),
        ("driver: {name: mqtt}\nconsumerPerSubscription: 2", False, True),
        ("driver: {name: mqtt, sharedSubscription: true}", False, True),
        ("driver: {name: loopback}", True, True),
    ],
)
def test_order_needs_one_consumer_and_publish_latency_needs_acknowledgements(
    lines: str, ordered: bool, acks: bool
) -> None:
    found = loads(f"{LEAST}{lines}\n")
    assert (found.ordered, found.publish_acks) == (ordered, acks)


@pytest.mark.parametrize(
    ("lines", "limit"),
    [
        ("", 5 * 1024**2 - 1024),
        ("broker: {settings: {maxMessageSize: 1048576}}", 1024**2 - 1024),
        ("driver: {name: mqtt}", 268_435_455),
        ("driver: {name: mqtt}\nbroker: {settings: {message_size_limit: 2000}}", 2000),
        ("driver: {name: mqtt}\nbroker: {settings: {message_size_limit: 0}}", 268_435_455),
        ("driver: {name: loopback}", 256 * 1024**2),
    ],
)
def test_the_largest_payload_follows_from_the_broker_settings(
    lines: str, limit: int | None
) -> None:
    """Pulsar's limit includes the metadata."""
    assert loads(f"{LEAST}{lines}\n").max_message_size == limit


def test_omb_names_of_driver_keys_are_accepted() -> None:
    """pendingQueueSize is maxPendingMessages, and protocolVersion may be a number."""
    assert loads(LEAST + "driver: {name: pulsar, pendingQueueSize: 7}\n").driver.window(1) == 7
    mqtt = loads(LEAST + "driver: {name: mqtt, protocolVersion: 5}\n").driver
    assert isinstance(mqtt, MqttSettings)
    assert mqtt.protocol_version == "5"


@pytest.mark.parametrize(
    ("settings", "connections"),
    [
        (PulsarSettings(connections_per_broker=4), 8),
        (MqttSettings(), 30),
        (LoopbackSettings(), 2),
    ],
)
def test_the_number_of_connections_follows_from_the_settings(
    settings: PulsarSettings | MqttSettings | LoopbackSettings, connections: int
) -> None:
    """Pulsar clients share connections, a worker of the loopback has one, each MQTT client has one."""
    assert settings.connections(10, 20, workers=2) == connections


def test_broker_settings_are_verbatim() -> None:
    """Numbers, true and false become text for the broker's configuration."""
    found = loads(
        LEAST
        + 'broker: {version: "4.0.0", settings: {journalSyncData: false, numIOThreads: 2, a: "b c"}}\n'
    )
    assert found.broker.settings == {"journalSyncData": "false", "numIOThreads": "2", "a": "b c"}


def test_a_profile_cannot_be_changed() -> None:
    """Only a copy can."""
    found = loads(LEAST)
    with pytest.raises(ValidationError):
        found.topics = 3
    assert found.model_copy(update={"producer_rate": 5.0}).producer_rate == 5.0


def test_a_profile_survives_pickling() -> None:
    found = loads(OMB)
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    "text",
    [
        OMB,
        LEAST + "driver: {name: pulsar, pendingQueueSize: 7}\nslo: {loss: 0}\n",
        LEAST
        + "randomBytesRatio: 0.00001\ndriver: {name: pulsar, authentication: {plugin: token, token: sesame}}\n",
    ],
)
def test_the_document_in_results_reads_back(text: str) -> None:
    found = loads(text)
    again = profile.from_document(json.loads(json.dumps(found.document())))
    assert again.document() == found.document()
    assert (again.test_duration, again.warmup_duration, again.driver.window(3)) == (
        found.test_duration,
        found.warmup_duration,
        found.driver.window(3),
    )


@pytest.mark.parametrize(
    ("driver", "url", "said"),
    [
        ("name: pulsar", "pulsar+ssl://h:1", None),
        (
            "name: pulsar, tlsEnableHostnameVerification: false",
            "pulsar+ssl://h:1",
            "driver.tlsEnableHostnameVerification is false",
        ),
        (
            "name: pulsar, tlsEnableHostnameVerification: false",
            "https://h:1",
            "driver.tlsEnableHostnameVerification is false",
        ),
        ("name: pulsar, tlsEnableHostnameVerification: false", "pulsar://h:1", None),
        (
            "name: pulsar, tlsAllowInsecureConnection: true",
            "pulsar+ssl://h:1",
            "driver.tlsAllowInsecureConnection is true",
        ),
        ("name: mqtt", "mqtts://h:1", None),
        ("name: mqtt, tls: {caFile: a}", "mqtts://h:1", None),
        ("name: mqtt, tls: {insecure: true}", "mqtts://h:1", "driver.tls.insecure is true"),
        ("name: mqtt, tls: {insecure: true}", "mqtt://h:1", None),
        ("name: loopback", "loopback://h:1", None),
    ],
)
def test_a_host_whose_name_is_not_checked_is_noted(driver: str, url: str, said: str | None) -> None:
    """If the clients or the admin REST use TLS."""
    found = profile.loads(LEAST + f"driver: {{{driver}}}\n", "p.yaml").driver.unchecked_host(
        ("", url)
    )
    assert (found is None) == (said is None)
    assert said is None or (found or "").startswith(said)


def test_secrets_stay_out_of_results() -> None:
    """Neither the document nor the repr has a password or token."""
    for driver in (
        "{name: mqtt, username: joe, password: sesame}",
        "{name: pulsar, authentication: {plugin: token, token: sesame}}",
    ):
        found = loads(f"{LEAST}driver: {driver}\n")
        assert "sesame" not in repr(found)
        assert "sesame" not in json.dumps(found.document())


@pytest.mark.parametrize(
    ("lines", "metrics"),
    [
        ("", {"foreign"}),
        ("topic: persistent://a/b/c", set()),
        ("driver: {name: mqtt}", {"foreign"}),
        ("driver: {name: mqtt}\ntopic: a/b", set()),
        ("driver: {name: mqtt, qos: 2}", {"foreign", "duplicates"}),
        ("driver: {name: mqtt, qos: 2}\ntopic: a/b", {"duplicates"}),
        ("driver: {name: mqtt, qos: 2, cleanStart: false, sessionExpiry: 1h}", {"duplicates"}),
        ("driver: {name: mqtt, qos: 2, retain: true}", {"foreign", "duplicates"}),
        ("driver: {name: mqtt, qos: 2, retain: true, protocolVersion: 3.1.1}", {"foreign"}),
        ("driver: {name: mqtt, qos: 1}\nslo: {foreign: 3}", {"foreign"}),
    ],
)
def test_foreign_messages_and_duplicates_have_implicit_objectives(
    lines: str, metrics: set[str]
) -> None:
    """On topics of the run, and at QoS 2; a bound of the profile overrides them."""
    found = [
        one
        for one in loads(f"{LEAST}{lines}\n").objectives
        if one.metric in ("foreign", "duplicates")
    ]
    assert {one.metric for one in found} == metrics
    assert {one.maximum for one in found} <= {0, 3}
    assert len(found) == len(metrics)
