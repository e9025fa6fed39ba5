"""Arrival times from the kernel: the stamps of a driver's sockets, in the driver's clock.

Linux stamps each packet with CLOCK_REALTIME when its network stack gets it
(``SO_TIMESTAMPNS``), long before this process wakes up and reads it.
:class:`SocketReader` reads a socket with these stamps, :class:`ArrivalClock` converts
them. Sources of all facts about the kernel are in ``docs/clocks.md``.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

# asm-generic/socket.h. Python has no names for these. Machines with other numbers, or without
# 64-bit times, fail the test of stamps_work().
SO_TIMESTAMPNS: Final = 35
_TIMESPEC: Final = struct.Struct("qq")
_ANCILLARY: Final = socket.CMSG_SPACE(_TIMESPEC.size) if hasattr(socket, "CMSG_SPACE") else 0
# linux/tcp.h: tcp_info.tcpi_rcv_ooopack, the number of packets received out of order (Linux 5.4).
_REORDERED: Final = struct.Struct("224xI")

RESOLUTION: Final = MILLISECOND
"""ns: a read covers packets of a longer time only if the kernel has merged them."""
# In place of the number of packets that were received out of order.
_UNKNOWN = -2
_NEVER = -1
_TIGHT: Final = 5_000  # ns; longer comparisons were interrupted
_TRIES: Final = 20
# A clock that follows another one by a line (decision 026) drifts by some ten parts per million;
# more than this is a step.
_SLEW: Final = 5_000  # 1/5000 = 200 ppm
_ROUNDING: Final = 1_000  # ns
_EPOCHS: Final = 4
_FD_SETSIZE: Final = 1024
_MOST_EVENTS: Final = 1023
_ANY: Final = 1 << 30  # more than a socket has
_LOOK_ONLY: Final = int(socket.MSG_PEEK | socket.MSG_TRUNC)  # with MSG_TRUNC nothing is copied


class _Epoch(NamedTuple):
    """A time in which the wall clock was not set.

    :param begin: earliest instant of the time.
    :param end: latest one.
    """

    begin: int
    end: int
    offset: int


class ArrivalClock:
    """The conversion of CLOCK_REALTIME to the driver's clock, for all sockets of a driver.

    The two clocks are compared at each read. Their offset changes if the wall clock is set. A stamp
    may then be of the time before or after that: it is converted by the offset with which it lies
    in the time of that offset. If both fit, or neither, it is unknown.

    :param clock: the driver's clock, ns.
    :param wall: CLOCK_REALTIME, ns.
    :param kernel: the kernel stamps packets; None: try it.
    :ivar looked: instant of the last look at all sockets before the current one: those that have
        not been read since were empty then.
    :ivar latest: a time shortly before now.
    :ivar unusable: number of reads whose stamp was missing or unusable, so that they have the time
        of the read; None: the client stamps.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        wall: Callable[[], int] = time.time_ns,
        kernel: bool | None = None,
    ) -> None:
        self.now = clock
        self.wall = wall
        self.kernel = stamps_work() if kernel is None else kernel
        self.looked = self.latest = self._looking = 0
        self.unusable: int | None = 0 if self.kernel else None
        self._earlier: list[_Epoch] = []
        self._begin = 0
        self._checked, self._offset = self._measure() if self.kernel else (0, 0)

    @property
    def source(self) -> str:
        """The clock that stamps arrivals: ``kernel`` or ``client``."""
        return "kernel" if self.kernel else "client"

    def note_unusable(self) -> None:
        """Count a read with the time of the client."""
        self.unusable = (self.unusable or 0) + 1

    def look(self, now: int) -> None:
        """Note that the driver is about to look which of its sockets have bytes."""
        self.looked = self._looking
        self._looking = now
        self.latest = now

    def wait(self, epoll: select.epoll, seconds: float) -> list[tuple[int, int]]:
        """Return the events of sockets; wait for them if there are none."""
        # A look without waiting comes first: only that shows since when all sockets were empty.
        self.look(self.now())
        events = epoll.poll(0, _MOST_EVENTS)
        # epoll has not reported all sockets, so the others need not have been empty.
        if len(events) == _MOST_EVENTS:
            self._looking = self.looked
        if events or seconds <= 0:
            return events
        # select() waits for microseconds, epoll in Python only for whole milliseconds. select()
        # cannot watch high descriptors.
        if epoll.fileno() >= _FD_SETSIZE:
            events = epoll.poll(seconds, _MOST_EVENTS)
            # This process may have woken up long after the first packet came.
            self.latest = self.now()
            return events
        if not select.select((epoll,), (), (), seconds)[0]:
            # The last look of select() came after this instant, and all sockets were empty.
            self._looking += int(seconds * SECOND)
            return []
        self.look(self.now())
        return epoll.poll(0, _MOST_EVENTS)

    def check(self) -> int:
        """Compare the two clocks; return the time."""
        now = self.now()
        # Hot path: two looks at clocks. The second one is a little later, or more if this process
        # was interrupted in between.
        if -_ROUNDING <= self.wall() - now - self._offset <= _TIGHT:
            self._checked = self.latest = now
            return now
        return self._correct()

    def _measure(self) -> tuple[int, int]:
        """Return the instant and the offset of the tightest of some measurements."""
        best = 0, 0, 1 << 62
        for _ in range(_TRIES):
            before = self.now()
            wall = self.wall()
            after = self.now()
            best = min(best, (before, wall, after), key=lambda reading: reading[2] - reading[0])
            if best[2] - best[0] <= _ROUNDING:
                break
        before, wall, after = best
        return before, wall - (before + after) // 2

    def _correct(self) -> int:
        """Measure the offset again, and note if the wall clock was set; return the time."""
        before, offset = self._measure()
        now = self.latest = self.now()
        if abs(offset - self._offset) > 2 * _TIGHT + (now - self._checked) // _SLEW:
            self._earlier = [*self._earlier[1 - _EPOCHS :], _Epoch(self._begin, now, self._offset)]
            self._begin = self._checked
        self._checked = before
        self._offset = offset
        return now

    def convert(self, stamp: int, now: int) -> int | None:
        """Convert a stamp; None if it is not known.

        :param now: the time of a :meth:`check` after the stamp.
        """
        arrived = stamp - self._offset
        # Hot path: the wall clock was never set.
        if not self._earlier and arrived <= now:
            return arrived
        epochs = [*self._earlier, _Epoch(self._begin, now, self._offset)]
        fitting = [
            stamp - epoch.offset
            for epoch in epochs
            if epoch.begin - _TIGHT <= stamp - epoch.offset <= epoch.end + _TIGHT
        ]
        return min(fitting[0], now) if len(fitting) == 1 else None


