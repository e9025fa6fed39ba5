"""The tasks of Spark that hold slots: one kind counts them, the other runs a worker in its slot.

The rule: a task connects to the controller, identifies itself by a one-time token, and holds its
slot for as long as the connection lasts. :mod:`pytest_loadtest.pipeline.slots` starts the tasks;
they run in the processes of Spark's executors, which may lack this package, so the code here is
sent to them and uses only the standard library.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Sequence

    import pyarrow as pa

CONNECT_SECONDS = 5
"""Spark tries a task of a plain stage four times: less time than the controller waits."""
PROBE_SECONDS = 30
END_SECONDS = 5
"""Time for a worker to delete its samples and end after its connection has ended."""
CHUNK = 1 << 16

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until either end is closed.

    The writer's buffer is bounded: a slow end slows down the other one.
    """
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()


async def first_to_end(*parts: Awaitable[object]) -> None:
    """Run all until the first one ends; cancel the others."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class CountedSlot:
    """A task that holds its slot until the controller closes the connection.

    :param address: of the controller.
    :param certificate: PEM text that the controller must identify itself with; None: no TLS.
    :param tokens: of each task; a task without a token gives up its slot at once.
    """

    def __init__(
        self, address: tuple[str, int], certificate: str | None, tokens: Sequence[str]
    ) -> None:
        self._address = address
        self._certificate = certificate
        self._tokens = tuple(tokens)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """:param batches: the number of the task."""
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        if numbers and numbers[0] < len(self._tokens):
            asyncio.run(self._hold(self._tokens[numbers[0]]))
        return iter(())

    async def _hold(self, token: str) -> None:
        reader, writer = await self._connect(token, {})
        await first_to_end(reader.read(1), _orphaned())
        writer.close()

    async def _connect(self, token: str, hello: Any) -> Streams:
        context = None if self._certificate is None else _trusting(self._certificate)
        host, port = self._address
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                # The certificate itself is trusted, whatever names it has: nobody else has its key.
                reader, writer = await asyncio.open_connection(host, port, ssl=context, limit=CHUNK)
        except (OSError, TimeoutError) as error:
            cause = str(error) or f"no answer within {CONNECT_SECONDS} s"
            raise ConnectionError(
                f"{os.uname().nodename} cannot connect to the controller at {host}:{port}: {cause}:"
                " set spark.driver.host to an address of the controller that Spark's nodes can"
                " reach"
            ) from None
        writer.write(token.encode() + json.dumps(hello).encode() + b"\n")
        await writer.drain()
        return reader, writer


class WorkerSlot(CountedSlot):
    """A task that starts a worker in its slot and passes bytes between it and the controller.

    :param archive: zip file of this package, as the controller has it.
    :param probe: arguments of Python that print the host's facts.
    :param serve: arguments of Python that become a worker.
    """

    def __init__(
        self,
        address: tuple[str, int],
        certificate: str | None,
        tokens: Sequence[str],
        archive: bytes,
        probe: Sequence[str],
        serve: Sequence[str],
    ) -> None:
        super().__init__(address, certificate, tokens)
        self._archive = archive
        self._probe = tuple(probe)
        self._serve = tuple(serve)

    async def _hold(self, token: str) -> None:
        # The archive is a file in memory that only this process and its children have: nothing of
        # it is left, however they end.
        archive = os.memfd_create("pytest-loadtest.zip", 0)
        os.write(archive, self._archive)
        # The worker imports what this process can import, also what Spark has added (--py-files).
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([f"/proc/self/fd/{archive}", *filter(None, sys.path)]),
        }
        reader, writer = await self._connect(token, _facts(self._probe, environment, archive))
        # A session of its own: the signal with which Spark ends its Python
        # processes would keep the worker from cleaning up.
        worker = await asyncio.create_subprocess_exec(
            sys.executable,
            *self._serve,
            env=environment,
            pass_fds=[archive],
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        await first_to_end(pump(reader, worker.stdin), pump(worker.stdout, writer), _orphaned())
        writer.close()
        await _end(worker)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await writer.wait_closed()  # the worker's last bytes are under way


async def _end(worker: asyncio.subprocess.Process) -> None:
    assert worker.stdin is not None
    worker.stdin.close()
    try:
        async with asyncio.timeout(END_SECONDS):
            await worker.wait()
    except TimeoutError:
        worker.kill()
        await worker.wait()


async def _orphaned() -> None:
    """Wait until the process that started this one is gone: Spark's executor was killed."""
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(1)


def _trusting(certificate: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    # The certificate is enough, without the authority that issued it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=certificate)
    return context


def _facts(probe: Sequence[str], environment: dict[str, str], archive: int) -> Any:
    """Return the facts that a Python of this host reports.

    If it fails, they are the ``node`` and the ``problem``: the last line of its error.
    """
    try:
        done = subprocess.run(
            [sys.executable, *probe],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            pass_fds=[archive],
        )
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        problem = f"its Python did not start within {PROBE_SECONDS} s"
    except (IndexError, ValueError):
        lines = done.stderr.strip().splitlines()
        problem = lines[-1] if lines else f"its Python ended with status {done.returncode}"
    return {"node": os.uname().nodename, "problem": problem[-1000:]}
