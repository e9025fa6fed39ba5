"""OpenMessaging Benchmark's files: workloads are profiles, drivers become the section ``driver``."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.plans import HERE, made

from pytest_loadtest import profile
from pytest_loadtest.drivers import planned_facts
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.errors import ProfileError, UsageError
from pytest_loadtest.profile.omb_driver import OmbDriver, read_driver
from pytest_loadtest.report.plan import plan_table
from pytest_loadtest.values.quantities import MINUTE, SECOND

FOLDER = Path(__file__).parents[3] / "profiles" / "omb"
LEAST = "name: a\nproducerRate: 1000\nmessageSize: 100\ntestDuration: 1s\n"
PULSAR = """\
name : Pulsar
driverClass: io.openmessaging.benchmark.driver.pulsar.PulsarBenchmarkDriver
client:
    serviceUrl : pulsar://localhost:6650
    httpUrl : http://localhost:8080
    ioThreads : 4
    connectionsPerBroker : 2
    clusterName: local
    namespacePrefix : benchmark/ns
    topicType: persistent
    persistence:
      ensembleSize : 3
      writeQuorum : 3
      ackQuorum : 2
      deduplicationEnabled: false
    tlsTrustCertsFilePath:
    authentication: {plugin: , data: }
producer:
    batchingEnabled : true
    batchingMaxPublishDelayMs : 1
    blockIfQueueFull : true
    pendingQueueSize: 0
consumer:
    receiverQueueSize: 5000
    subscriptionType: Failover
"""
MQTT = """\
name: MQTT
driverClass: io.openmessaging.benchmark.driver.mqtt5.MqttBenchmarkDriver
client:
  serverUri: tcp://localhost:1883
  username:
  password:
  topicPrefix: bench
  qos: 2
consumer:
  cleanSession: true
  sessionExpiryInterval: 259200
