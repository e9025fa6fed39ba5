"""The controller's listener for tasks of Spark that hold slots, and the local sockets at which
pytest-xdist joins their connections.

Everything happens in one thread with an event loop. A connection that does not begin with an unused
token is closed without an answer. Each token admits one connection, so a task that Spark started a
second time is not admitted.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import queue
import re
import secrets
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.errors import UsageError
from pytest_loadtest.fleet.scratch import ScratchFolder
from pytest_loadtest.pipeline.slot_task import CHUNK, first_to_end, pump
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HELLO_SECONDS: Final = 10
"""s for a connection to identify itself."""
TOKEN_BYTES: Final = 32
_CERTIFICATE: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL
)


def read_certificate(path: Path) -> tuple[ssl.SSLContext, str]:
    """Return the TLS settings of the listener, and the certificate alone, as PEM text, for the
    tasks that verify it.

    :param path: PEM file with a certificate and its key. :raises UsageError: it is none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(
            path, password=""
        )  # with a password that is wrong, OpenSSL does not ask the terminal for one
        certificate = _CERTIFICATE.search(path.read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"load_fleet_tls {path}: {error}: name a PEM file with a certificate and its key, "
            "without password"
        ) from None
    assert certificate is not None  # load_cert_chain has read one
    return context, certificate[0]


@record
class JoinedSlot:
    """A task that has identified itself.

    :param hello: what it reported.
    :param socket: path of the local socket to its connection.
    """

    hello: Any
    socket: Path


class SlotService:
    """Listens until it is closed.

    :param host: address to listen at.
    :param context: of TLS; None: without.
    :raises UsageError: it cannot listen there.
    :ivar port: the port that it listens at.
    """

    def __init__(self, host: str, context: ssl.SSLContext | None = None) -> None:
        self._host = host
        self._context = context
        self._changed = threading.Condition()
        self._tokens: list[str | None] = []
        self._joined: dict[int, JoinedSlot] = {}
        self._folder = ScratchFolder("loadtest-fleet-")
        self._loop: asyncio.AbstractEventLoop
        self._released: asyncio.Event
        self._closed: asyncio.Event
        ready: queue.SimpleQueue[int | OSError] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._listen(ready)), name="loadtest-slots", daemon=True
        )
        self._thread.start()
        port = ready.get()
        if isinstance(port, OSError):
            self.close()
            raise UsageError(
                f"--load-fleet: cannot listen at {host}: {port.strerror}: set "
                "spark.driver.bindAddress to an address of this host"
            )
        self.port = port

    def issue(self, count: int) -> Sequence[str]:
        """Return new tokens for tasks; those issued before and not used are void."""
        tokens = [secrets.token_hex(TOKEN_BYTES // 2) for _ in range(count)]
        with self._changed:
            self._tokens = list(tokens)
            self._joined = {}
        return tokens

    def wait(self, count: int, seconds: float, ended: Callable[[], bool]) -> Sequence[JoinedSlot]:
        """Return the tasks that have joined: so many, or fewer if that takes too long or if the job
        has ended.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while len(self._joined) < count and time.monotonic() < deadline and not ended():
                self._changed.wait(0.1)  # the end of the job notifies nobody
            return [self._joined[number] for number in sorted(self._joined)]

    def release(self) -> None:
        """Close the connections of all tasks that have joined."""
        self._call(self._release_all)

    def close(self) -> None:
        """Close everything. Safe to call twice."""
        self._call(self._closed.set)
        self._thread.join()
        self._folder.remove()

    def _release_all(self) -> None:
        released = self._released
        self._released = asyncio.Event()  # for those that join later
        released.set()

    def _call(self, function: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(function)

    async def _listen(self, ready: queue.SimpleQueue[int | OSError]) -> None:
        self._loop = asyncio.get_running_loop()
        self._released = asyncio.Event()
        self._closed = asyncio.Event()
        self._loop.set_exception_handler(
            lambda loop, context: None
        )  # strangers' broken connections concern nobody
        handshake = (
            {}
            if self._context is None
            else {"ssl": self._context, "ssl_handshake_timeout": HELLO_SECONDS}
        )
        try:
            server = await asyncio.start_server(
                self._serve,
                self._host,
                0,
                limit=CHUNK,
                backlog=1024,
                **handshake,  # type: ignore[arg-type]
            )
        except OSError as error:
            ready.put(error)
            return
        ready.put(server.sockets[0].getsockname()[1])
        await self._closed.wait()  # the end of the loop cancels what serves connections
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                number = self._claim(
                    (await reader.readexactly(TOKEN_BYTES)).decode(errors="replace")
                )
                hello = None if number is None else json.loads(await reader.readline())
            if number is not None and isinstance(hello, dict):
                await self._hold(number, hello, reader, writer)
        except (OSError, EOFError, ValueError, TimeoutError):
            pass
        finally:
            writer.close()

    def _claim(self, token: str) -> int | None:
        """Return the number of an unused token, which is used now; None for any other text.

        It always takes the same time.
        """
        with self._changed:
            equal = [
                hmac.compare_digest((issued or "-").encode(), token.encode())
                for issued in self._tokens
            ]
            if True not in equal:
                return None
            number = equal.index(True)
            self._tokens[number] = None
            return number

    async def _hold(
        self, number: int, hello: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        joining: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = (
            self._loop.create_future()
        )
        path = self._folder.path / secrets.token_hex(4)

        async def join(local: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
            if joining.done():
                back.close()
            else:
                joining.set_result((local, back))

        server = await asyncio.start_unix_server(join, path, limit=CHUNK)
        path.chmod(0o600)
        with self._changed:
            self._joined[number] = JoinedSlot(hello=hello, socket=path)
            self._changed.notify_all()
        released = self._released
        try:
            await first_to_end(released.wait(), _pass_on(joining, reader, writer))
        finally:
            server.close()


async def _pass_on(
    joining: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Pass bytes between a task and the process that joins its connection, until one ends."""
    local, back = await joining
    try:
        await first_to_end(pump(reader, back), pump(local, writer))
    finally:
        back.close()
