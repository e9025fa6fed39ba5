"""A driver opened against a running target, with messages to send and a place for the answers."""

from __future__ import annotations

import secrets
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pytest_loadtest.drivers.base import Acks, Burst, DriverContext, Received, TargetAddress
from pytest_loadtest.message import envelope, payloads
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import Driver
    from pytest_loadtest.message.envelope import Heads
    from pytest_loadtest.message.payloads import PayloadPool

    Positions = NDArray[np.int64]


FIRST_ROW: Final = 2**33
"""Row of a rig's first message: a driver that takes a row for a sequence or a position, or cuts it to 32 bits, is found out."""

_COLUMNS: Final = ("row", "stream", "seq", "intended", "payload", "sent", "idle", "key", "due")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A driver to be checked and a running target to check it against.

    :param driver: its class, or anything that makes it from a :class:`DriverContext`.
    :param settings: the profile's ``driver`` section, under which a sole consumer gets everything.
    :param shared: settings under which two consumers of one subscription share its messages; None: ``settings`` do that.
    :param window: messages that ``settings`` let one stream have in flight; None: no bound to check.
    :param ordered: one stream arrives in order at a sole consumer.
    :param existing: the name of a topic that exists at the target without any run; None: not to be checked.
    :param deadline: ns that one check waits for answers.
    """

    driver: Callable[[DriverContext], Driver]
    target: TargetAddress
    settings: Any
    shared: Any = None
    window: int | None = None
    partitions: int = 1
    ordered: bool = True
    existing: str | None = None
    deadline: int = 30 * SECOND


class StreamAcks(NamedTuple):
    """What was answered to one stream, in the order in which it came: sequence, ns, Status."""

    seq: NDArray[np.int64]
    time: NDArray[np.int64]
    status: NDArray[np.int8]


@dataclass
class Rig:
    """An open driver, and all that it was offered and that it answered so far.

    :param streams: that it sends. :param places: of its consumers in the order in which they were asked for, those included that left.
    :param bursts: all that were built. Their rows are numbered on, so message ``n`` of them all has the row ``FIRST_ROW + n``.
    """

    driver: Driver
    topology: Topology
    pool: PayloadPool
    nonce: int
    deadline: int
    streams: range
    places: list[int] = field(default_factory=list)
    bursts: list[Burst] = field(default_factory=list)
    acks: list[Acks] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)

    def burst(self, count: int, first: int = 0, streams: Sequence[int] | None = None) -> Burst:
        """``count`` messages from sequence ``first`` on for each of the streams, all of them unless told; streams and payloads take turns.

        ``intended`` is a million and the sequence.
        """
        chosen = np.array(self.streams if streams is None else streams, np.int32)
        seq = np.repeat(np.arange(first, first + count, dtype=np.int64), len(chosen))
        row = FIRST_ROW + sum(map(len, self.bursts)) + np.arange(len(seq), dtype=np.int64)
        payload = (seq % len(self.pool.sizes)).astype(np.uint16)
        sent, idle = np.zeros((2, len(seq)), np.int64)
        self.bursts.append(
            Burst(row=row, stream=np.tile(chosen, count), seq=seq, intended=seq + 1_000_000, payload=payload, sent=sent, idle=idle)
        )
        return self.bursts[-1]

    def offer(self, burst: Burst, positions: Positions | None = None) -> Positions:
        """Send the messages at these positions of a burst, or all, in that order; return the positions of those that were refused.

        The burst gets what the driver filled. The columns that the driver itself was given are overwritten as soon as it returns: if it
        looks at them again, it sends or answers nonsense.

        :raises AssertionError: the answer is none that ``send`` may give.
        """
        asked = np.arange(len(burst)) if positions is None else positions
        offered = rows(burst, asked)
        refused = self.driver.send(offered)
        _expect_refusal(offered, refused)
        burst.sent[asked], burst.idle[asked] = offered.sent, offered.idle
        for column in (getattr(offered, name) for name in _COLUMNS):
            if column is not None:
                column[:] = np.iinfo(column.dtype).max
        return asked[:0] if refused is None else asked[refused]

    def finish(self, burst: Burst) -> None:
        """Offer what is not taken of a burst again and again, until all is taken."""

        def taken() -> bool:
            left = np.flatnonzero(burst.sent == 0)
            return not len(left) or not len(self.offer(burst, left))

        self.until(taken, f"all {len(burst)} messages taken by the client")

    def send(self, count: int, first: int = 0) -> Burst:
        """``count`` messages from ``first`` on, on every stream, in as many pieces as the windows ask for."""
        burst = self.burst(count, first)
        self.finish(burst)
        return burst

    def collect(self) -> None:
        """Take what was answered and received."""
        if (acks := self.driver.acks()) is not None:
            self.acks.append(acks)
        if (received := self.driver.take()) is not None:
            self.received.append(received)

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Poll and collect until ``done``.

        :raises AssertionError: not within the deadline; says what came instead.
        """
        end = time.monotonic_ns() + self.deadline
        while not done():
            assert time.monotonic_ns() < end, f"not {what} in time: {self.acked} acks, {self.copies} copies, {self.driver.disconnected()}"
            self.driver.poll(MILLISECOND)
            self.collect()

    def attach(self, consumer: int) -> int:
        """One more consumer; polls until it is there, and returns its place."""
        before = len(self.places)
        self.driver.attach([consumer])
        self.until(lambda: self.join() > before, f"attached consumer {consumer}")
        return self.places[-1]

    def join(self) -> int:
        """Take those that were attached meanwhile; return how many consumers there are now, those included that left."""
        if (joined := self.driver.attached()) is not None:
            self._settle(joined.place)
        return len(self.places)

    def _settle(self, places: NDArray[np.int32]) -> None:
        wanted = list(range(len(self.places), len(self.places) + len(places)))
        assert sorted(places.tolist()) == wanted, f"places {places.tolist()} for consumers that come, after {self.places}: wanted {wanted}"
        self.places += places.tolist()

    @property
    def acked(self) -> int:
        """Messages that were answered."""
        return sum(len(acks.row) for acks in self.acks)

    @property
    def copies(self) -> int:
        """Messages that all consumers got."""
        return sum(len(received.time) for received in self.received)

    def answers(self, stream: int) -> StreamAcks:
        """What was answered to one stream.

        :raises AssertionError: an answer has the row of a message that was not sent.
        """
        row = _joined(self.acks, "row")
        known = (row >= FIRST_ROW) & (row < FIRST_ROW + sum(map(len, self.bursts)))
        assert known.all(), f"answers to rows that were never offered: {row[~known][:5].tolist()}"
        message = row - FIRST_ROW
        pending = _joined(self.bursts, "sent")[message] == 0
        assert not pending.any(), f"answers to rows that were never taken: {row[pending][:5].tolist()}"
        mine = _joined(self.bursts, "stream")[message] == stream
        return StreamAcks(_joined(self.bursts, "seq")[message[mine]], _joined(self.acks, "time")[mine], _joined(self.acks, "status")[mine])

    def column(self, place: int, name: str) -> NDArray[Any]:
        """One column of :class:`~pytest_loadtest.drivers.base.Received`, of what the consumer at one place got, in arrival order."""
        if not self.received:
            return np.empty((0, envelope.HEAD) if name == "heads" else 0, np.uint8 if name == "heads" else np.int64)
        mine: NDArray[Any] = _joined(self.received, name)[_joined(self.received, "consumer") == place]
        return mine

    def heads(self, place: int) -> Heads:
        """What the consumer at one place got, decoded."""
        return envelope.decode_heads(self.column(place, "heads"), self.column(place, "size").astype(np.int32), self.nonce)


