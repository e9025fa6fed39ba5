"""The bandwidth from a host to a target: the bytes that the target acknowledges.

``doctor --hosts FILE --target URL --bandwidth`` starts a process on each host, whose main thread
calls this module. The host sends as fast as the target accepts messages, through this package's
driver, to a topic of its own without subscriptions. Only payloads of acknowledged messages count,
up to the last acknowledgement: they have crossed the network, and the target has taken them. So the
result is a lower bound on what network, target and one process of this host carry together. A first
round, which does not count, opens the windows of TCP and warms up the target.
"""

from __future__ import annotations

import base64
import pickle
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.drivers import driver_class
from pytest_loadtest.drivers.base import Burst, Driver, DriverContext, TargetAddress
from pytest_loadtest.errors import LoadtestError, NoData, TargetError
from pytest_loadtest.message.payloads import build_pool
from pytest_loadtest.message.samples import Status
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from numpy.typing import NDArray


SIZE: Final = 64 << 10
"""Bytes of a message: large enough that the network costs more than the message, and accepted by
every broker with its default limits.
"""
STREAMS: Final = 4
WARMUP = 1 * SECOND
WARMUP_BYTES = 1 << 30
DURATION = 3 * SECOND
MOST_BYTES = 4 << 30
"""The end of a round: whichever comes first."""
DRAIN: Final = 10 * SECOND
"""ns to wait for the acknowledgements of what was sent."""
_BURST: Final = 32  # messages offered at a time


@record
class BandwidthRequest:
    """The arguments of a measurement.

    :param settings: the ``driver`` section.
    :param client: name of the client.
    :param sources: source addresses of the connections; empty: the system chooses.
    """

    target: TargetAddress
    settings: Any
    client: str
    sources: tuple[str, ...] = ()

    def encode(self) -> str:
        """Write the request as one line.

        It may hold secrets: it travels by standard input, never in a command line.
        """
        return base64.b64encode(pickle.dumps(self)).decode()

    @classmethod
    def decode(cls, line: str) -> BandwidthRequest:
        """Read what :meth:`encode` wrote: only from the controller, which can run any code here."""
        request: BandwidthRequest = pickle.loads(base64.b64decode(line))
        return request


@record
class Bandwidth:
    """A measured bandwidth.

    :param cpu: cores that this host's process used.
    """

    bits_per_second: float
    cpu: float


def measure_bandwidth(request: BandwidthRequest) -> Bandwidth:
    """Measure the bandwidth from this host; takes about ten seconds, and removes its topic.

    :raises UsageError: the settings do not fit.
    :raises TargetError: the target rejects the client, or is lost.
    :raises NoData: nothing is acknowledged.
    """
    pool = build_pool(
        message_size=SIZE,
        randomized=True,
        random_ratio=1.0,
        seed=0,
    )
    context = DriverContext(
        target=request.target,
        settings=request.settings,
        clock=time.monotonic_ns,
        run=f"bandwidth-{secrets.token_hex(4)}",
        nonce=secrets.randbits(32),
        worker="doctor",
        pool=pool,
        sources=request.sources,
        topology=Topology(topics=1, partitions=1, producers=STREAMS, subscriptions=0, consumers=1),
    )
    driver: Driver = driver_class(request.settings.name, request.client)(context)  # type: ignore[call-arg]
    try:
        driver.prepare()
        driver.open_producers(range(STREAMS))
        flood = _Flood(driver)
        first = flood.round(WARMUP, WARMUP_BYTES)
        if not flood.drained:
            # Late acknowledgements of this round would count in the next one.
            return first
        return flood.round(DURATION, MOST_BYTES)
    finally:
        driver.close()
        driver.cleanup()


class _Flood:
    """Sends as fast as a driver takes messages.

    :ivar drained: all messages that the driver took were answered.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._rows = np.empty(0, np.int64)  # of the messages that are offered next
        self._offered = self._taken = self._answered = 0

    @property
    def drained(self) -> bool:
        return self._answered == self._taken

    def round(self, duration: int, most: int) -> Bandwidth:
        """Send for ``duration`` ns, or ``most`` bytes, and wait for the answers.

        :raises TargetError: a connection was lost.
        :raises NoData: nothing was acknowledged.
        """
        begun = self._taken
        start = time.monotonic_ns()
        cpu = time.process_time_ns()
        last = start
        acked = 0
        while (now := time.monotonic_ns()) < start + duration + DRAIN:
            sends = now < start + duration and (self._taken - begun) * SIZE < most
            if sends:
                self._send()
            elif self.drained:
                break
            self._driver.poll(MILLISECOND if len(self._rows) or not sends else 0)
            if (acks := self._driver.acks()) is not None:
                good = acks.time[acks.status == Status.ACKED]
                self._answered += len(acks.row)
                acked += len(good)
                last = max(last, int(good.max(initial=0)))
        if (gone := self._driver.disconnected()) is not None:
            raise TargetError(f"the connection was lost while it was measured: {gone}")
        if not acked:
            failed = f"; it rejected {self._answered}" if self._answered else ""
            raise NoData(
                f"the target acknowledged none of {self._taken} messages of {SIZE >> 10} KiB "
                f"within {DRAIN // SECOND} s{failed}"
            )
        used = time.process_time_ns() - cpu
        return Bandwidth(
            bits_per_second=acked * SIZE * 8 * SECOND / (last - start),
            cpu=used / (time.monotonic_ns() - start),
        )

    def _send(self) -> None:
        if not len(self._rows):
            self._rows = np.arange(self._offered, self._offered + _BURST)
            self._offered += _BURST
        offered = self._rows
        rejected = self._driver.send(_burst(offered))
        self._rows = offered[:0] if rejected is None else offered[rejected]
        self._taken += len(offered) - len(self._rows)


def _burst(rows: NDArray[np.int64]) -> Burst:
    """Return messages of all streams in turn, which are due now."""
    sent, idle = np.zeros((2, len(rows)), np.int64)
    return Burst(
        row=rows.copy(),
        stream=(rows % STREAMS).astype(np.int32),
        seq=rows // STREAMS,
        intended=np.full(len(rows), time.monotonic_ns()),
        payload=np.zeros(len(rows), np.uint16),
        sent=sent,
        idle=idle,
    )


def bandwidth_answer(line: str) -> dict[str, float | str]:
    """Carry out an encoded request.

    :returns: the fields of :class:`Bandwidth`, or ``problem``: why it cannot be measured.
    """
    try:
        measured = measure_bandwidth(BandwidthRequest.decode(line))
    except LoadtestError as error:
        return {"problem": str(error)}
    return {"bits_per_second": measured.bits_per_second, "cpu": measured.cpu}
