"""Profiles that are right: what they say in Python."""

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


def test_omb_workload_file() -> None:
    """A workload file of OpenMessaging Benchmark is a profile as it stands."""
    found = loads(OMB)
    assert (found.message_size, found.producer_rate, found.randomized_payload_pool_size) == (1024, 50_000, 100)
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
def test_warm_up(lines: str, warmup: int) -> None:
    """OMB's minute of warm-up comes with OMB's spelling only, and both spellings mix."""
    assert loads(f"name: a\nproducerRate: 1\nmessageSize: 100\n{lines}\n").warmup_duration == warmup


def test_defaults() -> None:
    """What is left out is OMB's default, or ours; the implicit objectives are there, the explicit ones are not."""
    found = loads(LEAST)
    assert (found.topics, found.partitions_per_topic, found.drain_timeout, found.max_send_delay) == (1, 1, 30 * SECOND, 10 * SECOND)
    assert found.generator == profile.GeneratorLimits(send_delay_p99=100 * MILLISECOND, cpu=0.95, stalled=0.1)
    assert found.buckets is None
    assert found.target is None
    assert all(objective.implicit for objective in found.objectives)


def test_buckets_keep_the_order_and_spelling_of_the_file() -> None:
    """Ranges become half-open buckets of bytes under the key that the file gives them; shared ends are no overlap."""
    text = LEAST.replace("messageSize: 1KB", 'messageSizeDistribution:\n  "4KB-16KB": 2\n  "0-256": 5\n  "256B-1KB": 1')
    assert loads(text).buckets == (
        Bucket(name="4KB-16KB", low=4096, high=16384, weight=2),
        Bucket(name="0-256", low=0, high=256, weight=5),
        Bucket(name="256B-1KB", low=256, high=1024, weight=1),
    )


def test_units() -> None:
    """Durations come as ns and sizes as bytes, wherever they stand."""
    driver = "driver: {name: pulsar, sendTimeout: 0, operationTimeout: 1500ms, batchingMaxBytes: 1MB}"
    found = loads(f"{LEAST}drainTimeout: 2min\nmaxSendDelay: 1h\n{driver}\ngenerator: {{sendDelayP99: 250us}}\n")
    assert (found.drain_timeout, found.max_send_delay, found.generator.send_delay_p99) == (2 * MINUTE, HOUR, 250_000)
    assert isinstance(found.driver, PulsarSettings)
    assert (found.driver.send_timeout, found.driver.operation_timeout, found.driver.batching_max_bytes) == (0, 1_500_000_000, 1024**2)


def test_objectives() -> None:
    """The slo section comes parsed, by the grammar of its own module."""
    found = loads(LEAST + "slo: {throughput: 99%, endToEndLatency: {p99: 100ms}}\n")
    assert [objective.name for objective in found.objectives if not objective.implicit] == ["throughput", "endToEndLatency.p99"]


def test_peak_search() -> None:
    """Rate 0 is OMB's way to ask for the highest one."""
    assert loads(LEAST.replace("100", "0") + "slo: {loss: 0}\n").peak_search
    assert not loads(LEAST).peak_search


@pytest.mark.parametrize(
    ("lines", "ordered", "acks"),
    [
        ("", True, True),
        ("driver: {name: pulsar, subscriptionType: Shared}", False, True),
        ("driver: {name: pulsar, subscriptionType: Key_Shared}", False, True),
        ("driver: {name: pulsar, subscriptionType: Key_Shared}\nkeyDistributor: RANDOM_NANO", True, True),
        ("driver: {name: pulsar, topicType: non-persistent}", True, False),
        ("driver: {name: mqtt}", True, True),
        ("driver: {name: mqtt, qos: 0}", True, False),
        ("driver: {name: mqtt}\nconsumerPerSubscription: 2", False, True),
        ("driver: {name: mqtt, sharedSubscription: true}", False, True),
        ("driver: {name: loopback}", True, True),
    ],
)
def test_what_can_be_judged(lines: str, ordered: bool, acks: bool) -> None:
    """Order needs one consumer at a time, publish latency needs acknowledgements."""
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
def test_limit_of_the_broker(lines: str, limit: int | None) -> None:
    """The largest payload is the broker's default, or what broker.settings says; Pulsar's has to hold the metadata too."""
    assert loads(f"{LEAST}{lines}\n").max_message_size == limit