def _joined(parts: Sequence[Burst] | Sequence[Acks] | Sequence[Received], name: str) -> NDArray[Any]:
    """One column of all parts."""
    return np.concatenate([getattr(part, name) for part in parts]) if parts else np.empty(0, np.int64)


def rows(burst: Burst, positions: Positions) -> Burst:
    """The messages at these positions of a burst, in columns of their own."""
    columns: dict[str, Any] = {name: None if (column := getattr(burst, name)) is None else column[positions] for name in _COLUMNS}
    return Burst(**columns)


def _expect_refusal(offered: Burst, refused: NDArray[np.int64] | None) -> None:
    """What ``send`` may answer: None, or the ascending positions of what is refused, of each stream all from some message on."""
    full = np.zeros(len(offered), bool)
    if refused is not None:
        assert refused.dtype == np.int64, f"refused positions are {refused.dtype}, wanted int64"
        assert len(refused), "an empty column of refused positions: wanted None when all are taken"
        assert np.all(np.diff(refused) > 0), f"refused positions are not ascending: {refused.tolist()}"
        assert refused[0] >= 0 and refused[-1] < len(offered), f"refused positions {refused.tolist()} of {len(offered)} messages"
        full[refused] = True
    for stream in np.unique(offered.stream[full]).tolist():
        mine = full[offered.stream == stream]
        assert np.all(mine[1:] >= mine[:-1]), f"stream {stream}: a message was taken after one that was refused"
    assert np.all(offered.sent[~full] > 0), "send() must stamp what it takes"
    assert not np.any(offered.sent[full]) and not np.any(offered.idle[full]), "send() stamped what it refused"


