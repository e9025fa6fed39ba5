"""A Pulsar cluster: two brokers and three bookies, killed one by one while both clients send; every message is accounted for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from waiting_for import gone

from pytest_loadtest import brokers
from pytest_loadtest.brokers import java
from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.drivers.pulsar.library.driver import PulsarDriver
from pytest_loadtest.drivers.pulsar.native.driver import NativePulsarDriver
from pytest_loadtest.drivers.pulsar.settings import Persistence, PulsarSettings
from pytest_loadtest.message.samples import Status
from pytest_loadtest.testing import DRIVER_CHECKS, Rig, Subject, rig
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.pulsar, pytest.mark.skipif(java.find() is None, reason="no Java here: apt-get install openjdk-17-jre-headless")]
STREAMS, EACH = 8, 200
both = pytest.mark.parametrize("driver", [PulsarDriver, NativePulsarDriver], ids=["library", "native"])
# A broker's topics move when its session at ZooKeeper ends; the default of 30 s would only make the tests longer.
SETTINGS = {"metadataStoreSessionTimeoutMillis": "4000", "zkTimeout": "4000"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    folder = tmp_path_factory.mktemp("cluster") / "broker"
    request = brokers.BrokerRequest(kind="pulsar", mode="process", folder=folder, settings=SETTINGS, nodes={"broker": 2, "bookie": 3})
    broker = brokers.start(request, print)
    pids = broker.facts.pids
    yield broker
    broker.stop()
    assert all(map(gone, (*pids, *broker.facts.pids)))
    assert not folder.exists()


def subject(cluster: brokers.Broker, driver: Any, **settings: Any) -> Subject:
    chosen = PulsarSettings(**{"max_pending_messages": 1000, "operation_timeout": 30 * SECOND, "namespace_bundles": 8} | settings)
    target = TargetAddress(url=cluster.facts.url, admin_url=cluster.facts.admin_url)
    return Subject(driver=driver, target=target, settings=chosen, deadline=60 * SECOND)


def three_copies() -> Persistence:
    return Persistence(ensemble_size=3, write_quorum=3, ack_quorum=2)


def account(r: Rig, sent: int) -> None:
    """Wait until each message sent was acknowledged and received; none failed."""
    r.until(lambda: r.acked >= sent and received(r) >= sent, "acked and received")
    assert {status for answer in r.acks for status in answer.status.tolist()} == {Status.ACKED}
    assert received(r) == sent


def received(r: Rig) -> int:
    """Return the number of different messages received."""
    seen = set[tuple[int, int]]()
    for place in r.places:
        heads = r.heads(place)
        seen.update(zip(heads.stream.tolist(), heads.seq.tolist(), strict=True))
    return len(seen)


@both
def test_the_driver_keeps_each_promise_on_a_cluster(cluster: brokers.Broker, driver: Any) -> None:
    """The first service URL is that of one broker; half of the topics are at the other."""
    subjects = replace(subject(cluster, driver), partitions=3, ordered=False)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda check: check(subjects), DRIVER_CHECKS))


@both
def test_topics_of_a_killed_broker_move_without_loss(cluster: brokers.Broker, driver: Any) -> None:
    with rig(subject(cluster, driver, persistence=three_copies()), streams=STREAMS, topics=STREAMS, run="killed") as r:
        r.send(EACH)
        cluster.node("broker", 1).kill()
        r.send(EACH, EACH)
        account(r, 2 * EACH * STREAMS)
        cluster.node("broker", 1).start()
    assert cluster.failure() is None
