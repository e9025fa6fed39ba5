"""Problems of single keys and values: place, value and what to write."""

from __future__ import annotations

import pytest

from pytest_loadtest import profile
from pytest_loadtest.errors import ProfileError

HEAD = "name: a\nproducerRate: 1\ntestDuration: 1s\n"


LEAST = HEAD + "messageSize: 100\n"


def problems(text: str) -> str:
    with pytest.raises(ProfileError) as caught:
        profile.loads(text, "p.yaml")
    return str(caught.value)


WRONG_KEYS = [
    ("prodcerRate: 1", "5:1: unknown key 'prodcerRate' (did you mean producerRate?)"),
    ("producer_rate: 1", "5:1: unknown key 'producer_rate' (did you mean producerRate?)"),
    (
        "ioThreads: 1",
        "5:1: unknown key 'ioThreads' (ioThreads belongs under driver (name: pulsar))",
    ),
    ("adminUrl: x", "5:1: unknown key 'adminUrl' (adminUrl belongs under target)"),
    (
        "driver: {name: pulsar, ioThread: 1}",
        "5:24: unknown key 'ioThread' (did you mean ioThreads?)",
    ),
    (
        "driver: {name: pulsar, qos: 1}",
        "5:24: unknown key 'qos' (qos belongs under driver (name: mqtt))",
    ),
    (
        "driver: {name: pulsar, topics: 1}",
        "5:24: unknown key 'topics' (topics belongs under the top level)",
    ),
    (
        "driver: {name: pulsar, serviceUrl: x}",
        "5:24: unknown key 'serviceUrl' (write target: {url: …} next to driver)",
    ),
    (
        "chunking: true\ndriver: {name: pulsar}",
        "5:1: unknown key 'chunking' (write driver: {chunkingEnabled: true})",
    ),
    (
        "driver: {name: pulsar, chunking: true}",
        "5:24: unknown key 'chunking' (write driver: {chunkingEnabled: true})",
    ),
    (
        "enableBatching: false\ndriver: {name: pulsar}",
        "5:1: unknown key 'enableBatching' (write driver: {batchingEnabled: false})",
    ),
    (
        "chunking: true\ndriver: {name: mqtt}",
        "5:1: unknown key 'chunking' (chunkingEnabled belongs under driver (name: pulsar))",
    ),
    (
        "driver: {name: loopback, stall: {at: 1s, duration: 1s, n: 1}}",
        "5:56: unknown key 'n' (known: at, duration)",
    ),
    (
        "driver: {name: kafka}",
        "5:16: driver.name: 'kafka' is not a driver (known: pulsar, mqtt, loopback)",
    ),
    ("driver: {name: pulsr}", "5:16: driver.name: 'pulsr' is not a driver (did you mean pulsar?)"),
    (
        "driver: {ioThreads: 8}",
        "5:1: driver.name is missing (write name: pulsar | mqtt | loopback)",
    ),
    ("driver: {name: loopback, stall: {at: 1s}}", "5:26: driver.stall.duration is missing"),
    ("driver: pulsar", "5:9: driver: 'pulsar' is text, not a mapping"),
    ("scalable: topics", "5:11: scalable: 'topics' is text, not a list"),
    ("scalable: [topic]", "5:12: scalable.0: 'topic' is not a valid value (did you mean topics?)"),
    (
        "target: {adminUrl: http://a}",
        "5:9: target.url is missing (write url: pulsar://host:port, or image: IMAGE)",
    ),
    (
        "target: {url: pulsar://a, image: b}",
        "5:34: target.image: an image has no address before it runs (remove image, or url and adminUrl)",
    ),
]


@pytest.mark.parametrize(("lines", "line"), WRONG_KEYS, ids=[lines for lines, _ in WRONG_KEYS])
def test_a_wrong_key_is_an_error_with_the_right_key(lines: str, line: str) -> None:
    """An unknown, a misplaced and a missing key have different messages."""
    assert problems(f"{LEAST}{lines}\n").splitlines() == [f"p.yaml:{line}"]


