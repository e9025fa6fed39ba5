"""The queues of the TCP connections between workers and target.

They are read at both ends if the broker is on this machine.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.int64]


STALE: Final = 500
"""ms since the last byte arrived, at which unread bytes count as old.

They have waited for at least as long.
"""


class ConnectionSource:
    """Samples the connections to a target.

    :param addresses: hosts and ports that clients connect to.
    :param pids: the broker's processes on this machine. Their sockets are those on the ports on
        which it listens, which may differ from the ports in ``addresses``.
    :param without: local ports of connections that carry no load.
    :param side: first part of the names of the workers' columns; None if no worker is in this
        network namespace.
    :param services: returns the processes under test on this machine, with their children, that
        are clients of the target too. It is called when there are new connections.
    """

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        pids: Sequence[int],
        without: Collection[int] = (),
        *,
        side: str | None = "workers",
        services: Callable[[], Sequence[int]] = tuple,
    ) -> None:
        self._without = without
        self._own = side
        self._find_services = services
        self._services = services()
        self._known = np.zeros(0, np.int64)
        self.used = 0.0
        self.missing: list[str] = []
        self._dialled = [(address, port) for host, port in addresses for address in packed(host)]
        self._listening = listening_ports(pids) if pids else None
        if pids and self._listening is None:
            self.missing.append(
                "broker's sockets: they belong to another user,"
                " or are in another network namespace (a container)"
            )
        self._before: dict[str, tuple[Column, Column]] = {}
        self._at = 0

    def read(self, now: int) -> dict[str, float]:
        """Return the bytes in the queues now, and rates since the last sample."""
        sockets = dump(ESTABLISHED | CLOSE_WAIT)
        sample = dict[str, float]()
        without = list(self._without)
        excluded = np.isin(sockets.local_port, without) | np.isin(sockets.remote_port, without)
        sockets = sockets.where(~excluded)
        dialled = self._dials_target(sockets)
        inodes = sockets.inode[dialled]
        # A new connection may be one of a child that a service has started since.
        if not np.isin(inodes, self._known).all():
            self._services = self._find_services()
        self._known = inodes
        of_services = dialled & np.isin(sockets.inode, socket_inodes(self._services))
        sides = {}
        if self._services:
            sides["service"] = of_services
        if self._own is not None:
            sides[self._own] = dialled & ~of_services
        if self._listening is not None:
            # What waits for a service to read says nothing about the workers.
            to_services = np.isin(sockets.remote_port, sockets.local_port[of_services])
            sides["broker"] = np.isin(sockets.local_port, self._listening) & ~to_services
            dials_broker = any(port in self._listening for _, port in self._dialled)
            sample["broker.relayed"] = float(not dials_broker)
        for side, mask in sides.items():
            of_side = self._side(side, sockets.where(mask), (now - self._at) / SECOND)
            sample |= {f"{side}.{name}": value for name, value in of_side.items()}
        self._at = now
        return sample

    def _dials_target(self, sockets: Sockets) -> NDArray[np.bool_]:
        dialled = np.zeros(len(sockets.remote_port), np.bool_)
        for address, port in self._dialled:
            dialled |= (sockets.remote_port == port) & (sockets.remote == address).all(axis=1)
        return dialled

    def _side(self, side: str, mine: Sockets, seconds: float) -> dict[str, float]:
        sample = {
            "connections": float(len(mine.inode)),
            "unread": float(mine.unread.sum()),
            "unsent": float(mine.unsent.sum()),
            "stale": float(np.count_nonzero((mine.unread > 0) & (mine.silent >= STALE))),
        }
        counters = np.stack([mine.retransmits, mine.busy, mine.shut])
        if side in self._before:
            inodes, before = self._before[side]
            # A connection that has ended took its counters with it; a new one counts from zero.
            before = before[:, np.isin(inodes, mine.inode)].sum(axis=1)
            retransmits, busy, shut = np.maximum(counters.sum(axis=1) - before, 0).tolist()
            sample["retransmits"] = retransmits / seconds
            if busy:
                sample["shut"] = min(shut / busy, 1.0)
        self._before[side] = (mine.inode, counters)
        return sample

    def close(self) -> dict[str, float]:
        """Return nothing: this source has no last values and no resources."""
        return {}


def listening_ports(pids: Sequence[int]) -> NDArray[np.int64] | None:
    """Return the TCP ports on which processes in this network namespace listen.

    None if they have none or they are unreadable.
    """
    sockets = dump(LISTEN)
    mine = np.isin(sockets.inode, socket_inodes(pids))
    return np.unique(sockets.local_port[mine]) if mine.any() else None


def socket_inodes(pids: Sequence[int]) -> list[int]:
    """Return the inodes of all sockets of processes; none of one that is gone or another user's."""
    inodes = []
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(FileNotFoundError):  # closed since scandir listed it
                    link = os.readlink(entry.path)  # noqa: PTH115  # there may be 20 000 of them
                    if link.startswith("socket:["):
                        inodes.append(int(link[8:-1]))
    return inodes


# The kernel's list of TCP sockets as columns, from sock_diag(7), which ``ss`` reads too.
#
# One dump gives all sockets of this network namespace as binary records, which numpy splits: at 20
# 000 connections this costs a fraction of reading ``/proc/net/tcp``.

