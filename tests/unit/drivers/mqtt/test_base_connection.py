"""Connections to brokers that follow a script: reconnects, subscriptions, refusals."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from mqtt_rig import CONNACK, FIRST_ROW, both, burst, context

from pytest_loadtest.drivers import driver_class
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message.route import Route

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.drivers.base import Acks


Script = list[bytes | None]


PUBACKS = b"\x40\x02\x00\x01\x40\x02\x00\x02"


@both
def test_resends_of_each_message_are_counted(
    scripted: Callable[[Script], str], client: str
) -> None:
    """A broker closes the connection twice before it answers: two messages have two resends, a later one has none."""
    url = scripted([CONNACK, None, CONNACK, None, CONNACK, PUBACKS, b"\x40\x02\x00\x03"])
    driver: Any = driver_class("mqtt", client)(context(url, time.monotonic_ns))  # type: ignore[call-arg]
    driver.open_producers(range(1))
    collected: list[Acks] = []

    def answered(count: int) -> None:
        end = time.monotonic_ns() + 30 * 10**9
        while sum(len(acks.row) for acks in collected) < count:
            assert time.monotonic_ns() < end, (
                f"not answered in time; disconnected: {driver.disconnected()}"
            )
            driver.poll(1_000_000)
            collected.extend(acks for acks in [driver.acks()] if acks is not None)

    assert driver.send(burst([0, 0])) is None
    answered(2)
    assert driver.send(burst([0], first=2)) is None
    answered(3)
    driver.close()
    assert np.concatenate([acks.row for acks in collected]).tolist() == [
        FIRST_ROW,
        FIRST_ROW + 1,
        FIRST_ROW + 2,
    ]
    resends = [
        np.zeros(len(acks.row), np.uint8) if acks.resends is None else acks.resends
        for acks in collected
    ]
    assert np.concatenate(resends).tolist() == [2, 2, 0]
    assert driver.facts().incidents == {"connection lost": 2}


@both
@pytest.mark.parametrize(
    ("code", "named"),
    [(0x00, "requested QoS 1: Granted QoS 0"), (0x87, "rejected 'loadtest/r1/0': Not authorized")],
)
def test_a_subscription_that_is_not_granted_as_requested_ends_the_run(
    scripted: Callable[[Script], str], code: int, named: str, client: str
) -> None:
    """The broker rejects it or lowers its QoS; the run ends before it starts."""
    url = scripted([CONNACK, b"\x90\x04\x00\x01\x00" + bytes([code])])
    driver: Any = driver_class("mqtt", client)(context(url, time.monotonic_ns))  # type: ignore[call-arg]
    with pytest.raises(TargetError, match=named):
        driver.open_consumers([0])
    driver.close()


@both
@pytest.mark.parametrize("hangs_up", [None, b"\xe0\x02\x83\x00"], ids=["silently", "with a reason"])
def test_a_subscription_is_asked_for_again(
    scripted: Callable[[Script], str], hangs_up: bytes | None, client: str
) -> None:
    """A broker that lets a client in and hangs up on its first two subscriptions, as Artemis may: the third is granted, and facts tell.

    At a rate it is one connection all the same: two more welcomes would stand for others that did not come up in time.
    """
    url = scripted([CONNACK, hangs_up, CONNACK, hangs_up, CONNACK, b"\x90\x04\x00\x01\x00\x01"])
    driver: Any = driver_class("mqtt", client)(context(url, time.monotonic_ns))  # type: ignore[call-arg]
    driver.pace(np.array([time.monotonic_ns()]), lambda: None)
    assert driver.open_consumers([0]).tolist() == [0]
    times = driver.opening_times()
    assert [len(times[name]) for name in ("connect", "subscribe", "dial", "up")] == [1] * 4
    driver.close()
    assert driver.facts().incidents == {
        "subscription repeated: the broker had closed the connection instead of answering": 2
    }


@both
def test_the_third_unanswered_subscription_ends_the_run(
    scripted: Callable[[Script], str], client: str
) -> None:
    """The error has the broker's reason."""
    url = scripted([CONNACK, None, CONNACK, None, CONNACK, b"\xe0\x02\x83\x00"])
    driver: Any = driver_class("mqtt", client)(context(url, time.monotonic_ns))  # type: ignore[call-arg]
    with pytest.raises(
        TargetError,
        match="consumer 0: the broker closed the connection: Implementation specific error",
    ):
        driver.open_consumers([0])
    driver.close()


@both
def test_a_client_id_in_use_ends_the_run(scripted: Callable[[Script], str], client: str) -> None:
    """Two clients with one id would disconnect each other at every reconnect."""
    url = scripted([CONNACK + b"\xe0\x02\x8e\x00"])
    driver: Any = driver_class("mqtt", client)(context(url, time.monotonic_ns))  # type: ignore[call-arg]
    end = time.monotonic_ns() + 10**10
    with pytest.raises(TargetError, match="'lt-r1-p0' is in use"):
        driver.open_producers([0])
        while time.monotonic_ns() < end:
            driver.poll(1_000_000)
    driver.close()


