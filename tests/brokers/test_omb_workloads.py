"""OpenMessaging Benchmark's workloads and driver files, unchanged: they load, run scaled on real brokers, and have the intended effect.

``profiles/omb`` runs on one Pulsar in one pytest session, with a driver file for Pulsar; another one for MQTT 5 drives a mosquitto. The
brokers' own view is checked: Pulsar's admin REST in the bodies of live tests, mosquitto with a subscriber of the test.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_loadtest.brokers import java
from pytest_loadtest.drivers.mqtt import mosquitto

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_loadtest import brokers

    from .conftest import OmbSession

real_pulsar = [
    pytest.mark.pulsar,
    pytest.mark.skipif(
        java.find() is None, reason="no Java here: apt-get install default-jre-headless"
    ),
]
needs_mosquitto = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)

PROFILES = Path(__file__).parents[2] / "profiles" / "omb"
WORKLOADS: dict[str, dict[str, Any]] = {
    path.stem: yaml.safe_load(path.read_text()) for path in sorted(PROFILES.glob("*.yaml"))
}
OF_DRIVER = "100-topics-1-partition-1kb"
"""The workload in which the driver file's effects are checked."""
FIRST = (
    OF_DRIVER,
    "backlog-1-topic-16-partitions-1kb",
    "max-rate-1-topic-16-partitions-1kb",
)
"""One workload of each kind; the others have other numbers of partitions and sizes."""
SCALE = 0.03
TIMING = {
    "throughput",
    "sent",
    "endToEndLatency",
    "publishLatency",
    "backlogDrain",
}  # objectives that a busy machine may miss
# The effect of a busy machine on the generator is not tested here, nor what it sends too late.
CALM = {
    "maxSendDelay": "60s",
    "generator": {"sendDelayP99": "20s", "receiveLagP99": "20s", "cpu": 5, "stalled": 1},
    "slo": {"sent": "1%", "throughput": "1%"},
}
PULSAR_TESTS = f"""\
import json, os, urllib.request
from pathlib import Path

import pytest

PATHS = {{path.stem: str(path) for path in sorted(Path({str(PROFILES)!r}).glob("*.yaml")) if path.stem in CHOSEN}}
BACKLOG = {{"consumerBacklogSizeGB": 0.01}}  # it takes as long to build at any scale
SEARCH = {{"start": 50_000, "max": 50_000, "hold": "1s", "confirm": "1s", "warmup": "500ms", "repeats": 1}}

def ask(path):
    with urllib.request.urlopen(os.environ["OMB_ADMIN"] + "/admin/v2/" + path, timeout=10) as answer:
        return json.loads(answer.read())

@pytest.mark.parametrize((), [
    pytest.param(id=name, marks=pytest.mark.load(path, live=True, judge=False, **{CALM}, **(BACKLOG if name.startswith("backlog") else {{}})))
    for name, path in PATHS.items() if not name.startswith("max-rate")])
def test_workload(load, request):
    load.begin()
    (space,) = ask("namespaces/benchmark")
    stats = {{topic: ask(topic.replace("://", "/") + "/stats") for topic in ask("persistent/" + space)}}
    Path(request.node.callspec.id + ".json").write_text(json.dumps({{"stats": stats, "policies": ask("namespaces/" + space)}}))
    load.finish()

@pytest.mark.parametrize((), [
    pytest.param(id=name, marks=pytest.mark.load(path, search=SEARCH, judge=False, **{CALM})) for name, path in PATHS.items() if name.startswith("max-rate")])
def test_search(load):
    assert load.peak.steps
"""
MQTT_TESTS = f"""\
import json, os, time
from pathlib import Path

import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

@pytest.fixture
def watched():
    # the messages of the test's subscriber
    client, messages = paho.Client(CallbackAPIVersion.VERSION2, "watcher"), []
    client.on_message = lambda _client, _data, message: messages.append((message.topic, message.qos, len(message.payload)))
    client.connect("127.0.0.1", int(os.environ["OMB_URL"].rpartition(":")[2]))
    client.subscribe("bench/#", qos=2)
    client.loop_start()
    yield messages
    client.disconnect()
    client.loop_stop()

@pytest.mark.load("workloads/telemetry.yaml", live=True, judge=False, **{CALM})
def test_telemetry(load, watched):
    result, end = load.start(), time.monotonic() + 30
    while len(watched) < result.measurements.counts.sent and time.monotonic() < end:
        time.sleep(0.05)
    Path("telemetry.json").write_text(json.dumps(watched))
"""
PULSAR_DRIVER = """\
name: Pulsar
driverClass: io.openmessaging.benchmark.driver.pulsar.PulsarBenchmarkDriver

# Pulsar client-specific configuration
client:
  serviceUrl: {url}
  httpUrl: {admin}
  ioThreads: 4
  connectionsPerBroker: 2
  maxConcurrentLookupRequests: 500
  clientMemoryLimitMB: 64
  clusterName: local
  namespacePrefix: benchmark/ns
  topicType: persistent
  persistence:
    ensembleSize: 1
    writeQuorum: 1
    ackQuorum: 1
    deduplicationEnabled: true
  tlsAllowInsecureConnection: false
  tlsEnableHostnameVerification: false
  tlsTrustCertsFilePath:
  authentication:
    plugin:
    data:

# Producer configuration
producer:
  batchingEnabled: true
  batchingMaxPublishDelayMs: 2
  batchingMaxBytes: 65536
  blockIfQueueFull: true
  pendingQueueSize: 0

# Consumer configuration
consumer:
  receiverQueueSize: 700
  subscriptionType: Failover
  subscriptionMode: Durable
"""
MQTT_DRIVER = """\
name: MQTT 5
driverClass: io.openmessaging.benchmark.driver.mqtt5.MqttBenchmarkDriver

client:
  serverUri: {url}
  username:
  password:
  topicPrefix: bench
  qos: 1

consumer:
  cleanSession: true
  sessionExpiryInterval: 259200
  receiveMaximum: 50
"""
TELEMETRY = """\
name: 2 topics / 100 B

topics: 2
partitionsPerTopic: 1
keyDistributor: "NO_KEY"
messageSize: 100
useRandomizedPayloads: true
randomBytesRatio: 0.5
randomizedPayloadPoolSize: 10

subscriptionsPerTopic: 1
consumerPerSubscription: 2
producersPerTopic: 3
producerRate: 300

consumerBacklogSizeGB: 0
testDurationMinutes: 1
warmupDurationMinutes: 0
"""


