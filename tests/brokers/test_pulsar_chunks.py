"""Messages in chunks on a real Pulsar, with both clients: sizes around the limit, windows, and incomplete messages."""

from __future__ import annotations

import json
import urllib.request
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pulsar
import pytest
from pulsar_proxy import PulsarProxy

from pytest_loadtest.brokers import java
from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.drivers.pulsar.library.client import close
from pytest_loadtest.drivers.pulsar.library.driver import PulsarDriver
from pytest_loadtest.drivers.pulsar.native.driver import NativePulsarDriver
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.message.payloads import PayloadPool, build_pool
from pytest_loadtest.message.samples import Flag, Status
from pytest_loadtest.profile.stages import parse_buckets
from pytest_loadtest.testing import Rig, Subject, rig
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_loadtest import brokers

pytestmark = [
    pytest.mark.pulsar,
    pytest.mark.skipif(
        java.find() is None, reason="no Java here: apt-get install default-jre-headless"
    ),
]
MAX = 1024**2  # maxMessageSize of the tests' broker
both = pytest.mark.parametrize("driver", [PulsarDriver, NativePulsarDriver])


@pytest.fixture
def broker(pulsar_process: brokers.Broker) -> brokers.Broker:
    return pulsar_process


def subject(broker: brokers.Broker, driver: Callable[..., Any], **settings: Any) -> Subject:
    plain = {
        "operation_timeout": 20 * SECOND,
        "batching_enabled": False,
        "chunking_enabled": True,
        "send_timeout": 0,
    }
    target = TargetAddress(url=broker.facts.url, admin_url=broker.facts.admin_url)
    return Subject(
        driver=driver,
        target=target,
        settings=PulsarSettings(**plain | settings),
        deadline=60 * SECOND,
    )


def pool(*sizes: int) -> PayloadPool:
    """One payload of each size, with a checksum."""
    return build_pool(
        buckets=parse_buckets({f"{size}-{size + 1}": 1 for size in sizes}), message_size=None, randomized=True, random_ratio=1.0, file_content=None, seed=1,
        checksum=True, max_size=None,
    )  # fmt: skip


def stats(broker: brokers.Broker, run: str) -> dict[str, Any]:
    url = f"{broker.facts.admin_url}/admin/v2/persistent/public/loadtest-{run}/topic-0/stats?getPreciseBacklog=true"
    with urllib.request.urlopen(url, timeout=20) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


def backlog(broker: brokers.Broker, run: str) -> int:
    (subscription,) = stats(broker, run)["subscriptions"].values()
    return int(subscription["msgBacklog"])


def seen(r: Rig) -> list[tuple[int, int]]:
    return sorted(
        (stream, seq)
        for place in r.places
        for stream, seq in zip(
            r.heads(place).stream.tolist(), r.heads(place).seq.tolist(), strict=True
        )
    )


@both
@pytest.mark.parametrize(("kind", "consumers"), [("Failover", 1), ("Shared", 2)])
def test_messages_around_the_limit_arrive_once_and_whole(
    broker: brokers.Broker, driver: type, kind: str, consumers: int
) -> None:
    """In order if one consumer gets all; the backlog is empty afterwards."""
    sizes, name = (1024, MAX - 1, MAX, MAX + 1, 2 * MAX), f"sizes-{driver.__name__}-{kind}".lower()
    chosen = subject(broker, driver, subscription_type=kind, connections_per_broker=2)
    with rig(chosen, pool(*sizes), streams=2, consumers=consumers, run=name) as r:
        r.send(len(sizes))
        r.until(lambda: r.acked >= 10 and r.copies >= 10, "acked and received")
        assert seen(r) == [(stream, seq) for stream in (0, 1) for seq in range(5)]
        flags = [flag for place in r.places for flag in r.column(place, "flags")]
        assert not any(flag & Flag.CORRUPT for flag in flags)
        if consumers == 1:
            heads = r.heads(0)
            assert all(
                heads.seq[heads.stream == stream].tolist() == list(range(5)) for stream in (0, 1)
            )
        less = 1024 if driver is NativePulsarDriver else 100
        assert stats(broker, name)["msgInCounter"] == 2 * sum(
            -(-size // (MAX - less)) for size in sizes
        )
        r.until(lambda: backlog(broker, name) == 0, "all acknowledged")


@both
def test_the_window_counts_messages_and_not_chunks(broker: brokers.Broker, driver: type) -> None:
    name = f"window-{driver.__name__}".lower()
    with rig(
        subject(broker, driver, max_pending_messages=2), pool(3 * MAX), streams=1, run=name
    ) as r:
        r.send(4)
        r.until(lambda: r.acked >= 4 and r.copies >= 4, "acked and received")
        assert set(np.concatenate([acks.status for acks in r.acks]).tolist()) == {Status.ACKED}


def publish_first_chunk(broker: brokers.Broker, run: str) -> None:
    """Publish the first chunk with a producer that then leaves."""
    with PulsarProxy(broker.facts.url) as proxy:
        proxy.entries = 1
        client = pulsar.Client(proxy.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer(
            f"persistent://public/loadtest-{run}/topic-0",
            chunking_enabled=True,
            send_timeout_millis=0,
        )
        producer.send_async(bytes(3 * MAX), lambda result, message_id: None)
        assert proxy.held.wait(30) and proxy.stored.wait(30)
        close([client])


@contextmanager
def left_with_first_chunk(
    broker: brokers.Broker, name: str, **settings: Any
) -> Iterator[list[Rig]]:
    """Consumers of both clients, with a begun message and whole ones. Both wait for the expiry at the same time."""
    with ExitStack() as stack:
        rigs = []
        for kind in ("Failover", "Shared"):
            run, chosen = (
                f"{name}-{kind}".lower(),
                subject(broker, NativePulsarDriver, subscription_type=kind, **settings),
            )
            rigs.append(stack.enter_context(rig(chosen, pool(1024, 2 * MAX), streams=1, run=run)))
            publish_first_chunk(broker, run)
            rigs[-1].send(4)
        for r, kind in zip(rigs, ("failover", "shared"), strict=True):
            r.until(lambda r=r: r.copies >= 4, "received")  # type: ignore[misc]
            r.until(
                lambda kind=kind: backlog(broker, f"{name}-{kind}") == 0,
                "the first chunk acknowledged",
            )  # type: ignore[misc]
        yield rigs


def test_an_incomplete_message_is_never_delivered_and_is_acknowledged(
    broker: brokers.Broker,
) -> None:
    """When it has expired; the messages after it are delivered."""
    with left_with_first_chunk(
        broker, "incomplete", expire_time_of_incomplete_chunked_message=SECOND
    ) as rigs:
        assert [seen(r) for r in rigs] == [[(0, seq) for seq in range(4)]] * 2


def test_the_oldest_incomplete_message_is_given_up_and_delivered_again(
    broker: brokers.Broker,
) -> None:
    """After unackedMessagesTimeout, until it expires."""
    few = {"max_pending_chunked_message": 1, "unacked_messages_timeout": SECOND // 2}
    with left_with_first_chunk(
        broker, "given-up", expire_time_of_incomplete_chunked_message=2 * SECOND, **few
    ) as rigs:
        assert [seen(r) for r in rigs] == [[(0, seq) for seq in range(4)]] * 2
