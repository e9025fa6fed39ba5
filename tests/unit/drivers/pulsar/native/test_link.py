"""One connection to a broker: handshake, authentication, silence."""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import struct
import time
from typing import TYPE_CHECKING

import pytest
from fake_pulsar import FakeBroker, nothing, refuse
from native_rig import faulty

from pytest_loadtest.drivers.arrival_clock import ArrivalClock
from pytest_loadtest.drivers.pulsar.native.link import Address, BrokerLink, join_failures
from pytest_loadtest.drivers.pulsar.settings import Authentication
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message.samples import Status
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar.connection import PulsarConnection

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = Authentication(plugin="token", token="t0")


def test_a_challenge_is_answered_with_the_credentials(broker: FakeBroker) -> None:
    """In the handshake, and later when a token is about to expire."""
    challenge = {
        "server_version": "fake",
        "challenge": api.AuthData(auth_method_name="token", auth_data=b"PulsarAuthRefresh"),
    }
    broker.once["CONNECT"] += [lambda seen: seen.peer.tell("AUTH_CHALLENGE", **challenge)]
    broker.once["AUTH_RESPONSE"] += [
        lambda seen: seen.peer.tell(
            "CONNECTED", server_version="fake", max_message_size=5 * 1024**2
        ),
        nothing,
    ]
    with faulty(broker, streams=1, authentication=TOKEN) as r:
        assert (broker.of("CONNECT")[0].auth_method_name, broker.of("CONNECT")[0].auth_data) == (
            "token",
            b"t0",
        )
        broker.peers[0].tell("AUTH_CHALLENGE", **challenge)
        r.send(1)
        r.until(lambda: r.answers() and len(broker.of("AUTH_RESPONSE")) == 2, "answered")
        assert [said.response.auth_data for said in broker.of("AUTH_RESPONSE")] == [b"t0", b"t0"]
        assert len(broker.peers) == 1


def test_credentials_that_are_missing_for_a_moment_cost_a_connection(
    broker: FakeBroker, tmp_path: Path
) -> None:
    """A file of a token that is replaced while the broker asks for a new one; the next attempt also fails."""
    token = tmp_path / "token"
    token.write_text("t0")
    from_file = Authentication(plugin="token", token_file=str(token))
    with faulty(broker, streams=1, authentication=from_file) as r:
        token.unlink()
        challenge = api.AuthData(auth_method_name="token", auth_data=b"PulsarAuthRefresh")
        broker.peers[0].tell("AUTH_CHALLENGE", server_version="fake", challenge=challenge)
        r.until(lambda: len(broker.peers) > 1, "connected again", step=MILLISECOND)
        assert "cannot be read" in str(r.driver.disconnected())
        token.write_text("t1")
        r.send(1)
        r.until(r.answers, "answered", step=MILLISECOND)
        assert [said.auth_data for said in broker.of("CONNECT")] == [b"t0", b"t1"]


def test_the_error_has_the_brokers_reason(broker: FakeBroker) -> None:
    broker.rules["CONNECT"] = refuse(api.AuthenticationError, "token expired")
    with pytest.raises(TargetError, match="token expired"), faulty(broker, streams=1):
        pass


def test_a_rejection_after_a_lost_connection_ends_the_run(broker: FakeBroker) -> None:
    with faulty(broker, streams=1) as r:
        broker.rules["CONNECT"] = refuse(api.AuthenticationError, "token revoked")
        broker.peers[0].drop()
        with pytest.raises(TargetError, match=r"producer of stream 0 cannot go on.*token revoked"):
            r.until(lambda: False, "an end", step=MILLISECOND)


def test_a_broker_that_is_not_ready_is_tried_again(broker: FakeBroker) -> None:
    broker.once["CONNECT"] += [refuse(api.ServiceNotReady)] * 2
    with faulty(broker, streams=1):
        assert len(broker.of("CONNECT")) == 3