"""


def pulsar(client: str = "", producer: str = "", consumer: str = "") -> OmbDriver:
    return read_driver(
        f"driverClass: x.PulsarBenchmarkDriver\nclient: {{{client}}}\nproducer: {{{producer}}}\nconsumer: {{{consumer}}}\n",
        "d.yaml",
    )


def mqtt(client: str = "", consumer: str = "") -> OmbDriver:
    return read_driver(
        f"driverClass: x.MqttBenchmarkDriver\nclient: {{{client}}}\nconsumer: {{{consumer}}}\n",
        "d.yaml",
    )


def problems(text: str) -> list[str]:
    with pytest.raises(ProfileError) as caught:
        read_driver(text, "d.yaml")
    return str(caught.value).splitlines()


def test_the_workloads_of_the_project_have_only_omb_keys() -> None:
    """Topics, partitions, sizes, the highest rate, a backlog."""
    found = {file.stem: profile.load(file) for file in FOLDER.glob("*.yaml")}
    shapes = {(one.topics, one.partitions_per_topic, one.message_size) for one in found.values()}
    assert {(1, partitions, size) for partitions in (1, 16, 100) for size in (100, 1024)} | {
        (100, 1, 1024)
    } <= shapes
    assert [name for name, one in found.items() if one.peak_search] == [
        "max-rate-1-topic-16-partitions-1kb"
    ]
    assert [
        one.consumer_backlog_size_gb for one in found.values() if one.consumer_backlog_size_gb
    ] == [32]
    assert {one.warmup_duration for one in found.values()} == {MINUTE}


def test_a_payload_is_found_next_to_the_folder_of_workloads(tmp_path: Path) -> None:
    """OMB runs in the parent folder of workloads/ and payload/."""
    (tmp_path / "payload").mkdir()
    (tmp_path / "payload" / "a.data").write_bytes(bytes(100))
    path = tmp_path / "workloads" / "a.yaml"
    path.parent.mkdir()
    path.write_text(LEAST + 'payloadFile: "payload/a.data"\n')
    assert profile.payload_files(profile.load(path), path, path.parent) == {
        "payload/a.data": bytes(100)
    }


# the shapes of OMB's workloads that ask for the highest rate: partitions, bytes of a message, producers, minutes
MAX_RATE = [(16, 100, 1, 5), (16, 1024, 1, 5), (100, 100, 1, 5), (100, 1024, 1, 5), (3, 100, 3, 15)]


@pytest.mark.parametrize(("partitions", "size", "producers", "minutes"), MAX_RATE)
def test_a_search_of_omb_has_the_implicit_objectives(
    tmp_path: Path, partitions: int, size: int, producers: int, minutes: int
) -> None:
    """The plan lists them."""
    for folder in ("payload", "workloads"):
        (tmp_path / folder).mkdir()
    (tmp_path / "payload" / "some.data").write_bytes(bytes(size))
    path = tmp_path / "workloads" / "max-rate.yaml"
    path.write_text(
        f"name: As fast as it goes\n\ntopics: 1\npartitionsPerTopic: {partitions}\nmessageSize: {size}\n"
        f'payloadFile: "payload/some.data"\nsubscriptionsPerTopic: 1\nconsumerPerSubscription: 1\nproducersPerTopic: {producers}\n\n'
        f"producerRate: 0\n\nconsumerBacklogSizeGB: 0\ntestDurationMinutes: {minutes}\n"
    )
    found = profile.load(path)
    assert profile.payload_files(found, path, path.parent) == {"payload/some.data": bytes(size)}
    plan = made(found)
    assert plan.search is not None
    assert (plan.search.start, plan.search.maximum, plan.search.hold) == (1000, None, 30 * SECOND)
    assert (plan.topology.streams, plan.topology.partitions, plan.mean_size) == (
        producers,
        partitions,
        size,
    )
    text = "\n".join(plan_table(plan, planned_facts(found), HERE))
    assert (
        "no objectives in the profile: the implicit ones must hold, loss <= 0, corrupt <= 0, dropped <= 0, sent >= 99 %, throughput >= 95 %,"
        " failed <= 1 %" in text
    )


def test_the_plan_of_a_search_lists_only_applicable_objectives() -> None:
    rest = "name: a\nproducerRate: 0\nmessageSize: 100\n"
    alone = made(profile.loads(rest + "subscriptionsPerTopic: 0\n", "p.yaml"))
    text = "\n".join(plan_table(alone, planned_facts(alone.profile), HERE))
    assert "the implicit ones must hold, dropped <= 0, sent >= 99 %, failed <= 1 %" in text
    asked = made(profile.loads(rest + "slo: {loss: 0}\n", "p.yaml"))
    assert "implicit" not in "\n".join(plan_table(asked, planned_facts(asked.profile), HERE))


def test_a_pulsar_driver_file_is_converted() -> None:
    """Each key becomes the profile's, or is reported with the reason; OMB's own settings are added."""
    found = read_driver(PULSAR, "d.yaml")
    assert found.target == {"url": "pulsar://localhost:6650", "adminUrl": "http://localhost:8080"}
    assert found.driver == {
        "name": "pulsar", "ioThreads": 4, "connectionsPerBroker": 2, "namespacePrefix": "benchmark/ns", "topicType": "persistent",
        "persistence": {"ensembleSize": 3, "writeQuorum": 3, "ackQuorum": 2, "deduplicationEnabled": False}, "batchingEnabled": True,
        "batchingMaxPublishDelayMs": 1, "blockIfQueueFull": True, "receiverQueueSize": 5000, "subscriptionType": "Failover",
        "maxConcurrentLookupRequests": 1000, "batchingMaxBytes": 1024**2, "batchingMaxMessages": 0, "maxPendingMessages": 0,
        "clientMemoryLimitMB": 256, "tlsEnableHostnameVerification": False, "maxPendingMessagesAcrossPartitions": 2**31 - 1,
    }  # fmt: skip
    assert list(found.not_applied) == ["client.clusterName"]


def test_an_mqtt_driver_file_is_converted() -> None:
    """OMB's keys for MQTT 5, and its defaults."""
    found = read_driver(MQTT, "d.yaml")
    assert found.target == {"url": "mqtt://localhost:1883"}
    assert found.driver == {
        "name": "mqtt",
        "topicPrefix": "bench",
        "qos": 2,
        "cleanStart": True,
        "receiveMaximum": 256,
    }
    assert found.not_applied == {
        "consumer.sessionExpiryInterval": "259200: OMB uses it with cleanSession: false only"
    }
    kept = mqtt(
        "serverUri: 'ssl://h:8883', username: joe, password: sesame",
        "cleanSession: false, sessionExpiryInterval: 60",
    )
    assert (kept.driver["sessionExpiry"], kept.target["url"], kept.driver["username"]) == (
        "60s",
        "mqtts://h:8883",
        "joe",
    )
    assert list(mqtt("serverUri: tcp://h").not_applied) == ["client.serverUri"]