ESTABLISHED = 1 << 1
CLOSE_WAIT = 1 << 8
LISTEN = 1 << 10
_NETLINK_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST_DUMP: Final = 0x301
_DONE = 3
_ERROR = 2
_INFO: Final = 2  # INET_DIAG_INFO, the attribute with struct tcp_info
# bytes of struct nlmsghdr (16) and inet_diag_msg (72), before a record's attributes
_HEAD: Final = 88
_BUFFER: Final = 1 << 18
_SECONDS: Final = 5.0
_MAPPED: Final = (0, 0, struct.unpack("<I", b"\0\0\xff\xff")[0])  # ::ffff:0:0/96
_RECORD: Final = np.dtype(
    {
        "names": ["length", "family", "local_port", "remote_port", "remote", "unread", "inode"],
        "formats": ["<u4", "u1", ">u2", ">u2", ("<u4", 4), "<u4", "<u4"],
        "offsets": [0, 16, 20, 22, 40, 72, 84],
    }
)
_TCP_INFO: Final = np.dtype(
    {
        "names": ["silent", "retransmits", "unsent", "busy", "shut"],
        "formats": ["<u4", "<u4", "<u4", "<u8", "<u8"],
        "offsets": [52, 100, 144, 168, 176],
    }
)


class Sockets(NamedTuple):
    """Columns with one entry per socket.

    :param remote: ``(n, 4)``, words of the other side's address, IPv4 mapped to IPv6; see
        :func:`packed`.
    :param unread: bytes that arrived and wait to be read.
    :param unsent: bytes that were written and could not be sent yet.
    :param silent: ms since the last byte arrived.
    :param retransmits: segments since the connection began.
    :param busy: µs since then with something to send.
    :param shut: µs of them in which the other side's window was closed.
    """

    local_port: Column
    remote_port: Column
    remote: Column
    inode: Column
    unread: Column
    unsent: Column
    silent: Column
    retransmits: Column
    busy: Column
    shut: Column

    def where(self, mask: NDArray[np.bool_]) -> Sockets:
        return Sockets(*(column[mask] for column in self))


def dump(states: int) -> Sockets:
    """Return the TCP sockets in these states, IPv4 and IPv6.

    :raises OSError: the kernel rejects the request or is too old.
    """
    parts = [part for family in (socket.AF_INET, socket.AF_INET6) for part in _ask(family, states)]
    none = np.empty(0, np.int64)
    parts.append(Sockets(none, none, np.empty((0, 4), np.int64), *(none,) * 7))
    return Sockets(*map(np.concatenate, zip(*parts, strict=True)))


def packed(host: str) -> list[Column]:
    """Return the addresses of a host as words, as in ``Sockets.remote``.

    Empty if its name cannot be resolved.
    """
    with contextlib.suppress(OSError):
        addresses = {
            (family, address[0])
            for family, *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        }
        return [_words(*address) for address in addresses]
    return []


def _words(family: int, text: Any) -> Column:
    words = np.frombuffer(socket.inet_pton(family, text.partition("%")[0]), "<u4").astype(np.int64)
    return np.array([*_MAPPED, words[0]]) if family == socket.AF_INET else words


def _ask(family: int, states: int) -> Iterator[Sockets]:
    request = struct.pack("<BBBxI", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), states).ljust(
        56, b"\0"
    )
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG
    ) as line:
        line.settimeout(_SECONDS)
        line.send(
            struct.pack("<IHHII", 16 + len(request), _BY_FAMILY, _REQUEST_DUMP, 0, 0) + request
        )
        while True:
            answer = line.recv(_BUFFER)
            at = 0
            while at < len(answer):
                length, kind = struct.unpack_from("<IH", answer, at)
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    raise OSError(
                        -struct.unpack_from("<i", answer, at + 16)[0],
                        "the kernel rejected the sock_diag request",
                    )
                rows = _rows_of_length(answer, at, length)
                at += rows.size
                yield _columns(rows)


def _rows_of_length(answer: bytes, at: int, length: int) -> NDArray[np.uint8]:
    """Return the records from ``at`` up to the first of another length, ``(n, padded length)``.

    Usually these are all of them.
    """
    padded = (length + 3) & ~3
    count = (len(answer) - at) // padded * padded
    rows = np.frombuffer(answer, np.uint8, offset=at, count=count).reshape(-1, padded)
    other = np.flatnonzero(_view(rows, _RECORD)["length"] != length)
    return rows[: other[0]] if len(other) else rows


def _columns(rows: NDArray[np.uint8]) -> Sockets:
    records = _view(rows, _RECORD)
    remote = records["remote"].copy()
    ipv4 = records["family"] == socket.AF_INET
    remote[ipv4, 3] = remote[ipv4, 0]
    remote[ipv4, :3] = _MAPPED
    info = _view(rows[:, _info_at(rows[0].tobytes()) :], _TCP_INFO)
    columns = {"remote": remote.astype(np.int64)}
    for name in ("local_port", "remote_port", "inode", "unread"):
        columns[name] = records[name].astype(np.int64)
    for name in _TCP_INFO.names or ():
        columns[name] = info[name].astype(np.int64)
    return Sockets(**columns)


def _view(rows: NDArray[np.uint8], fields: np.dtype[Any]) -> Any:
    """Return the fields of every row, as a structured column."""
    wide = np.ascontiguousarray(rows[:, : fields.itemsize])
    return wide.view(fields)[:, 0]


def _info_at(record: bytes) -> int:
    """Return the offset of struct tcp_info in a record.

    :raises OSError: it has none.
    """
    at = _HEAD
    while at + 4 <= len(record):
        length, kind = struct.unpack_from("<HH", record, at)
        if kind == _INFO and length - 4 >= _TCP_INFO.itemsize:
            return at + 4
        at += max((length + 3) & ~3, 4)
    raise OSError("sock_diag gives no tcp_info: the kernel is older than Linux 4.10")