def test_omb_spellings_of_a_driver() -> None:
    """For OMB, pendingQueueSize is the word for maxPendingMessages, and protocolVersion may be a number."""
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
def test_connections(settings: PulsarSettings | MqttSettings | LoopbackSettings, connections: int) -> None:
    """Clients of Pulsar share connections, a worker of the loopback has one, MQTT's clients have one each."""
    assert settings.connections(10, 20, workers=2) == connections


def test_broker_settings_are_verbatim() -> None:
    """Numbers and true or false become the text that the broker's configuration wants."""
    found = loads(LEAST + 'broker: {version: "4.0.0", settings: {journalSyncData: false, numIOThreads: 2, a: "b c"}}\n')
    assert found.broker.settings == {"journalSyncData": "false", "numIOThreads": "2", "a": "b c"}


def test_frozen() -> None:
    """Nothing changes a profile; a copy does."""
    found = loads(LEAST)
    with pytest.raises(ValidationError):
        found.topics = 3
    assert found.model_copy(update={"producer_rate": 5.0}).producer_rate == 5.0


def test_pickles() -> None:
    """A profile goes to a worker and comes out equal."""
    found = loads(OMB)
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    "text",
    [
        OMB,
        LEAST + "driver: {name: pulsar, pendingQueueSize: 7}\nslo: {loss: 0}\n",
        LEAST + "randomBytesRatio: 0.00001\ndriver: {name: pulsar, authentication: {plugin: token, token: sesame}}\n",
    ],
)
def test_document_reads_back(text: str) -> None:
    """The document in the results is a profile again, and says the same."""
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
        ("name: pulsar, tlsEnableHostnameVerification: false", "pulsar+ssl://h:1", "driver.tlsEnableHostnameVerification is false"),
        ("name: pulsar, tlsEnableHostnameVerification: false", "https://h:1", "driver.tlsEnableHostnameVerification is false"),
        ("name: pulsar, tlsEnableHostnameVerification: false", "pulsar://h:1", None),
        ("name: pulsar, tlsAllowInsecureConnection: true", "pulsar+ssl://h:1", "driver.tlsAllowInsecureConnection is true"),
        ("name: mqtt", "mqtts://h:1", None),
        ("name: mqtt, tls: {caFile: a}", "mqtts://h:1", None),
        ("name: mqtt, tls: {insecure: true}", "mqtts://h:1", "driver.tls.insecure is true"),
        ("name: mqtt, tls: {insecure: true}", "mqtt://h:1", None),
        ("name: loopback", "loopback://h:1", None),
    ],
)
def test_a_host_whose_name_is_not_checked_is_noted(driver: str, url: str, said: str | None) -> None:
    """Where TLS is spoken at all, by the clients or by the admin REST."""
    found = profile.loads(LEAST + f"driver: {{{driver}}}\n", "p.yaml").driver.unchecked_host(("", url))
    assert (found is None) == (said is None)
    assert said is None or (found or "").startswith(said)


def test_secrets_stay_out_of_results() -> None:
    """Neither the document nor the repr has a password or token."""
    for driver in ("{name: mqtt, username: joe, password: sesame}", "{name: pulsar, authentication: {plugin: token, token: sesame}}"):
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
def test_foreign_messages_and_duplicates_are_judged_where_they_must_not_be(lines: str, metrics: set[str]) -> None:
    """Into topics that the run made only it publishes, and QoS 2 delivers exactly once; a bound of the profile overrides either."""
    found = [one for one in loads(f"{LEAST}{lines}\n").objectives if one.metric in ("foreign", "duplicates")]
    assert {one.metric for one in found} == metrics
    assert {one.maximum for one in found} <= {0, 3}
    assert len(found) == len(metrics)