def omb_sessions(
    kind: str, facts: brokers.BrokerFacts, names: Iterable[str]
) -> dict[str, tuple[dict[str, str], list[str]]]:
    """Return the files of each project and the options of its session.

    :param names: the selected workloads.
    """
    options = ["--load-driver", "driver.yaml", "--load-duration", "1s"]
    if kind == "mqtt":
        driver = MQTT_DRIVER.format(url=facts.url.replace("mqtt://", "tcp://"))
        return {
            kind: (
                {
                    "test_omb.py": MQTT_TESTS,
                    "driver.yaml": driver,
                    "workloads/telemetry.yaml": TELEMETRY,
                },
                options,
            )
        }
    driver = PULSAR_DRIVER.format(url=facts.url, admin=facts.admin_url)
    return {
        kind: (
            {
                "test_omb.py": f"CHOSEN = {sorted({OF_DRIVER, *names})}\n{PULSAR_TESTS}",
                "driver.yaml": driver,
            },
            [*options, "--load-scale", str(SCALE)],
        )
    }


@pytest.fixture
def pulsar(omb_sessions: dict[str, OmbSession]) -> OmbSession:
    """Run the session with the driver file for Pulsar."""
    return omb_sessions["pulsar"]


def scaled(name: str, key: str, word: str) -> int:
    """Return a number of a workload after scaling."""
    value: int = WORKLOADS[name][key]
    return max(1, round(value * SCALE)) if word in WORKLOADS[name]["scalable"] else value


@pytest.mark.parametrize(
    "name",
    [
        *FIRST,
        *(pytest.param(name, marks=pytest.mark.slow) for name in WORKLOADS if name not in FIRST),
    ],
)
class TestWorkloads:
    pytestmark = real_pulsar

    def test_every_message_is_accounted_for(self, pulsar: OmbSession, name: str) -> None:
        """All due messages were sent and arrived once; the objectives were met, apart from those about time that a busy machine misses."""
        document = pulsar.document(WORKLOADS[name]["name"])
        counts, verdict = document["measurements"]["counts"], document["verdict"]
        if not (document["peak"] or document["backlog"]):
            assert counts["offered"] == WORKLOADS[name]["producerRate"] * SCALE
        assert counts["offered"] == counts["sent"] == counts["acked"] > 1000
        assert counts["received"] == counts["sent"] * WORKLOADS[name]["subscriptionsPerTopic"]
        assert counts["lost"] == counts["duplicates"] == counts["corrupt"] == counts["foreign"] == 0
        assert verdict["outcome"] in ("met", "missed")
        assert {
            finding["metric"] for finding in verdict["findings"] if finding["outcome"] == "missed"
        } <= TIMING
        assert document["scale"]["factor"] == SCALE

    def test_the_broker_has_the_scaled_topology(self, pulsar: OmbSession, name: str) -> None:
        """It has the workload's topics, partitions, producers and consumers, at scale; a search is checked in its steps."""
        topics, partitions = (
            scaled(name, "topics", "topics"),
            scaled(name, "partitionsPerTopic", "partitions"),
        )
        if name.startswith("max-rate"):
            assert (
                max(
                    step["rate"]
                    for step in pulsar.document(WORKLOADS[name]["name"])["peak"]["steps"]
                )
                == 1500
            )
            return
        ends = [f"-partition-{number}" for number in range(partitions)] if partitions > 1 else [""]
        stats = pulsar.seen(name)["stats"]
        assert {topic.rpartition("/")[2] for topic in stats} == {
            f"topic-{number}{end}" for number in range(topics) for end in ends
        }
        for partition in stats.values():
            assert len(partition["publishers"]) == scaled(name, "producersPerTopic", "producers")
            consumers = [
                len(subscription["consumers"])
                for subscription in partition["subscriptions"].values()
            ]
            assert (
                consumers
                == [scaled(name, "consumerPerSubscription", "consumers")]
                * WORKLOADS[name]["subscriptionsPerTopic"]
            )
            assert (
                partition["bytesInCounter"]
                >= partition["msgInCounter"] * WORKLOADS[name]["messageSize"]
                > 0
            )


