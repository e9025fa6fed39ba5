"""The relay's own count of messages that it holds and of copies that it has sent."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pytest_loadtest.drivers.base import DrainingRun, Undelivered
from pytest_loadtest.drivers.source_addresses import connect_from
from pytest_loadtest.errors import TargetError
from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import Decoder, Kind

if TYPE_CHECKING:
    import socket


_TIMEOUT: Final = 5.0  # s


def relay_undelivered(run: DrainingRun) -> Undelivered:
    """Ask the relay, which has one run at a time.

    It handles frames in turn, so both numbers are of one instant.

    :raises TargetError: it does not answer in time.
    :raises OSError: it cannot be reached.
    """
    url = urlsplit(run.target.url)
    with connect_from(url.hostname or "", url.port or 0, _TIMEOUT, None) as connection:
        connection.sendall(b"".join(frames.encode_frame(Kind.COUNT, {}, n=1)))
        return _read_counts(connection, run.target.url)


def _read_counts(connection: socket.socket, url: str) -> Undelivered:
    decoder = Decoder()
    end = time.monotonic() + _TIMEOUT
    while time.monotonic() < end:
        count = connection.recv_into(decoder.space())
        if not count:
            break
        for frame in decoder.filled(count):
            return Undelivered(int(frame.columns["held"][0]), int(frame.columns["delivered"][0]))
    raise TargetError(f"the loopback relay at {url} did not send its counts")
