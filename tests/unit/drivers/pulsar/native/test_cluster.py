"""Lookups, hosts and connections of the native client, and invalid answers of brokers."""

from __future__ import annotations

import os
import select
import socket
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from fake_pulsar import FakeBroker, Seen, answer, nothing, refuse
from native_rig import MovedClock, faulty

from pytest_loadtest.drivers.arrival_clock import ArrivalClock
from pytest_loadtest.drivers.pulsar.native import link
from pytest_loadtest.drivers.pulsar.native.cluster import Cluster
from pytest_loadtest.drivers.pulsar.native.link import Address
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message.samples import Status
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPIC = "persistent://a/b/c"


@contextmanager
def closed_port() -> Iterator[str]:
    """``host:port`` on which no process listens, and none will."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def found(url: str, **more: bool) -> Callable[[Seen], None]:
    """Answer a lookup with this URL. :param more: ``authoritative``, ``proxy_through_service_url``."""
    return lambda seen: seen.peer.tell(
        "LOOKUP_RESPONSE",
        request_id=seen.said.request_id,
        response=1,
        broker_service_url=url,
        **more,
    )


def redirect(url: str) -> Callable[[Seen], None]:
    return lambda seen: seen.peer.tell(
        "LOOKUP_RESPONSE",
        request_id=seen.said.request_id,
        response=0,
        broker_service_url=url,
        authoritative=True,
    )


def test_a_lookup_follows_redirects(broker: FakeBroker) -> None:
    """The next request repeats whether the answer was authoritative. Producers of one topic share the lookup."""
    with FakeBroker() as other, FakeBroker() as last:
        broker.rules["LOOKUP"], other.rules["LOOKUP"] = redirect(other.url), found(last.url)
        with faulty(broker, streams=3):
            asked = [
                [lookup.authoritative for lookup in each.of("LOOKUP")]
                for each in (broker, other, last)
            ]
            assert asked == [[False], [True], []]
            assert [len(each.of("PRODUCER")) for each in (broker, other, last)] == [0, 0, 3]


def test_a_lookup_ends_after_20_redirects(broker: FakeBroker) -> None:
    clock = MovedClock()

    def onwards(seen: Seen) -> None:
        clock.advance(SECOND)
        redirect(broker.url)(seen)

    broker.rules["LOOKUP"] = onwards
    with (
        pytest.raises(TargetError, match="redirected without end"),
        faulty(broker, streams=1, clock=clock, operation_timeout=15 * SECOND),
    ):
        pass
    assert len(broker.of("LOOKUP")) == 21


def test_a_proxy_gets_the_name_of_the_broker(broker: FakeBroker) -> None:
    """On a connection for each broker, also after the topic has moved."""
    broker.rules["LOOKUP"] = found("pulsar://inner:6650", proxy_through_service_url=True)
    with faulty(broker, streams=1) as r, FakeBroker() as inner:
        assert [hello.proxy_to_broker_url for hello in broker.of("CONNECT")] == ["", "inner:6650"]
        (made,) = [seen for seen in broker.seen if seen.kind == "PRODUCER"]
        assert made.peer is broker.peers[1]
        broker.rules["LOOKUP"] = found("pulsar://next:6650", proxy_through_service_url=True)
        made.peer.tell(
            "CLOSE_PRODUCER", producer_id=0, request_id=1, assigned_broker_service_url=inner.url
        )
        r.until(lambda: len(broker.of("PRODUCER")) == 2, "there again")
        assert [hello.proxy_to_broker_url for hello in broker.of("CONNECT")] == [
            "",
            "inner:6650",
            "next:6650",
        ]
        assert not inner.peers


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://127.0.0.1:80",
        "pulsar://",
        "pulsar://a..b:6650",
        "pulsar://127.0.0.1:99999",
        "pulsar://[::",
    ],
)
def test_an_invalid_address_from_a_broker_is_asked_again(broker: FakeBroker, url: str) -> None:
    """It does not end the run."""
    broker.once["LOOKUP"] += [found(url), redirect(url)]
    with faulty(broker, streams=1) as r:
        broker.peers[0].tell(
            "CLOSE_PRODUCER", producer_id=0, request_id=1, assigned_broker_service_url=url
        )
        r.until(lambda: len(broker.of("PRODUCER")) == 2, "there again", step=MILLISECOND)


@pytest.mark.parametrize("name", [None, TOPIC])
def test_the_next_host_is_used_if_the_first_refuses(broker: FakeBroker, name: str | None) -> None:
    """For an existing topic and for one of the run's own."""
    with (
        closed_port() as first,
        faulty(f"pulsar://{first},{first},{broker.host}", streams=1, consumers=1, name=name) as r,
    ):
        r.send(1)
        r.until(r.answers, "answered")