def plain_pool() -> PayloadPool:
    return payloads.build_pool(
        buckets=None, message_size=128, randomized=True, random_ratio=0.5, file_content=None, seed=1, checksum=False, max_size=None
    )


def mixed_pool() -> PayloadPool:
    edges = ((20, 32), (36, 40), (40, 300), (1024, 4096), (16 * 1024, 64 * 1024))
    buckets = [payloads.Bucket(name=f"{low}-{high}", low=low, high=high, weight=1) for low, high in edges]
    return payloads.build_pool(
        buckets=buckets, message_size=None, randomized=True, random_ratio=0.5, file_content=None, seed=1, checksum=True, max_size=None
    )


def context_of(subject: Subject, pool: PayloadPool, run: str | None = None, name: str | None = None) -> DriverContext:
    """One topic with one stream and one consumer."""
    return DriverContext(
        target=subject.target,
        settings=subject.settings,
        clock=time.monotonic_ns,
        run=run or f"kit-{secrets.token_hex(4)}",
        nonce=secrets.randbits(32),
        worker="gw0",
        topology=Topology(topics=1, partitions=subject.partitions, producers=1, subscriptions=1, consumers=1, name=name),
        pool=pool,
        checksum=pool.checksum,
    )


@contextmanager
def rig(
    subject: Subject,
    pool: PayloadPool | None = None,
    *,
    streams: int | range = 1,
    subscriptions: int = 1,
    consumers: int = 1,
    run: str | None = None,
    name: str | None = None,
    topics: int = 1,
    joining: int = 0,
) -> Iterator[Rig]:
    """One driver for the whole run, closed and cleaned up at the end.

    :param streams: of all topics together, or those that this driver sends where others send the rest of them.
    :param subscriptions: of each topic. :param consumers: of each subscription, open from the beginning.
    :param name: of the topic, where it exists without the run.
    :param joining: consumers of each subscription that may be attached later: its last ones.
    """
    context = context_of(subject, pool or plain_pool(), run, name)
    mine = range(streams) if isinstance(streams, int) else streams
    everyone, of_each = consumers + joining, -(-mine.stop // topics)
    topology = replace(context.topology, topics=topics, producers=of_each, subscriptions=subscriptions, consumers=everyone)
    driver = subject.driver(replace(context, topology=topology))
    try:
        driver.prepare()
        made = Rig(driver, topology, context.pool, context.nonce, subject.deadline, mine)
        made._settle(driver.open_consumers([index for index in range(topology.all_consumers) if index % everyone < consumers]))
        driver.open_producers(mine)
        yield made
    finally:
        driver.close()
        driver.cleanup()


# A clock that stands still.


class FakeClock:
    """A clock for the engine and its drivers that moves only when told to; ns."""

    def __init__(self, now: int = 0) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, ns: int) -> None:
        """Let time pass."""
        if ns < 0:
            raise ValueError(f"time does not run backwards: ns={ns}")
        self.now += ns

    sleep = advance
