"""Messages in chunks on a real Pulsar, by both clients: whole, once, and as many entries as the broker counts; what stays incomplete."""

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

pytestmark = [pytest.mark.pulsar, pytest.mark.skipif(java.find() is None, reason="no Java here: apt-get install openjdk-17-jre-headless")]
MAX = 1024**2  # maxMessageSize of the tests' broker
both = pytest.mark.parametrize("driver", [PulsarDriver, NativePulsarDriver])


@pytest.fixture
def broker(pulsar_process: brokers.Broker) -> brokers.Broker:
    return pulsar_process


def subject(broker: brokers.Broker, driver: Callable[..., Any], **settings: Any) -> Subject:
    plain = {"operation_timeout": 20 * SECOND, "batching_enabled": False, "chunking_enabled": True, "send_timeout": 0}
    target = TargetAddress(url=broker.facts.url, admin_url=broker.facts.admin_url)
    return Subject(driver=driver, target=target, settings=PulsarSettings(**plain | settings), deadline=60 * SECOND)


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
        (stream, seq) for place in r.places for stream, seq in zip(r.heads(place).stream.tolist(), r.heads(place).seq.tolist(), strict=True)
    )


@both
@pytest.mark.parametrize(("kind", "consumers"), [("Failover", 1), ("Shared", 2)])
def test_sizes_around_the_limit(broker: brokers.Broker, driver: type, kind: str, consumers: int) -> None:
    """Each of two producers' messages arrives once and as it was sent, in order where one consumer gets all; nothing is left."""
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
            assert all(heads.seq[heads.stream == stream].tolist() == list(range(5)) for stream in (0, 1))
        less = 1024 if driver is NativePulsarDriver else 100
        assert stats(broker, name)["msgInCounter"] == 2 * sum(-(-size // (MAX - less)) for size in sizes)
        r.until(lambda: backlog(broker, name) == 0, "all acknowledged")


@both
def test_a_window_of_messages(broker: brokers.Broker, driver: type) -> None:
    """maxPendingMessages counts messages, however many chunks they have."""
    name = f"window-{driver.__name__}".lower()
    with rig(subject(broker, driver, max_pending_messages=2), pool(3 * MAX), streams=1, run=name) as r:
        r.send(4)
        r.until(lambda: r.acked >= 4 and r.copies >= 4, "acked and received")
        assert set(np.concatenate([acks.status for acks in r.acks]).tolist()) == {Status.ACKED}


def publish_first_chunk(broker: brokers.Broker, run: str) -> None:
    """A producer that is gone after it."""
    with PulsarProxy(broker.facts.url) as proxy:
        proxy.entries = 1
        client = pulsar.Client(proxy.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer(f"persistent://public/loadtest-{run}/topic-0", chunking_enabled=True, send_timeout_millis=0)
        producer.send_async(bytes(3 * MAX), lambda result, message_id: None)
        assert proxy.held.wait(30) and proxy.stored.wait(30)
        close([client])


@contextmanager
def left_with_first_chunk(broker: brokers.Broker, name: str, **settings: Any) -> Iterator[list[Rig]]:
    """A consumer of either kind, to which a message was begun and others are sent. What must expire does so for both at a time."""
    with ExitStack() as stack:
        rigs = []
        for kind in ("Failover", "Shared"):
            run, chosen = f"{name}-{kind}".lower(), subject(broker, NativePulsarDriver, subscription_type=kind, **settings)
            rigs.append(stack.enter_context(rig(chosen, pool(1024, 2 * MAX), streams=1, run=run)))
            publish_first_chunk(broker, run)
            rigs[-1].send(4)
        for r, kind in zip(rigs, ("failover", "shared"), strict=True):
            r.until(lambda r=r: r.copies >= 4, "received")  # type: ignore[misc]
            r.until(lambda kind=kind: backlog(broker, f"{name}-{kind}") == 0, "the first chunk acknowledged")  # type: ignore[misc]
        yield rigs


def test_a_message_that_stays_incomplete(broker: brokers.Broker) -> None:
    """It is never delivered, what is behind it is, and it is acknowledged when it has expired."""
    with left_with_first_chunk(broker, "incomplete", expire_time_of_incomplete_chunked_message=SECOND) as rigs:
        assert [seen(r) for r in rigs] == [[(0, seq) for seq in range(4)]] * 2


def test_more_than_may_be_incomplete(broker: brokers.Broker) -> None:
    """The oldest is given up for one more, and comes again after unackedMessagesTimeout: a chunk of nobody, which comes until it expires."""
    few = {"max_pending_chunked_message": 1, "unacked_messages_timeout": SECOND // 2}
    with left_with_first_chunk(broker, "given-up", expire_time_of_incomplete_chunked_message=2 * SECOND, **few) as rigs:
        assert [seen(r) for r in rigs] == [[(0, seq) for seq in range(4)]] * 2
