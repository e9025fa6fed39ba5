"""The loopback relay: a process that acknowledges and delivers messages, with configurable faults.

``python -m pytest_loadtest.drivers.loopback.relay --port 0 --settings '{"delay":
"20ms"}'`` prints ``{"port": N}`` when it listens on 127.0.0.1. It ends on SIGTERM, or when its
standard input is a pipe that is closed.

Messages are handled in :mod:`~pytest_loadtest.drivers.loopback.exchange`. Data that a client does
not read waits in memory.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import select
import signal
import socket
import stat
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_loadtest.brokers.base import BrokerFacts, BrokerRequest
from pytest_loadtest.brokers.process import Child
from pytest_loadtest.brokers.starting import Progress, StartedBroker, on_free_ports, wait_ready
from pytest_loadtest.drivers.loopback.exchange import Exchange
from pytest_loadtest.drivers.loopback.faults import Faults, parse_faults
from pytest_loadtest.errors import UsageError
from pytest_loadtest.message.due import wall_offset
from pytest_loadtest.wire.buffers import Outbox
from pytest_loadtest.wire.frames import Decoder, FrameError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType


@dataclass(eq=False, slots=True)
class Connection:
    """One client's socket. ``number`` is never used again, unlike the descriptor."""

    number: int
    socket: socket.socket
    descriptor: int
    inbox: Decoder = field(default_factory=Decoder)
    outbox: Outbox = field(default_factory=Outbox)


class Relay:
    """The relay's connections and its exchange of messages."""

    # One thread with select(): the time-outs of epoll are whole milliseconds in Python. This limits
    # a relay to about 1 000 connections.

    def __init__(self, listener: socket.socket, faults: Faults) -> None:
        self._listener = listener
        self._reading = [listener.fileno()]  # descriptors
        self._numbers = itertools.count()
        # By number, for the exchange; and by descriptor, for select(). A
        # descriptor may be reused, a number is not.
        self._connections: dict[int, Connection] = {}
        self._clients: dict[int, Connection] = {}
        self._exchange = Exchange(faults, self._post, wall_offset(time.time_ns, time.monotonic_ns))
        self._touched: set[Connection] = set()  # connections with new data to write
        self._full: set[Connection] = set()  # connections whose sockets did not take everything

    def watch(self, descriptor: int) -> None:
        """End :meth:`run` when this descriptor reaches its end."""
        self._reading.append(descriptor)

    def run(self) -> None:
        """Serve until a watched descriptor ends."""
        while True:
            full = [connection.descriptor for connection in self._full]
            readable, writable, _ = select.select(self._reading, full, (), self._timeout())
            self._touched.update(map(self._clients.__getitem__, writable))
            for descriptor in readable:
                if connection := self._clients.get(descriptor):
                    self._read(connection)
                elif descriptor == self._listener.fileno():
                    self._accept()
                elif not os.read(descriptor, 4096):
                    return
            # Frames of one round are gathered for each connection,
            # and written with one system call.
            self._exchange.release(time.monotonic_ns())
            self._flush()

    def close(self) -> None:
        """Disconnect all clients; the listener stays open."""
        for connection in list(self._connections.values()):
            self._drop(connection)

    def _timeout(self) -> float | None:
        due = self._exchange.next_due()
        return None if due is None else max(0.0, (due - time.monotonic_ns()) / 1e9)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(next(self._numbers), client, client.fileno())
        self._connections[connection.number] = self._clients[connection.descriptor] = connection
        self._reading.append(connection.descriptor)

    def _read(self, connection: Connection) -> None:
        # One read in each round, so that a busy client does not delay the others.
        try:
            count = connection.socket.recv_into(connection.inbox.space())
            now = time.monotonic_ns()
            for frame in connection.inbox.filled(count):
                self._exchange.handle_frame(connection.number, frame, now)
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection)
            return
        except FrameError as error:
            print(f"relay: closed a connection: {error}", file=sys.stderr, flush=True)
            self._drop(connection)
            return
        if not count:
            self._drop(connection)

    def _post(self, number: int, buffers: Sequence[bytes | memoryview]) -> None:
        if connection := self._connections.get(number):
            connection.outbox.add(buffers)
            self._touched.add(connection)

    def _flush(self) -> None:
        """Write to each connection with new data as much as its socket takes."""
        for connection in self._touched:
            try:
                while connection.outbox:
                    connection.outbox.sent(connection.socket.sendmsg(connection.outbox.next()))
                self._full.discard(connection)
            except BlockingIOError:
                self._full.add(connection)
            except OSError:
                self._drop(connection)
        self._touched.clear()

    def _drop(self, connection: Connection) -> None:
        if self._connections.pop(connection.number, None) is None:
            return
        del self._clients[connection.descriptor]
        self._reading.remove(connection.descriptor)
        self._full.discard(connection)
        connection.socket.close()
        self._exchange.disconnect(connection.number)


def run_relay(argv: Sequence[str]) -> int:
    """Run the relay until it is ended; return the exit status, 2 for invalid settings."""
    parser = argparse.ArgumentParser(
        prog="python -m pytest_loadtest.drivers.loopback.relay",
        description="A loopback relay with configurable faults.",
    )
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0: a free one")
    parser.add_argument(
        "--settings",
        default="{}",
        help='JSON object of strings: {"delay": "20ms", "loseEvery": "1000"}',
    )
    options = parser.parse_args(argv)
    try:
        faults = parse_faults(json.loads(options.settings))
    except ValueError as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, _end)
    with (
        socket.create_server(("127.0.0.1", options.port), backlog=128) as listener,
        closing(Relay(listener, faults)) as relay,
    ):
        # The pipe is closed when the parent ends, however it ends. A terminal
        # or /dev/null says nothing about a parent.
        if stat.S_ISFIFO(os.fstat(0).st_mode):
            relay.watch(0)
        print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
        relay.run()
    return 0


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


# The relay as a broker of a run: started as a process.

START_SECONDS = 30.0
ROOT = Path(__file__).parents[3]  # the folder from which the package can be imported


def start_relay(request: BrokerRequest, progress: Progress) -> StartedBroker:
    """Start the relay with the faults of ``request.settings``.

    It cannot be restarted: it keeps no messages, and a client
    that loses its connection ends the run.

    :raises UsageError: an unknown fault, or an invalid value.
    :raises TargetError: the relay did not start; the error contains its output.
    """
    try:
        parse_faults(request.settings)
    except ValueError as error:
        raise UsageError(f"broker.settings: {error}") from error
    return on_free_ports(1, lambda ports: _launch(ports[0], request, progress))


def _launch(port: int, request: BrokerRequest, progress: Progress) -> StartedBroker:
    folder = request.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    module = "pytest_loadtest.drivers.loopback.relay"
    settings = json.dumps(dict(request.settings))
    relay = [sys.executable, "-m", module, "--port", str(port), "--settings", settings]
    child = Child(relay, folder=folder, env={"PYTHONPATH": path})
    wait_ready(
        child,
        lambda: '{"port"' in child.tail(),
        "the loopback relay",
        START_SECONDS,
        progress,
    )
    facts = BrokerFacts(
        name="loopback",
        version=version("pytest-loadtest"),
        mode="process",
        url=f"loopback://127.0.0.1:{port}",
        settings=dict(request.settings),
    )
    return StartedBroker(facts, child, None)


if __name__ == "__main__":
    sys.exit(run_relay(sys.argv[1:]))