@pytest.mark.parametrize("refusing", [1, 2])
def test_the_next_address_of_a_name_is_used_if_the_first_refuses(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, refusing: int
) -> None:  # fmt: skip
    """As with ``localhost``, where ``/etc/hosts`` has ::1 first and the broker listens on IPv4 alone; also when it connects again."""
    _, _, port = broker.host.rpartition(":")
    none = [(socket.AF_INET, (f"127.0.0.{2 + number}", int(port))) for number in range(refusing)]
    monkeypatch.setattr(
        link, "addresses_from", lambda *_: [*none, (socket.AF_INET, ("127.0.0.1", int(port)))]
    )
    with faulty(f"pulsar://several.example:{port}", streams=1, consumers=1) as r:
        r.send(1)
        r.until(r.answers, "answered")
        broker.peers[0].drop()
        r.until(lambda: len(broker.of("CONNECT")) == 2, "tried", step=MILLISECOND)
        r.until(lambda: not r.driver.disconnected(), "there again", step=MILLISECOND)


def test_the_last_refusal_counts_if_all_addresses_of_a_name_refuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with closed_port() as first, closed_port() as second:
        none = [
            (socket.AF_INET, (host, int(port)))
            for host, port in (each.split(":") for each in (first, second))
        ]
        monkeypatch.setattr(link, "addresses_from", lambda *_: list(none))
        refused = pytest.raises(
            TargetError, match="cannot connect to pulsar://localhost:1: .*Connection refused"
        )
        with refused, faulty("pulsar://localhost:1", streams=1):
            pass


@pytest.mark.parametrize("name", [None, TOPIC])
def test_it_fails_at_once_if_all_hosts_refuse(name: str | None) -> None:
    with closed_port() as first, closed_port() as second:
        refused = pytest.raises(TargetError, match="Connection refused")
        with refused, faulty(f"pulsar://{first},{second}", streams=1, name=name):
            pass


def test_credentials_that_are_rejected_under_load_have_their_remedy(broker: FakeBroker) -> None:
    """For example a token that has expired when a lost connection is opened again."""
    with faulty(broker, streams=1) as r:
        broker.rules["CONNECT"] = refuse(api.AuthenticationError, "Failed to authenticate")
        broker.peers[-1].drop()
        with pytest.raises(
            TargetError,
            match="Failed to authenticate: the broker requires authentication: write driver.authentication",
        ):
            r.until(lambda: False, "never", step=MILLISECOND)


def test_several_lost_connections_to_a_host_count_once(broker: FakeBroker) -> None:
    """The next host is used, and not the lost one again."""
    with (
        FakeBroker() as other,
        faulty(f"pulsar://{broker.host},{other.host}", streams=2, connections_per_broker=2) as r,
    ):
        assert len(broker.peers) == 2
        broker.close()
        r.until(lambda: len(other.of("PRODUCER")) == 2, "at the other", step=MILLISECOND)
        assert len(other.of("LOOKUP")) >= 1


def test_a_lost_connection_with_a_duplicated_descriptor_is_noticed(broker: FakeBroker) -> None:
    """A forked process has duplicates; events of the descriptor are not received any more."""
    with faulty(broker, streams=1, consumers=1) as r:
        (descriptor,) = r.driver._cluster._by_descriptor
        duplicate = os.dup(descriptor)
        try:
            broker.peers[0].drop()
            r.until(lambda: len(broker.of("CONNECT")) == 2, "tried", step=MILLISECOND)
            r.until(lambda: not r.driver.disconnected(), "there again", step=MILLISECOND)
        finally:
            os.close(duplicate)


def test_a_request_without_an_answer_is_repeated(broker: FakeBroker) -> None:
    """After operationTimeout."""
    with faulty(broker, streams=1, operation_timeout=3 * SECOND) as r:
        broker.once["PRODUCER"] += [nothing]
        broker.peers[0].drop()
        r.until(lambda: len(broker.of("PRODUCER")) == 2, "asked", step=MILLISECOND)
        r.clock.advance(4 * SECOND)
        r.until(lambda: not r.driver.disconnected(), "there again", step=MILLISECOND)
        assert (len(broker.of("PRODUCER")), len(broker.peers)) == (3, 2)