class SocketReader:
    """Reads a socket, and takes the time at which the bytes of each read arrived.

    A read has one stamp, that of its last packet. So packets that arrived over a longer time than
    :data:`RESOLUTION`, because this process did not look at the socket, are read in pieces.

    :param units: bytes of the smallest message; above 0 the socket mostly has
        one message at a time: the smallest read so far that can be a message is
        tried before packets are looked at one by one.
    :ivar arrived: when the bytes of the last read arrived.
    :ivar lag: time from then until they were read; -1: unknown.
    :ivar taken: when they were read.
    :ivar filled: more bytes may follow.
    :ivar more: more bytes follow.
    :ivar held: there are bytes of which epoll does not know.
    """

    # A worker may have many thousands of sockets.
    __slots__ = (
        "_clock",
        "_first",
        "_piece",
        "_reordered",
        "_socket",
        "_unit",
        "_units",
        "arrived",
        "filled",
        "held",
        "lag",
        "more",
        "taken",
    )

    def __init__(self, opened: socket.socket, clock: ArrivalClock, *, units: int = 0) -> None:
        self._socket = opened
        self._clock = clock
        self.arrived = self.taken = 0
        self.lag = -1
        self.filled = False
        self.more = False
        self.held = False
        self._piece = 0
        self._reordered = _UNKNOWN
        # The first two reads of a connection are answers to its first requests, which may be
        # smaller than its messages.
        self._units = units
        self._unit = _ANY if units else 0
        self._first = 2
        if clock.kernel:
            opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

    def read(self, space: memoryview) -> int:
        """Read into ``space``; return the number of bytes.

        :raises OSError: as ``socket.recv_into``.
        """
        clock = self._clock
        if not clock.kernel:
            count = self._socket.recv_into(space)
            self.arrived = self.taken = clock.now()
            self.filled = count == len(space)
            return count
        self.more = False
        # Since when packets may have come: the socket was empty when all
        # were last looked at, or after its last read.
        since = 0 if self.filled else self.taken
        if clock.looked > self.taken:
            since = clock.looked
            self.filled = False
        # Hot path: there is no need to look at the clock, as the last read of any socket did.
        if clock.latest - since > RESOLUTION:
            space = space[
                : self._unit if self._unit and not self.filled else self._choose_size(space)
            ]
        count, ancillary, _, _ = self._socket.recvmsg_into((space,), _ANCILLARY)
        self.filled = count == len(space)
        if count < self._unit:
            self._shrink_unit(count)
        now = self.taken = clock.check()
        stamp = clock.convert(_seconds(ancillary), now) if ancillary else None
        if stamp is None or (now - stamp > RESOLUTION and not self._is_plausible(stamp, since)):
            clock.note_unusable()
            self.arrived = now
            self.lag = -1
        else:
            # Bytes are read in order, so none arrived before those of the last read.
            self.arrived = stamp if stamp > self.arrived else self.arrived
            self.lag = now - self.arrived
        return count

    def _is_plausible(self, stamp: int, since: int) -> bool:
        """Return False for packets that were stamped before they could be read.

        They waited for a lost one.
        """
        if stamp < since - RESOLUTION:
            return False
        try:
            if self._reordered == _UNKNOWN:
                # Nothing is lost or overtaken on the way to a broker on this machine.
                address = str(self._socket.getpeername()[0])
                self._reordered = _NEVER if address.startswith(("127.", "::1")) else 0
            return self._reordered == _NEVER or not self._was_reordered()
        except OSError:
            # The peer has reset the connection. The bytes that came before are still valid.
            return False

    def _was_reordered(self) -> bool:
        """Return whether packets came out of order since the last call."""
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _REORDERED.size)
        # Older kernels have a shorter structure, without this count.
        if len(info) < _REORDERED.size:
            return True
        before = self._reordered
        self._reordered = _REORDERED.unpack(info)[0]
        return self._reordered != before

    # --- pieces

    def _shrink_unit(self, count: int) -> None:
        if self._first:
            self._first -= 1
        elif count >= self._units:
            self._unit = count

    def _choose_size(self, space: memoryview) -> int:
        """Return the number of bytes to read.

        Their packets arrived within :data:`RESOLUTION`.
        """
        first = self._peek(space[:1])[1]
        # Mostly the first packet came just now, so all did.
        if first is not None and 0 <= self._clock.wall() - first <= RESOLUTION:
            return len(space)

        def ends(size: int) -> bool | None:
            """Return whether these bytes arrived within the resolution.

            None if there are not so many.
            """
            count, last = self._peek(space[:size])
            within = first is None or last is None or last - first <= RESOLUTION
            return None if within and count < size else within

        # The packets of a connection often have one size, so the
        # size of the last piece is tried first.
        low = 1
        size = min(self._piece or len(space), len(space))
        high = len(space) + 1
        while high - low > 1:
            within = ends(size)
            if within is None:
                return size
            low, high = (size, high) if within else (low, size)
            grown = low + 1 if low == self._piece else 2 * low
            size = min(grown, high - 1) if high > len(space) else (low + high) // 2
        self._piece = low
        self.more = low < len(space)
        return low

    def _peek(self, space: memoryview) -> tuple[int, int | None]:
        """Return the number of bytes that a read would return, and their stamp."""
        count, ancillary, _, _ = self._socket.recvmsg_into((space,), _ANCILLARY, _LOOK_ONLY)
        return count, _seconds(ancillary) if ancillary else None


