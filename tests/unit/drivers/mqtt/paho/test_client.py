"""The socket that paho uses: packets are gathered, read from a buffer, and counted."""

from __future__ import annotations

import select
import socket

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from mqtt_rig import connected, ready

from pytest_loadtest.drivers.mqtt.tls import ALERT


def received(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += peer.recv(count - len(data))
    return data


Packet = tuple[int, bytes]


PACKETS = st.lists(
    st.tuples(
        st.sampled_from([0x30, 0x31, 0x32, 0x3A, 0x34, 0x40, 0x62, 0xC0]), st.binary(max_size=300)
    ),
    max_size=30,
)


@given(packets=PACKETS, flushes=st.sets(st.integers(0, 29)))
def test_bytes_pass_unchanged_and_qos_0_is_counted(
    server: socket.socket, packets: list[Packet], flushes: set[int]
) -> None:
    """Whenever packets are written, each QoS 0 PUBLISH counts once."""
    sock, peer = connected(server)
    try:
        written = 0
        for i, (first, rest) in enumerate(packets):
            sock.send(bytes([first]) + rest)
            written += sock.flush() if i in flushes else 0
        written += sock.flush()
        sent = b"".join(bytes([first]) + rest for first, rest in packets)
        assert received(peer, len(sent)) == sent
        assert written == sum(first in (0x30, 0x31) for first, _ in packets)
        assert sock.unsent == 0
    finally:
        sock.close()
        peer.close()


@given(data=st.binary(min_size=1, max_size=2000), sizes=st.lists(st.integers(1, 700), min_size=1))
def test_reads_come_from_the_buffer(server: socket.socket, data: bytes, sizes: list[int]) -> None:
    """A reader gets the bytes of the peer in parts of any size, and then has to wait."""
    assume(not data.startswith(ALERT))  # which is no MQTT, and ends the connection
    sock, peer = connected(server)
    try:
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        got, turn = b"", 0
        while len(got) < len(data):
            ready(sock, select.EPOLLIN)
            sock.fill()
            while sock.unread and len(got) < len(data):
                got += sock.recv(sizes[turn % len(sizes)])
                turn += 1
        assert got == data
    finally:
        sock.close()
        peer.close()


def test_a_partly_written_publish_counts_with_its_last_byte(server: socket.socket) -> None:
    """A QoS 0 PUBLISH that is larger than the socket's buffers."""
    sock, peer = connected(server)
    packet = b"\x30" + bytes(8_000_000)
    sock.send(packet)
    sock.send(b"\xc0\x00")
    assert sock.flush() == 0 and sock.unsent > 0
    left, written = len(packet) + 2, 0
    while left:
        left -= len(peer.recv(1 << 20))
        written += sock.flush()
    assert (written, sock.unsent) == (1, 0)
    sock.close()
    peer.close()


def test_nothing_to_read_is_not_the_end(server: socket.socket) -> None:
    """Before bytes arrive paho has to wait; after the peer has closed it reads the end."""
    sock, peer = connected(server)
    sock.fill()
    assert not sock.unread
    with pytest.raises(BlockingIOError):
        sock.recv(1)
    peer.close()
    ready(sock, select.EPOLLIN)
    sock.fill()
    assert sock.unread and sock.recv(1) == b""
    sock.close()
    assert not sock.unread
