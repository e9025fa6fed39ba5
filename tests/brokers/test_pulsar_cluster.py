"""A Pulsar cluster: two brokers and three bookies, killed one by one while both clients send; every message is accounted for."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from waiting_for import wait_until

from pytest_loadtest.brokers import java
from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.drivers.pulsar.admin import Admin
from pytest_loadtest.drivers.pulsar.library.driver import PulsarDriver
from pytest_loadtest.drivers.pulsar.native.driver import NativePulsarDriver
from pytest_loadtest.drivers.pulsar.settings import Persistence, PulsarSettings
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message.samples import Status
from pytest_loadtest.testing import DRIVER_CHECKS, Rig, Subject, rig
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pytest_loadtest import brokers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.pulsar,
    pytest.mark.skipif(
        java.find() is None, reason="no Java here: apt-get install default-jre-headless"
    ),
]
STREAMS, EACH, BUNDLES = 8, 200, 8
both = pytest.mark.parametrize(
    "driver",
    [
        pytest.param(PulsarDriver, id="library"),
        pytest.param(NativePulsarDriver, id="native"),
    ],
)


@pytest.fixture
def cluster(pulsar_cluster: brokers.Broker) -> brokers.Broker:
    """The cluster with all its processes; those that a test has killed are started again."""
    start_all(pulsar_cluster)
    return pulsar_cluster


def subject(cluster: brokers.Broker, driver: Any, **settings: Any) -> Subject:
    chosen = PulsarSettings(
        **{
            "max_pending_messages": 1000,
            "operation_timeout": 30 * SECOND,
            "namespace_bundles": BUNDLES,
        }
        | dict(cluster.facts.client)
        | settings
    )
    target = TargetAddress(url=cluster.facts.url, admin_url=cluster.facts.admin_url)
    shared = chosen.model_copy(update={"subscription_type": "Shared", "receiver_queue_size": 10})
    return Subject(
        driver=driver, target=target, settings=chosen, shared=shared, deadline=120 * SECOND
    )


def three_copies() -> Persistence:
    return Persistence(ensemble_size=3, write_quorum=3, ack_quorum=2)


def account(r: Rig, sent: int) -> None:
    """Wait until each message sent was acknowledged and received, or one failed."""
    r.until(
        lambda: r.failed > 0 or (r.acked >= sent and r.copies >= sent and received(r) >= sent),
        "acked and received",
    )
    assert (r.acked, r.failed, received(r)) == (sent, 0, sent)


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
def test_two_of_three_copies_are_enough(cluster: brokers.Broker, driver: Any) -> None:
    """The ack quorum is 2: a killed bookie costs no message."""
    with rig(
        subject(cluster, driver, persistence=three_copies()), streams=STREAMS, topics=STREAMS
    ) as r:
        r.send(EACH)
        cluster.node("bookie", 2).kill()
        r.send(EACH, EACH)
        account(r, 2 * EACH * STREAMS)


@both
def test_ownership_that_moves_loses_nothing(cluster: brokers.Broker, driver: Any) -> None:
    """A namespace unloaded, a bundle split, a broker killed: the client looks up the next owner, or is told it.

    pulsar-client asks the service URLs in turn for all topics together, so one topic's attempts may all be at the killed broker, until a
    lookup ends after ``operationTimeout`` (apache/pulsar#20508 describes it). By then the default ``sendTimeout`` would have passed.
    """
    settings = {
        "persistence": three_copies(),
        "send_timeout": 120 * SECOND,
        "operation_timeout": 10 * SECOND,
    }
    with rig(
        subject(cluster, driver, **settings),
        streams=STREAMS,
        topics=STREAMS,
        run=f"moved-{driver.__name__}",
    ) as r:
        admin, path = (
            Admin(str(cluster.facts.admin_url), PulsarSettings(**cluster.facts.client)),
            f"namespaces/public/loadtest-moved-{driver.__name__}",
        )
        moves = (
            lambda: admin._request("PUT", f"{path}/unload"),
            partial(split, admin, path),
            cluster.node("broker", 1).kill,
        )
        for turn, move in enumerate(moves):
            r.send(EACH, turn * EACH)
            move()
        r.send(EACH, 3 * EACH)
        account(r, 4 * EACH * STREAMS)
        assert admin._request("GET", f"{path}/bundles")["numBundles"] == BUNDLES + 1


def split(admin: Admin, path: str) -> None:
    first, second = admin._request("GET", f"{path}/bundles")["boundaries"][:2]
    admin._request("PUT", f"{path}/{first}_{second}/split?unload=true")


def test_one_bookie_of_three_stores_nothing(cluster: brokers.Broker) -> None:
    """No message is acknowledged then, and none that was is lost. pulsar-client may leave such messages without an answer for minutes."""
    settings = {"persistence": three_copies(), "send_timeout": 5 * SECOND}
    with rig(
        subject(cluster, NativePulsarDriver, **settings), streams=STREAMS, topics=STREAMS
    ) as r:
        r.send(EACH)
        account(r, EACH * STREAMS)
        cluster.node("bookie", 2).kill()
        cluster.node("bookie", 3).kill()
        r.send(EACH, EACH)
        r.until(lambda: r.acked >= 2 * EACH * STREAMS, "answered")
        counts = Counter(status for answer in r.acks for status in answer.status.tolist())
        assert counts == {Status.ACKED: EACH * STREAMS, Status.FAILED: EACH * STREAMS}
        assert received(r) == EACH * STREAMS
        assert cluster.failure() is None
        start_all(cluster)


def start_all(cluster: brokers.Broker) -> None:
    """Start all processes that are down, at the same time."""
    down = [name.split() for name, pid in cluster.facts.nodes.items() if pid is None]
    if not down:
        return
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda name: cluster.node(name[0], int(name[1])).start(), down))
    assert cluster.failure() is None
    # A bookie is ready before the brokers know of it; until then they reject topics with three copies.
    wait_until(lambda: stores_three_copies(cluster), "topics with three copies", 60)


def stores_three_copies(cluster: brokers.Broker) -> bool:
    try:
        with rig(subject(cluster, NativePulsarDriver, persistence=three_copies())):
            return True
    except TargetError:
        return False
