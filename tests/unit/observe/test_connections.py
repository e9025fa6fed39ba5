"""Queues of real connections on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import numpy as np
import pytest
from waiting_for import wait_until

from pytest_loadtest.observe.connections import (
    ESTABLISHED,
    ConnectionSource,
    dump,
    listening_ports,
    packed,
    socket_inodes,
)
from pytest_loadtest.observe.processes import with_children


class Pairs:
    """A listener, and both ends of connections to it."""

    def __init__(self, family: socket.AddressFamily) -> None:
        self._stack = ExitStack()
        host = "127.0.0.1" if family == socket.AF_INET else "::1"
        self._listener = self._stack.enter_context(socket.create_server((host, 0), family=family))
        self.host, self.port = host, int(self._listener.getsockname()[1])
        self.ours: list[socket.socket] = []
        self.theirs: list[socket.socket] = []

    def connect(self, count: int) -> None:
        for _ in range(count):
            self.ours.append(
                self._stack.enter_context(socket.create_connection((self.host, self.port)))
            )
            self.theirs.append(self._stack.enter_context(self._listener.accept()[0]))

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
def pairs(request: pytest.FixtureRequest) -> Iterator[Pairs]:
    try:
        made = Pairs(request.param)
    except OSError:
        pytest.skip("no IPv6 here")
    made.connect(3)
    yield made
    made.close()


def stuff(sock: socket.socket) -> None:
    """Write until the socket takes no more."""
    sock.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            sock.send(bytes(65_536))


def test_both_ends_have_their_queues(pairs: Pairs) -> None:
    """Bytes that one side does not read wait there; the rest waits in the sender's socket."""
    source = ConnectionSource([(pairs.host, pairs.port)], [os.getpid()])
    quiet = source.read(time.monotonic_ns())
    for side in ("workers", "broker"):
        assert [
            quiet[f"{side}.{name}"] for name in ("connections", "unread", "unsent", "stale")
        ] == [3, 0, 0, 0]
    assert quiet["broker.relayed"] == 0
    stuff(pairs.ours[0])
    found: dict[str, float] = {}

    def stale() -> bool:
        nonlocal found
        found = source.read(time.monotonic_ns())
        return found["broker.stale"] == 1 and found.get("workers.shut", 0) > 0.9

    wait_until(stale, "a queue", 30)
    assert found["broker.unread"] > 0
    assert found["workers.unsent"] > 0
    assert (found["broker.unsent"], found["workers.unread"], found["workers.stale"]) == (0, 0, 0)
    assert source.missing == []


def test_rates_are_known_in_a_sample_in_which_a_connection_has_ended(pairs: Pairs) -> None:
    """Its counters are gone with it; those of the others have grown."""
    source = ConnectionSource([(pairs.host, pairs.port)], [])
    source.read(time.monotonic_ns())
    for ours in pairs.ours[:2]:
        stuff(ours)
    wait_until(
        lambda: source.read(time.monotonic_ns()).get("workers.shut", 0) > 0.9, "closed windows", 30
    )
    time.sleep(0.5)  # more than the other one adds until the next sample
    source.read(time.monotonic_ns())
    pairs.ours[0].close()
    time.sleep(0.1)
    found = source.read(time.monotonic_ns())
    assert found["workers.connections"] == 2
    assert found["workers.shut"] > 0.9
    assert found["workers.retransmits"] >= 0


def test_connections_to_other_targets_and_without_load_do_not_count(pairs: Pairs) -> None:
    without = {pairs.ours[0].getsockname()[1]}
    found = ConnectionSource([(pairs.host, pairs.port)], [os.getpid()], without).read(1)
    assert [found[f"{side}.connections"] for side in ("workers", "broker")] == [2, 2]
    apart = ConnectionSource([(pairs.host, pairs.port)], [os.getpid()], without, side=None).read(1)
    assert {name.partition(".")[0] for name in apart} == {"broker"}
    named = ConnectionSource([(pairs.host, pairs.port)], [], without, side="workers h1").read(1)
    assert named["workers h1.connections"] == 2
    elsewhere = ConnectionSource([("127.0.0.2", pairs.port), (pairs.host, 9)], [])
    found = elsewhere.read(1)
    assert found["workers.connections"] == 0
    assert "broker.connections" not in found


def test_connections_of_a_service_count_for_no_worker(pairs: Pairs) -> None:
    """Neither do the broker's ends of them."""
    stuff(pairs.theirs[0])
    own = [os.getpid()]
    found = ConnectionSource([(pairs.host, pairs.port)], own, services=lambda: own).read(1)
    assert [found[f"{side}.connections"] for side in ("service", "workers", "broker")] == [3, 0, 0]
    assert found["service.unread"] > 0
    assert (found["workers.unread"], found["broker.unsent"]) == (0, 0)


CHILD = """\
import socket, subprocess, sys
sys.stdin.readline()
text = "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2])));"
subprocess.run([sys.executable, "-c", text + "print('up', flush=True); sys.stdin.read()", *sys.argv[1:]])
"""


def test_connections_of_a_child_that_a_service_starts_later_are_the_services(pairs: Pairs) -> None:
    service = subprocess.Popen(
        [sys.executable, "-c", CHILD, pairs.host, str(pairs.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with service:
        assert service.stdin is not None and service.stdout is not None
        source = ConnectionSource(
            [(pairs.host, pairs.port)], [], services=lambda: with_children([service.pid])
        )
        before = source.read(1)
        service.stdin.write(b"\n")
        service.stdin.flush()
        assert service.stdout.readline() == b"up\n"
        after = source.read(2)
    for found, expected in ((before, 0), (after, 1)):
        assert found["service.connections"] == expected
        assert found["workers.connections"] == 3


def test_a_process_that_is_gone_has_no_sockets() -> None:
    assert socket_inodes([2**22 + 1]) == []


def test_a_relay_is_detected(pairs: Pairs) -> None:
    """The broker's sockets are those on the ports on which it listens, whatever port clients connect to."""
    source = ConnectionSource([(pairs.host, 9)], [os.getpid()])
    found = source.read(1)
    assert (found["workers.connections"], found["broker.relayed"]) == (0, 1)
    assert found["broker.connections"] >= 3


def test_a_broker_in_a_container_has_no_columns_of_its_own(pairs: Pairs) -> None:
    """Its sockets are in another network namespace, and the source reports that."""
    unknown = 2**22 + 1  # above the largest process id
    assert listening_ports([unknown]) is None
    source = ConnectionSource([(pairs.host, pairs.port)], [unknown])
    assert source.missing == [
        "broker's sockets: they belong to another user, or are in another network namespace (a container)"
    ]
    assert source.read(1).keys().isdisjoint({"broker.unread", "broker.relayed"})


def test_a_dump_has_all_connections(pairs: Pairs) -> None:
    """There are more than one answer of the kernel can hold."""
    pairs.connect(500)
    sockets = dump(ESTABLISHED)
    (address,) = packed(pairs.host)
    ours = sockets.where(
        (sockets.remote_port == pairs.port) & (sockets.remote == address).all(axis=1)
    )
    assert sorted(ours.local_port.tolist()) == sorted(sock.getsockname()[1] for sock in pairs.ours)
    assert np.count_nonzero(sockets.local_port == pairs.port) == 503
