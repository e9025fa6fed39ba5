"""Brokers that violate the protocol, as a user sees them: an error that names broker and cause, and never a pass."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from fake_mqtt import FakeMqttBroker, answer, with_bytes
from fake_pulsar import FakeBroker

from pytest_loadtest.wire.mqtt import packets as p

if TYPE_CHECKING:
    from collections.abc import Callable

    from fake_mqtt import MqttPeer
    from fake_pulsar import Seen

    from .projects import Project

PROFILE = """\
name: {name}
topics: 1
producersPerTopic: 1
consumerPerSubscription: 1
messageSize: 64
producerRate: 200
testDuration: 1s
drainTimeout: 3s
target: {{url: "{url}"}}
driver: {driver}
generator: {{sendDelayP99: 5s, cpu: 5, stalled: 1}}
slo: {{loss: 0}}
"""
TEST = """\
import pytest

@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.load(name)) for name in {names}])
def test_hostile(name, load):
    load.assert_slo()
"""
MQTT = "{name: mqtt, client: native, qos: 1}"
PULSAR = "{name: pulsar, client: native, operationTimeout: 3s, sendTimeout: 0}"


def mqtt(kind: int, rule: Callable[[MqttPeer, Any], None]) -> FakeMqttBroker:
    broker = FakeMqttBroker()
    broker.rules[kind] = rule
    return broker


def pulsar(kind: str, rule: Callable[[Seen], Any]) -> FakeBroker:
    broker = FakeBroker()
    broker.rules[kind] = rule
    return broker


HUGE_MQTT = b"\x30\xff\xff\xff\x7f" + bytes(1000)
HUGE_PULSAR = b"\x7f\xff\xff\xff\x00\x00\x00\x10" + bytes(1000)
CASES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "mqtt-256-mib": (
        lambda: mqtt(p.PUBLISH, with_bytes(HUGE_MQTT)), MQTT, "a packet of 268435460 bytes, where the client accepts .*10 violations",
    ),
    "pulsar-2-gib": (
        lambda: pulsar("CONNECT", lambda seen: seen.peer.write(HUGE_PULSAR)), PULSAR, "a frame of 2147483647 bytes.*is this its binary port",
    ),
    "pulsar-others-receipt": (
        lambda: pulsar("SEND", lambda seen: seen.peer.tell("SEND_RECEIPT", producer_id=99, sequence_id=0)), PULSAR,
        "acknowledged an entry of unknown producer 99: 10 violations",
    ),
    "healthy": (lambda: mqtt(p.PUBLISH, answer), MQTT, ""),
}  # fmt: skip


def test_hostile_brokers_are_errors_with_their_causes_and_the_session_goes_on(project: Project) -> None:
    """The last test, of a broker that keeps to the protocol, passes on the same workers."""
    with ExitStack() as stack:
        for name, (make, driver, _) in CASES.items():
            broker = stack.enter_context(make())
            project.write(f"profiles/{name}.yaml", PROFILE.format(name=name, url=broker.url, driver=driver))
        project.write("test_load.py", TEST.format(names=[*CASES]))
        run = project.run("-n", "2")
    assert run.ret == pytest.ExitCode.TESTS_FAILED
    assert run.outcomes == {"error": len(CASES) - 1, "passed": 1}
    lines = run.out.splitlines()
    for name, (_, _, cause) in CASES.items():
        if cause:
            (at,) = [number for number, line in enumerate(lines) if f"profile {name} · NO DATA" in line]
            assert re.search(cause, lines[at + 1]), run.out
