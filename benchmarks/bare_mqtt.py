"""The lower limit on this machine: a loop that only sends, reads, answers and sleeps.

It has just enough MQTT 5 for mosquitto. Packets are made beforehand and are shorter than 128 bytes;
messages are counted by their first byte. It has no envelope, check, sample, window or retry: no
Python client can use less on this machine.
"""

from __future__ import annotations

import json
import resource
import select
import socket
import ssl
import sys
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from pytest_loadtest.wire.mqtt.codec import encode_packet
from pytest_loadtest.wire.mqtt.packets import (
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    Connect,
    Publish,
    Subscribe,
    TopicFilter,
)

if TYPE_CHECKING:
    from bench_mqtt import Case

TICK = 0.001  # s, as in the engine
PATIENCE = 10.0  # s without a message, after which it gives up
NEXT = {
    PUBLISH << 4 | 2: PUBACK << 4,
    PUBLISH << 4 | 4: PUBREC << 4,
    PUBREC << 4: PUBREL << 4 | 2,
    PUBREL << 4 | 2: PUBCOMP << 4,
}
"""What the first byte of a packet is answered with."""


def connected(url: str, ca_file: str | None, client_id: str, topic: str | None, qos: int) -> Any:
    """Return a socket after CONNECT, and after SUBSCRIBE if there is a topic."""
    parts = urlsplit(url)
    made: Any = socket.create_connection((parts.hostname, parts.port))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if ca_file is not None:
        made = ssl.create_default_context(cafile=ca_file).wrap_socket(
            made, server_hostname=parts.hostname
        )
    made.sendall(
        encode_packet(Connect(client_id, clean_start=True, properties={"receive_maximum": 1000}))
    )
    made.recv(1000)
    if topic is not None:
        made.sendall(encode_packet(Subscribe(1, (TopicFilter(topic, qos),))))
        made.recv(1000)
    made.setblocking(False)
    return made


class Reader:
    """Reads the messages of its sockets.

    :ivar messages: PUBLISH packets so far. :ivar ended: completely acknowledged messages.
    """

    def __init__(self) -> None:
        self.messages = self.ended = 0
        self._sockets: dict[int, Any] = {}
        self._rest: dict[int, bytes] = {}
        self._epoll = select.epoll()  # before any socket: select() takes only low numbers

    def add(self, sock: Any) -> Any:
        """Read this socket too."""
        self._sockets[sock.fileno()] = sock
        self._epoll.register(sock.fileno(), select.EPOLLIN)
        return sock

    def wait(self, seconds: float) -> None:
        """Read until this time, or until the first arrivals."""
        if seconds > 0 and not select.select((self._epoll,), (), (), seconds)[0]:
            return
        for fd, _ in self._epoll.poll(0):
            try:
                data = self._rest.pop(fd, b"") + self._sockets[fd].recv(65_536)
            except ssl.SSLWantReadError:
                continue
            if answer := self._look(fd, data):
                self._sockets[fd].send(answer)

    def _look(self, fd: int, data: bytes) -> bytes:
        at = 0
        answer = b""
        while len(data) - at >= 2 and (end := at + 2 + data[at + 1]) <= len(data):
            first = data[at]
            if first >> 4 == PUBLISH:
                self.messages += 1
                behind = at + 4 + (data[at + 2] << 8 | data[at + 3])
            else:
                self.ended += first >> 4 in (PUBACK, PUBCOMP)
                behind = at + 2
            if follow := NEXT.get(first & 0xF6):
                answer += bytes((follow, 2)) + data[behind : behind + 2]
            at = end
        if at < len(data):
            self._rest[fd] = data[at:]
        return answer


def _publish(
    case: Case, sockets: list[Any], reader: Reader, topic: str, start: float
) -> tuple[int, list[float]]:
    """Send the due messages every tick, and read arrivals.

    :returns: number of messages, and the lateness of each, s.
    """
    packets = [encode_packet(Publish(topic, bytes(64), case.qos, packet_id=1 if case.qos else 0))]
    if case.qos:
        at = packets[0].index(b"\0\1", 4 + len(topic))
        packets = [
            packets[0][:at] + number.to_bytes(2, "big") + packets[0][at + 2 :]
            for number in range(1, 60_001)
        ]
    total = int(case.rate * case.seconds)
    sent = 0
    late = list[float]()
    last = start + case.seconds + PATIENCE
    while (sent < total or (case.qos and reader.ended < total)) and (
        now := time.monotonic()
    ) < last:
        due = min(int((now - start) * case.rate) + 1, total) if now >= start else 0
        due = (
            min(due, sent + case.window * len(sockets) - (sent - reader.ended)) if case.qos else due
        )
        while sent < due:
            end = due if len(sockets) == 1 else sent + 1
            sockets[sent % len(sockets)].send(
                b"".join(packets[number % len(packets)] for number in range(sent, end))
            )
            late += [time.monotonic() - start - number / case.rate for number in range(sent, end)]
            sent = end
        tick = max(start + sent / case.rate if sent < total else 0.0, time.monotonic() + TICK)
        while (left := tick - time.monotonic()) > 0:
            reader.wait(left)
    return sent, late


def run_bare(role: str, case: Case, at: dict[str, str], name: str) -> None:
    """Run one process in the form of :func:`roles.run_role`."""
    began = time.monotonic()
    cpu = time.process_time()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    shared = "$share/bare/" if role == "in" and case.consumers > 1 else ""
    count = case.producers if role == "out" else case.subscriptions * case.consumers
    secured = case.tls and role == "in"
    url, ca_file = (at["subscriber_url"], at["ca_file"]) if secured else (at["url"], None)
    reader = Reader()
    topic = f"{shared}{name}" if role == "in" else None
    sockets = [
        reader.add(connected(url, ca_file, f"{name}-{role}-{i}", topic, case.qos))
        for i in range(count)
    ]
    told = {
        "connected": time.monotonic() - began,
        "cpu_connect": (time.process_time() - cpu) / count,
        "each": 0.0,
    }
    print(json.dumps(told), flush=True)
    start = int(sys.stdin.readline()) / 1e9
    expected = int(case.rate * case.seconds) * (case.subscriptions if role == "in" else 1)
    cpu = time.process_time()
    late = [0.0]
    if role == "out":
        messages, late = _publish(case, sockets, reader, name, start)
    else:
        last = start + case.seconds + PATIENCE
        while reader.messages < expected and time.monotonic() < last:
            reader.wait(1.0)
        messages = reader.messages
    cpu = time.process_time() - cpu
    print(
        json.dumps(
            {
                "cpu": cpu,
                "messages": messages,
                "expected": expected,
                "dropped": 0,
                "core": cpu / case.seconds,
                "stall": 0.0,
                "delay_p99": 1e9 * float(np.percentile(late, 99)),
            }
        ),
        flush=True,
    )