def _seconds(ancillary: list[tuple[int, int, Any]]) -> int:
    seconds, ns = _TIMESPEC.unpack(ancillary[0][2])
    return int(seconds) * SECOND + int(ns)


_PORTIONS: Final = 50


@cache
def stamps_work() -> bool:
    """Return whether this kernel stamps the packets of a TCP connection, by one over loopback."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname()) as sender,
        ):
            receiver, _ = server.accept()
            with receiver:
                return _is_stamped(sender, receiver)
    except (OSError, AttributeError, struct.error):
        return False


def _is_stamped(sender: socket.socket, receiver: socket.socket) -> bool:
    receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    receiver.settimeout(1)
    # Linux begins to stamp some time after the first socket of the machine wants it, so the first
    # packets may have no stamp.
    for _ in range(_PORTIONS):
        before = time.time_ns()
        sender.send(b"stamp")
        _, ancillary, _, _ = receiver.recvmsg_into((bytearray(64),), _ANCILLARY)
        if ancillary:
            level, kind, data = ancillary[0]
            right = (level, kind, len(data)) == (socket.SOL_SOCKET, SO_TIMESTAMPNS, _TIMESPEC.size)
            return right and before - SECOND < _seconds(ancillary) < time.time_ns() + SECOND
        time.sleep(0.001)
    return False