def test_a_listener_that_never_answers_is_no_target(broker: FakeBroker) -> None:
    """The error comes after operationTimeout."""
    broker.rules["CONNECT"] = nothing
    with (
        pytest.raises(TargetError, match="timed out"),
        faulty(broker, streams=1, operation_timeout=SECOND // 5),
    ):
        pass


def test_a_reconnect_without_an_answer_is_repeated_after_10_s(broker: FakeBroker) -> None:
    with faulty(broker, streams=1) as r:
        broker.once["CONNECT"] += [nothing]
        broker.peers[0].drop()
        r.until(lambda: len(broker.of("CONNECT")) == 2, "tried", step=MILLISECOND)
        assert r.driver.disconnected() is not None
        r.clock.advance(16 * SECOND)
        r.until(lambda: not r.driver.disconnected(), "there again", step=MILLISECOND)
        assert len(broker.of("CONNECT")) == 3


def test_pings_are_answered_and_sent_after_30_s_of_silence(broker: FakeBroker) -> None:
    """With answers no connection is given up."""
    with faulty(broker, streams=1) as r:
        broker.peers[0].tell("PING")
        r.until(lambda: broker.of("PONG"), "answered")
        for number in range(1, 6):
            r.clock.advance(36 * SECOND)
            r.until(lambda: len(broker.of("PING")) == number, "pinged")  # noqa: B023
            r.clock.advance(6 * SECOND)
            r.turn()
        assert len(broker.peers) == 1 and r.driver.disconnected() is None


def test_a_connection_is_given_up_after_60_s_of_silence(broker: FakeBroker) -> None:
    """Its entries are sent on another one."""
    broker.rules["PING"] = broker.rules["SEND"] = nothing
    with faulty(broker, streams=1) as r:
        r.send(1)
        r.until(lambda: broker.of("SEND"), "sent")
        r.clock.advance(40 * SECOND)
        r.until(lambda: broker.of("PING"), "pinged")
        assert r.driver.disconnected() is None
        del broker.rules["SEND"]
        r.clock.advance(30 * SECOND)
        r.until(r.answers, "answered", step=MILLISECOND)
        assert r.answers() == [(0, Status.ACKED, 1)]
        assert len(broker.peers) == 2


class _Reset(BrokerLink):
    """A connection that is reset before its first step."""

    def _begin(self) -> socket.socket:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            begun = socket.create_connection(listener.getsockname())
            peer, _ = listener.accept()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
        begun.setblocking(False)
        assert select.select([begun], [], [], 10)[0]
        return begun


@pytest.mark.parametrize("tls", [True, False])
def test_a_connection_that_is_reset_while_it_connects_fails_with_its_reason(tls: bool) -> None:
    """With TLS too: a broker that is killed must not end the run."""
    connection = PulsarConnection("test", "", lambda: b"")
    link = _Reset(
        Address("localhost", 1, tls),
        connection,
        ssl.create_default_context() if tls else None,
        ArrivalClock(time.monotonic_ns, kernel=False),
    )
    try:
        link.step()
        assert link.failure == os.strerror(errno.ECONNRESET)
    finally:
        link.close()


def test_connections_come_from_the_source_addresses_in_turn(broker: FakeBroker) -> None:
    """Each broker has two connections, and a third follows when one is lost."""
    with faulty(
        broker, streams=2, sources=("127.0.0.5", "127.0.0.6"), connections_per_broker=2
    ) as r:
        assert [peer.address for peer in broker.peers] == ["127.0.0.5", "127.0.0.6"]
        broker.peers[1].drop()
        r.until(lambda: len(broker.peers) == 3, "connected again", step=MILLISECOND)
        assert broker.peers[2].address == "127.0.0.5"


def test_an_address_of_another_family_is_a_failure_with_both(broker: FakeBroker) -> None:
    with (
        pytest.raises(
            TargetError, match=r"cannot connect from ::1: no IPv6 address of 127\.0\.0\.1 is known"
        ),
        faulty(broker, streams=1, sources=("::1",)),
    ):
        pass


def test_a_text_has_some_of_many_failures() -> None:
    """One for each of the 20 000 producers of a large profile would fill the report."""
    assert join_failures(["a"]) == "a"
    assert join_failures(["a", "b", "c", "d"]) == "a; b; c; d"
    assert join_failures(list("abcdef")) == "a; b; c; d; and 2 more"