def receipt(producer: int) -> Callable[[Seen], None]:
    return lambda seen: seen.peer.tell("SEND_RECEIPT", producer_id=producer, sequence_id=0)


def error_of(producer: int) -> Callable[[Seen], None]:
    return lambda seen: seen.peer.tell(
        "SEND_ERROR", producer_id=producer, sequence_id=0, error=api.NotAllowedError, message="no"
    )


@pytest.mark.parametrize(
    "garbage",
    [
        lambda seen: seen.peer.write(b"\xff" * 100),
        lambda seen: seen.peer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        lambda seen: seen.peer.write(b"\0\0\0\x08\0\0\0\x04\xff\xff\xff\xff"),
        lambda seen: seen.peer.write(b"\0\0\0\x05\0\0\xff\xff\0"),
        receipt(99),
        error_of(99),
    ],
    ids=[
        "a long frame",
        "HTTP",
        "no protobuf",
        "a command longer than its frame",
        "receipt of another",
        "error of another",
    ],
)
@pytest.mark.parametrize("consumers", [0, 1])
def test_invalid_bytes_end_the_connection_but_not_the_run(
    broker: FakeBroker, garbage: Callable[[Seen], None], consumers: int
) -> None:
    broker.once["SEND"] += [garbage]
    with faulty(broker, streams=1, consumers=consumers) as r:
        r.send(1)
        r.until(r.answers, "answered", step=MILLISECOND)
        assert r.answers() == [(0, Status.ACKED, 1)]
        assert len(broker.peers) == 2


@pytest.mark.parametrize("garbage", [receipt(0), error_of(0)], ids=["receipt", "error"])
def test_receipts_for_a_worker_without_producers_are_a_fault(
    broker: FakeBroker, garbage: Callable[[Seen], None]
) -> None:
    broker.once["SUBSCRIBE"] += [lambda seen: (answer(seen), garbage(seen))]
    with faulty(broker, consumers=1) as r:
        r.until(
            lambda: len(broker.peers) == 2 and not r.driver.disconnected(),
            "there again",
            step=MILLISECOND,
        )


def test_unknown_commands_and_answers_are_skipped(broker: FakeBroker) -> None:
    """Commands of later versions, and answers that were not requested."""
    with faulty(broker, streams=1) as r:
        unknown = api.Command(type=199).SerializeToString()
        broker.peers[0].write(
            (len(unknown) + 4).to_bytes(4, "big") + len(unknown).to_bytes(4, "big") + unknown
        )
        broker.peers[0].tell("SUCCESS", request_id=2**40)
        broker.peers[0].tell("ERROR", request_id=2**64 - 1, error=0, message="nobody")
        broker.peers[0].tell("CLOSE_PRODUCER", producer_id=77, request_id=1)
        r.send(1)
        r.until(r.answers, "answered")
        assert len(broker.peers) == 1


def test_losing_a_connection_twice_does_not_affect_the_next(broker: FakeBroker) -> None:
    """Which may have the same descriptor."""
    cluster = Cluster(
        broker.url,
        client="c",
        method="none",
        credentials=bytes,
        tls=None,
        connections=1,
        timeout=60 * SECOND,
        arrivals=ArrivalClock(MovedClock(), kernel=False),
    )
    try:
        first = cluster.link(Address.of(broker.url))
        first.fail("gone")
        cluster.lose(first)
        second = cluster.link(Address.of(broker.url))
        assert second is not first
        first.descriptor = (
            second.descriptor
        )  # as it mostly is, where no other thread opens anything
        cluster.lose(first)
        cluster.wait("connecting", lambda: second.ready)
    finally:
        cluster.close()


def test_a_worker_may_have_more_files_than_select_takes(broker: FakeBroker) -> None:
    """``select()`` takes no descriptor beyond 1023."""
    with ExitStack() as open_files:
        while True:
            number = os.dup(0)
            open_files.callback(os.close, number)
            if number > 1023:
                break
        with faulty(broker, streams=1) as r:
            r.send(1)
            r.until(r.answers, "answered")
    assert select.select([], [], [], 0) == ([], [], [])