@pytest.mark.parametrize(
    "text", ["name: mqtt\nqos: 0\nusername:\n", "driver: {name: mqtt, qos: 0}\n"]
)
def test_a_driver_file_may_have_our_own_keys(text: str) -> None:
    """Then no defaults of OMB are added."""
    assert read_driver(text, "d.yaml") == OmbDriver({"name": "mqtt", "qos": 0}, {}, {})
    assert read_driver("driver: {name: mqtt}\ntarget: {url: mqtt://h:1}\n", "d.yaml").target == {
        "url": "mqtt://h:1"
    }


WRONG = [
    ("name: x\n", "d.yaml:1:1: driverClass is missing: this is not a driver file"),
    (
        "driver: {name: kafka}\n",
        "d.yaml:1:9: driver.name is missing or unknown (known: pulsar, mqtt, loopback)",
    ),
    ("driver: {name: mqtt, qs: 1}\n", "d.yaml:1:22: unknown key 'qs' (did you mean qos?)"),
    ("name: mqtt\nqs: 1\n", "d.yaml:2:1: unknown key 'qs' (did you mean qos?)"),
    (
        "driver: {name: mqtt}\nproducerRate: 5\n",
        "d.yaml:2:1: unknown key 'producerRate' (known: driver, target)",
    ),
    (
        "driverClass: a.KafkaBenchmarkDriver\n",
        "d.yaml:1:14: driverClass: a.KafkaBenchmarkDriver is not a driver that can be run here",
    ),
    (
        "driverClass: a.PulsarBenchmarkDriver\nclient: {ioThread: 8}\n",
        "d.yaml:2:10: unknown key 'ioThread' (did you mean ioThreads?)",
    ),
    (
        "driverClass: a.PulsarBenchmarkDriver\nclients: {}\n",
        "d.yaml:2:1: unknown key 'clients' (did you mean client?)",
    ),
    (
        "driverClass: a.PulsarBenchmarkDriver\nproducer: 4\n",
        "d.yaml:2:11: producer is not a mapping",
    ),
    (
        "driverClass: a.PulsarBenchmarkDriver\nclient: {ioThreads: x}\n",
        "d.yaml:2:21: driver.ioThreads: 'x' is text, not a whole number",
    ),
    (
        "driverClass: a.PulsarBenchmarkDriver\nclient: {serviceUrl: tcp://a}\n",
        "d.yaml:2:22: target.url: 'tcp://a' does not match",
    ),
    (
        "driverClass: a.PulsarBenchmarkDriver\nclient: {persistence: {ensembleSze: 3}}\n",
        "d.yaml:2:24: unknown key 'ensembleSze' (did you mean ensembleSize?)",
    ),
    (
        "driverClass: a.PulsarBenchmarkDriver\nclient: {authentication: {plugin: a.Sasl}}\n",
        "d.yaml:2:35: authentication.plugin: a.Sasl is not known",
    ),
    (
        "driverClass: a.PulsarBenchmarkDriver\nclient: {authentication: {plugin: a.AuthenticationTls, data: 'tlsCertFil:/a'}}\n",
        "d.yaml:2:62: authentication.data: needs certFile, keyFile; tlsCertFil is not known",
    ),
    (
        "driverClass: a.MqttBenchmarkDriver\nclient: {qos: 3}\n",
        "d.yaml:2:15: driver.qos: 3 is not a valid value (known: 0, 1, 2)",
    ),
    (
        "driverClass: a.MqttBenchmarkDriver\nconsumer: {cleanSession: false, sessionExpiryInterval: 1h}\n",
        "d.yaml:2:56: sessionExpiryInterval: 1h is not a number of seconds",
    ),
    (
        "driverClass: a.PulsarBenchmarkDriver\ndriverClass: b\n",
        "d.yaml:2:1: duplicate key 'driverClass', first in line 1 (remove one)",
    ),
]


@pytest.mark.parametrize(("text", "start"), WRONG, ids=[start for _, start in WRONG])
def test_a_wrong_driver_file_is_an_error_at_its_place(text: str, start: str) -> None:
    """Keys and values that OMB does not have."""
    assert problems(text)[0].startswith(start)


def test_a_driver_file_is_relative_to_the_profile(tmp_path: Path) -> None:
    """Its target applies if the profile has none, and overrides can change its keys."""
    (tmp_path / "pulsar.yaml").write_text(PULSAR)
    path = tmp_path / "p.yaml"
    path.write_text(LEAST + "driver: pulsar.yaml\n")
    found = profile.load(path)
    assert isinstance(found.driver, PulsarSettings)
    assert found.target is not None
    assert (found.driver.io_threads, found.target.url) == (4, "pulsar://localhost:6650")
    assert profile.from_document(found.document()).not_applied == found.not_applied != {}
    changed = profile.override(path, {"driver.ioThreads": 3}).driver
    assert isinstance(changed, PulsarSettings)
    assert (changed.io_threads, changed.connections_per_broker) == (3, 2)
    path.write_text(LEAST + "driver: pulsar.yaml\ntarget: {url: pulsar://other:6650}\n")
    assert profile.load(path).target == profile.TargetSection(url="pulsar://other:6650")