def unaccounted(file: str, driver: dict[str, Any], **words: str) -> set[str]:
    """Return keys of a driver file that are neither applied nor listed with a reason. :param words: our words for OMB's keys."""
    sections = {
        section: keys for section, keys in yaml.safe_load(file).items() if isinstance(keys, dict)
    }
    said = {
        (section, key)
        for section, keys in sections.items()
        for key, value in keys.items()
        if value and key != "authentication"
    }
    told = driver["applied"].keys() | {
        name for name, reason in driver["not_applied"].items() if reason
    }
    return {key for section, key in said if not {words.get(key, key), f"{section}.{key}"} & told}


class TestDrivers:
    @pytest.mark.parametrize((), [pytest.param(marks=real_pulsar)])
    def test_every_key_of_a_pulsar_driver_file_is_applied_or_listed(
        self, pulsar: OmbSession
    ) -> None:
        """The broker has the namespace, the policies and the connections."""
        driver = pulsar.document(WORKLOADS[OF_DRIVER]["name"])["driver"]
        seen = pulsar.seen(OF_DRIVER)
        assert unaccounted(PULSAR_DRIVER, driver, namespacePrefix="namespace") == {
            "serviceUrl",
            "httpUrl",
        }  # the run used them to find the broker
        assert {"client.clusterName", "consumer.subscriptionMode", "ioThreads"} == set(
            driver["not_applied"]
        )
        chosen = {
            "batchingMaxBytes": "65536",
            "batchingMaxPublishDelayMs": "2",
            "receiverQueueSize": "700",
            "subscriptionType": "Failover",
        }
        assert chosen.items() <= driver["applied"].items()
        assert driver["applied"]["maxPendingMessages"] == "no own limit"
        assert all(
            topic.startswith(f"persistent://{driver['applied']['namespace']}/topic-")
            for topic in seen["stats"]
        )
        assert driver["applied"]["namespace"].startswith("benchmark/ns-")
        assert seen["policies"]["deduplicationEnabled"] is True
        stats = seen["stats"].values()
        assert {one["type"] for topic in stats for one in topic["subscriptions"].values()} == {
            "Failover"
        }
        assert (
            len({publisher["address"] for topic in stats for publisher in topic["publishers"]}) == 2
        )

    @needs_mosquitto
    def test_every_key_of_an_mqtt_driver_file_is_applied_or_listed(
        self, omb_sessions: dict[str, OmbSession]
    ) -> None:
        """The broker has its topics, with its quality of service."""
        mqtt, name = omb_sessions["mqtt"], "2 topics / 100 B"
        driver, counts = mqtt.document(name)["driver"], mqtt.counts(name)
        # the run used the first to find the broker; the second is checked below
        assert unaccounted(MQTT_DRIVER, driver, cleanSession="cleanStart") == {"serverUri"}
        assert (driver["applied"]["receiveMaximum"], driver["applied"]["cleanStart"]) == (
            "50",
            "true",
        )
        assert counts["offered"] == counts["sent"] == counts["acked"] == counts["received"] == 300
        assert counts["lost"] == counts["duplicates"] == 0
        seen = mqtt.seen("telemetry")
        assert {(qos, size) for _, qos, size in seen} == {(1, 100)}
        topics = Counter(topic for topic, _, _ in seen)
        assert sorted(topic.partition("/")[0] for topic in topics) == ["bench", "bench"]
        assert list(topics.values()) == [150, 150]