WRONG_VALUES = [
    ("topics: 0", "5:9: topics: 0 must be at least 1"),
    (
        "drainTimeout: 30",
        "5:15: drainTimeout: 30 has no unit (write 30s, or another of ns, us, ms, s, min, h, d)",
    ),
    (
        "drainTimeout: 30 secs",
        "5:15: drainTimeout: '30 secs' is not a duration (did you mean 30s?)",
    ),
    (
        "drainTimeout: 3KB",
        "5:15: drainTimeout: '3KB' is not a duration (write a number and a unit: ns, us, ms, s, min, h, d)",
    ),
    (
        "drainTimeout: -3s",
        "5:15: drainTimeout: '-3s' is not a duration (write a number and a unit: ns, us, ms, s, min, h, d)",
    ),
    ("randomBytesRatio: 1.5", "5:19: randomBytesRatio: 1.5 must be at most 1"),
    ("generator: {cpu: 0}", "5:18: generator.cpu: 0 must be above 0"),
    (
        "keyDistributor: RANDOM",
        "5:17: keyDistributor: 'RANDOM' is not a valid value (did you mean RANDOM_NANO?)",
    ),
    ("driver: {name: mqtt, qos: 3}", "5:27: driver.qos: 3 is not a valid value (known: 0, 1, 2)"),
    (
        "driver: {name: mqtt, keepAlive: 500ms}",
        "5:33: driver.keepAlive: 500 ms is not a whole number of seconds (write whole seconds: MQTT has no smaller unit)",
    ),
    (
        "driver: {name: pulsar, batchingMaxBytes: 1 XB}",
        "5:42: driver.batchingMaxBytes: '1 XB' is not a size (write bytes, or a number and B, KB, MB or GB (1KB is 1024 bytes))",
    ),
    (
        "driver: {name: loopback, client: native}",
        "5:34: driver.client: loopback has no native client (write library)",
    ),
    (
        "driver: {name: pulsar, client: paho}",
        "5:32: driver.client: 'paho' is not a valid value (known: library, native)",
    ),
    (
        "driver: {name: pulsar, namespacePrefix: x}",
        r"5:41: driver.namespacePrefix: 'x' does not match ^[\w.=:-]+/[\w.=:-]+$",
    ),
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
def test_a_wrong_value_is_an_error_with_the_valid_ones(lines: str, line: str) -> None:
    """Out of range, of another type, or with a wrong unit."""
    assert problems(f"{LEAST}{lines}\n").splitlines() == [f"p.yaml:{line}"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "topicGroups: [{groupName: a}]",
            "unknown key 'topicGroups' (write each group as a workload: workloads: [{name: a, topics: 2,",
        ),
        (
            "consumeDelaySeconds: 600",
            "unknown key 'consumeDelaySeconds' (a live test delays its consumers: load.pause_consumers(),",
        ),
        (
            "drainProducerRate: 0",
            "unknown key 'drainProducerRate' (not supported: consumerBacklogSizeGB drains at producerRate; a live test",
        ),
        (
            "nameFormat: a",
            "unknown key 'nameFormat' (this is a template of OMB's WorkloadGenerationTool",
        ),
        (
            "driver: {name: pulsar, compressionType: LZ4}",
            "unknown key 'compressionType' (write driver: {compression: LZ4})",
        ),
        (
            "driver: {name: pulsar, webServiceUrl: 'http://h'}",
            "unknown key 'webServiceUrl' (write target: {adminUrl: …} next to driver)",
        ),
    ],
)
def test_a_key_of_another_tool_has_a_hint_with_its_counterpart(line: str, words: str) -> None:
    """A similar key with another meaning is no counterpart: topics, producerRate."""
    assert words in problems(line)


def test_live_tests_have_the_methods_in_the_hints() -> None:
    from pytest_loadtest.fixture.handle import LiveLoad

    assert {"pause_consumers", "resume_consumers", "set_rate", "wait"} <= set(dir(LiveLoad))
