"""A slow relay between a client and a server: ``python tcp_relay.py PORT --rate BYTES --delay SECONDS``.

``--rate``: bytes a second from all clients together; ``--delay``: delay in each direction. Prints its own port; ends with its standard
input.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TICK = 0.05
CHUNK = 65_536


class Relay:
    """A relay. :param port: of the server. :param rate: bytes a second from clients, or None."""

    def __init__(self, port: int, rate: float | None, delay: float) -> None:
        self._port, self._rate, self._delay = port, rate, delay

    async def serve(self) -> None:
        """Serve until standard input ends."""
        narrow = socket.socket()
        narrow.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384
        )  # what waits, waits at the client
        narrow.bind(("127.0.0.1", 0))
        server = await asyncio.start_server(self._client, sock=narrow, limit=1024)
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        server.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._pass(reader, back, self._rate), self._pass(there, writer, None))

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, rate: float | None
    ) -> None:
        loop = asyncio.get_running_loop()
        while data := await source.read(CHUNK if rate is None else max(int(rate * TICK), 1)):
            loop.call_later(self._delay, sink.write, data)
            if rate is not None:
                await asyncio.sleep(len(data) / rate)
        loop.call_later(self._delay, sink.close)


@contextmanager
def relay(port: int, *, rate: float | None = None, delay: float = 0.0) -> Iterator[int]:
    """Run a relay to a port of this machine in its own process. Yields the port on which it listens."""
    options = ["--delay", str(delay), *([] if rate is None else ["--rate", str(rate)])]
    process = subprocess.Popen(
        [sys.executable, __file__, str(port), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.communicate(timeout=30)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--delay", type=float, default=0.0)
    given = parser.parse_args()
    asyncio.run(Relay(given.port, given.rate, given.delay).serve())