@both
def test_the_server_keep_alive_of_the_broker_replaces_the_requested_one(
    scripted: Callable[[Script], str], broker_reads: list[bytes], client: str
) -> None:
    """The client pings after one second instead of a minute, and the facts name both (MQTT 5, 3.2.2.3.14)."""
    url = scripted([b"\x20\x06\x00\x00\x03\x13\x00\x01", b"\xd0\x00"])
    driver: Any = driver_class("mqtt", client)(context(url, time.monotonic_ns))  # type: ignore[call-arg]
    driver.open_producers([0])
    end = time.monotonic_ns() + 30 * 10**9
    while len(broker_reads) < 2:
        assert time.monotonic_ns() < end, "no ping"
        driver.poll(1_000_000)
    assert broker_reads[1] == b"\xc0\x00"
    assert (
        driver.facts().applied["keepAlive"]
        == "1.00 s (the broker's Server Keep Alive; requested 60.0 s)"
    )
    driver.close()


@both
def test_reconnects_are_timed_and_rejected_attempts_counted_by_their_reason(
    scripted: Callable[[Script], str], client: str
) -> None:
    """A broker closes a connection, rejects the next two attempts, and accepts the third."""
    # The native client sends DISCONNECT after the rejection, which is one more read.
    farewell: Script = [None] if client == "native" else []
    url = scripted([CONNACK, None, b"\x20\x03\x00\x89\x00", *farewell, None, CONNACK])
    driver: Any = driver_class("mqtt", client)(context(url, time.monotonic_ns))  # type: ignore[call-arg]
    began = time.monotonic_ns()
    driver.open_producers([0])
    assert "reconnect" not in driver.opening_times()
    assert driver.send(burst([0])) is None
    poll_until(driver, lambda: "reconnect" in driver.opening_times())
    assert driver.facts().losses == 1
    assert driver.facts().incidents == {
        "connection lost": 1, "reconnect failed: the broker rejected the connection: Server busy": 1,
        "reconnect failed: the broker closes the connection without an answer": 1,
    }  # fmt: skip
    (took,) = driver.opening_times()["reconnect"]
    assert 300_000_000 <= took <= time.monotonic_ns() - began, (
        "three attempts wait at least 100 ms each"
    )
    driver.close()


def poll_until(driver: Any, done: Callable[[], object]) -> None:
    end = time.monotonic_ns() + 60 * 10**9
    while not done():
        assert time.monotonic_ns() < end, f"not in time; disconnected: {driver.disconnected()}"
        driver.poll(1_000_000)


@both
def test_ten_brief_connections_in_a_row_end_the_run(
    scripted: Callable[[Script], str], client: str
) -> None:
    """mosquitto 2.0 does not say that another client has taken over the session."""
    url = scripted([*([CONNACK, None] * 10), b""])
    driver: Any = driver_class("mqtt", client)(context(url, time.monotonic_ns))  # type: ignore[call-arg]
    with pytest.raises(
        TargetError,
        match=r"stream 0: the broker ended 10 connections in a row.* its client id 'lt-r1-p0' in use by another",
    ):
        driver.open_producers([0])
        driver.send(burst([0]))  # and again on each connection
        poll_until(driver, lambda: False)
    assert driver.facts().incidents == {"connection lost": 10}
    driver.close()
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1]))) as last:
        last.sendall(b"end of the script")


@both
@pytest.mark.parametrize("up", [True, False], ids=["after a loss", "at first"])
def test_a_failed_attempt_is_followed_by_one_at_the_next_address(
    scripted: Callable[[Script], str], client: str, up: bool
) -> None:
    """The first address rejects the client, the second welcomes it; the run goes on, also if the client was never connected before."""
    with socket.create_server(("127.0.0.1", 0)) as second:
        first = scripted([*([CONNACK, None] if up else []), b"\x20\x03\x00\x88\x00"])
        url = f"{first},127.0.0.1:{second.getsockname()[1]}"
        driver: Any = driver_class("mqtt", client)(context(url, time.monotonic_ns))  # type: ignore[call-arg]
        peers: list[socket.socket] = []

        def welcome() -> None:
            peers.append(second.accept()[0])
            peers[0].sendall(CONNACK)

        threading.Thread(target=welcome, daemon=True).start()
        driver.open_producers([0])
        driver.send(burst([0]))
        poll_until(driver, lambda: peers and driver.disconnected() is None)
        assert driver.facts().losses == up
        driver.close()
        peers[0].close()


@both
@pytest.mark.parametrize(
    ("codes", "named"),
    [
        (b"\x01\x87", "rejected 'no': Not authorized"),
        (b"\x01\x00", "requested QoS 1: Granted QoS 0"),
        (b"\x01", "the broker confirmed 1 of yes, no"),
    ],
)
def test_every_output_of_a_consumer_must_be_granted(
    scripted: Callable[[Script], str], codes: bytes, named: str, client: str
) -> None:
    url = scripted([CONNACK, bytes([0x90, 3 + len(codes)]) + b"\x00\x01\x00" + codes])
    route = Route(input="in", output=("yes", "no"))
    ours = replace(context(url, time.monotonic_ns), route=route)
    driver: Any = driver_class("mqtt", client)(ours)  # type: ignore[call-arg]
    with pytest.raises(TargetError, match=named):
        driver.open_consumers([0])
    driver.close()
