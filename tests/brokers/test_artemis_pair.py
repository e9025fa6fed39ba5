"""Artemis as primary and backup with one store: both clients go on at the other broker, and every message is accounted for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cached_jars import skip_without_jars
from waiting_for import gone

from pytest_loadtest import brokers
from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.drivers.mqtt import artemis
from pytest_loadtest.drivers.mqtt.native.driver import NativeMqttDriver
from pytest_loadtest.drivers.mqtt.paho.driver import PahoMqttDriver
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.errors import UsageError
from pytest_loadtest.message.samples import Status
from pytest_loadtest.profile.sections import SecuritySection
from pytest_loadtest.testing import Subject, rig
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.artemis,
    skip_without_jars(artemis.JARS),
]
STREAMS, EACH = 4, 100


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    """A pair with two ports at each broker: plain ones for producers, ones with TLS for consumers."""
    folder = tmp_path_factory.mktemp("artemis") / "broker"
    security = SecuritySection(tls="subscribers")
    request = brokers.BrokerRequest(
        kind="artemis", mode="auto", folder=folder, nodes={"broker": 2}, security=security
    )
    broker = brokers.start(request, print)
    pids = broker.facts.pids
    yield broker
    broker.stop()
    assert all(map(gone, (*pids, *broker.facts.pids)))
    assert not folder.exists()


# The broker that is active when the client of that row comes: a broker that was killed and returns becomes the backup.
@pytest.mark.parametrize(
    ("driver", "active"),
    [
        pytest.param(NativeMqttDriver, 1, id="native"),
        pytest.param(PahoMqttDriver, 2, marks=pytest.mark.slow, id="library"),
    ],
)
def test_no_message_is_lost_when_the_active_broker_is_killed(
    pair: brokers.Broker, driver: Any, active: int
) -> None:
    """At QoS 1 with sessions that outlive connections. What was in flight may come twice.

    The broker that the row before has killed comes back first.
    """
    for name in [name for name, pid in pair.facts.nodes.items() if pid is None]:
        role, number = name.split()
        pair.node(role, int(number)).start()
        assert pair.failure() is None
    durable = {
        "cleanStart": False,
        "sessionExpiry": "1h",
        "clientIdPrefix": f"pair{active}",
        "tls": pair.facts.client["tls"],
    }
    target = TargetAddress(url=pair.facts.url, subscriber_url=pair.facts.subscriber_url)
    subject = Subject(
        driver=driver,
        target=target,
        settings=MqttSettings.model_validate(durable),
        deadline=120 * SECOND,
    )
    with rig(subject, streams=STREAMS, topics=STREAMS) as r:
        r.send(EACH)
        pair.node("broker", active).kill()
        r.send(EACH, EACH)
        due = {(stream, seq) for stream in range(STREAMS) for seq in range(2 * EACH)}
        r.until(lambda: r.acked >= len(due) and received(r) >= due, "acked and received")
        assert {status for answer in r.acks for status in answer.status.tolist()} == {Status.ACKED}
        assert received(r) == due
        assert len(r.driver.opening_times()["reconnect"]) == 2 * STREAMS
        assert r.driver.facts().incidents["reconnect failed: Connection refused"] > 0
        assert r.driver.facts().applied["tlsNegotiated"].startswith("TLSv1.3 ")


def received(r: Any) -> set[tuple[int, int]]:
    heads = [r.heads(place) for place in r.places]
    return {
        pair for head in heads for pair in zip(head.stream.tolist(), head.seq.tolist(), strict=True)
    }


def test_the_report_names_both_addresses_and_the_store(pair: brokers.Broker) -> None:
    facts = pair.facts
    for scheme, url in (("mqtt", facts.url), ("mqtts", facts.subscriber_url or "")):
        assert url.startswith(f"{scheme}://127.0.0.1:") and url.count(",127.0.0.1:") == 1
    assert {
        "persistence-enabled": "true",
        "ha-policy": "shared-store",
        "brokers": "2",
    }.items() <= facts.settings.items()
    assert list(facts.nodes) == ["broker 1", "broker 2"]
    with pytest.raises(
        UsageError, match="there is no bookie 1: the cluster has broker 1, broker 2"
    ):
        pair.node("bookie", 1)