def test_under_strict_tuning_a_key_without_effect_is_an_error(tmp_path: Path) -> None:
    """As a key of the driver file, or as an override."""
    (tmp_path / "d.yaml").write_text(PULSAR + "strictTuning: true\n")
    path = tmp_path / "p.yaml"
    path.write_text(LEAST + "driver: d.yaml\n")
    with pytest.raises(
        ProfileError,
        match=r"p.yaml:5:9: driver: not applied under strictTuning: client.clusterName: local: .* \(remove these keys",
    ):
        profile.load(path)
    with pytest.raises(UsageError, match="driver: not applied under strictTuning"):
        profile.with_driver(profile.loads(LEAST, "p.yaml"), tmp_path / "d.yaml")


def test_a_driver_file_applies_to_every_workload(tmp_path: Path) -> None:
    """A contradiction to the profile is an error that names both."""
    file = tmp_path / "mqtt5.yaml"
    file.write_text(MQTT)
    text = LEAST + "workloads: [{name: x}, {name: y, topics: 2}]\n"
    found = profile.with_driver(profile.loads(text, "p.yaml"), file)
    assert {one.driver.name for one in found.workloads} == {"mqtt"}
    assert {one.target.url for one in found.workloads if one.target} == {"mqtt://localhost:1883"}
    with pytest.raises(
        UsageError,
        match=r"mqtt5.yaml with profile a: driver.sharedSubscription|mqtt5.yaml with profile a: slo.outOfOrder: order cannot",
    ):
        profile.with_driver(
            profile.loads(LEAST + "consumerPerSubscription: 2\nslo: {outOfOrder: 0}\n", "p.yaml"),
            file,
        )
    with pytest.raises(UsageError, match="driver file .*none.yaml cannot be read"):
        profile.with_driver(profile.loads(LEAST, "p.yaml"), tmp_path / "none.yaml")


def test_a_missing_driver_file_is_an_error_at_its_name(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(LEAST + "driver: none.yaml\n")
    with pytest.raises(
        ProfileError, match=r"p.yaml:5:9: driver: driver file .*none.yaml cannot be read"
    ):
        profile.load(path)


def test_a_drivers_name_in_place_of_its_section_is_an_error_with_the_section(
    tmp_path: Path,
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(LEAST + "driver: loopback\n")
    with pytest.raises(
        ProfileError, match=r"loopback cannot be read: .* \(for a driver write driver: {name: …}\)$"
    ):
        profile.load(path)


@pytest.mark.parametrize(
    ("line", "checked"), [("", False), ("tlsEnableHostnameVerification: true", True)]
)
def test_a_driver_file_does_not_check_host_names_by_default(line: str, checked: bool) -> None:
    """As OMB, which has Pulsar's default; a profile checks them."""
    text = f"driverClass: a.PulsarBenchmarkDriver\nclient: {{serviceUrl: 'pulsar+ssl://h:1', {line}}}\n"
    found = read_driver(text, "d.yaml").driver
    assert found["tlsEnableHostnameVerification"] is checked
    own = read_driver("name: pulsar\n", "d.yaml").driver
    assert "tlsEnableHostnameVerification" not in own


OTHER_DRIVERS = [
    # The other driver classes of the files in OMB's repository at 8559989.
    "artemis.Artemis", "bookkeeper.Dlog", "jms.JMS", "kafka.Kafka", "kop.Kop", "nats.Nats", "natsStreaming.NatsStreaming", "nsq.Nsq",
    "pravega.Pravega", "rabbitmq.RabbitMq", "redis.Redis", "rocketmq.RocketMQ", "rocketmq.RocketMQ5",
]  # fmt: skip


@pytest.mark.parametrize("name", OTHER_DRIVERS)
def test_a_driver_file_for_another_system_is_an_error_that_names_those_that_run(name: str) -> None:
    full = f"io.openmessaging.benchmark.driver.{name}BenchmarkDriver"
    (line,) = problems(f"name: x\ndriverClass: {full}\nclient: {{brokerUrl: x}}\n")
    assert (
        f"d.yaml:2:14: driverClass: {full} is not a driver that can be run here (write io.openmessaging"
        in line
    )
