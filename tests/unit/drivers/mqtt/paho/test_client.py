"""The socket that paho is given: packets gathered, read from a buffer, and counted."""

from __future__ import annotations

import select
import socket

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from mqtt_rig import connected, ready

from pytest_loadtest.drivers.mqtt.tls import ALERT

Script = list[bytes | None]


def received(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += peer.recv(count - len(data))
    return data


Packet = tuple[int, bytes]


PACKETS = st.lists(st.tuples(st.sampled_from([0x30, 0x31, 0x32, 0x3A, 0x34, 0x40, 0x62, 0xC0]), st.binary(max_size=300)), max_size=30)


@given(packets=PACKETS, flushes=st.sets(st.integers(0, 29)))
def test_bytes_pass_whole_and_qos_0_is_counted(server: socket.socket, packets: list[Packet], flushes: set[int]) -> None:
    """Whatever is gathered and whenever it is written, the peer gets the same bytes, and each QoS 0 PUBLISH counts once."""
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
    """However a reader cuts it, it reads what the peer sent, and then is told to wait."""
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


def test_a_write_that_the_kernel_cuts_counts_when_it_is_whole(server: socket.socket) -> None:
    """A QoS 0 PUBLISH larger than the socket's buffers is written only once its last byte is."""
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
    """Before bytes come, paho is told to wait; after the peer has closed, it is told so."""
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
