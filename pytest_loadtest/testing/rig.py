"""A driver opened against a running target, with messages to send.

It keeps the columns that the driver returned, and checks what those must contain.
"""

from __future__ import annotations

import secrets
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pytest_loadtest.drivers.base import Acks, Burst, Driver, DriverContext, Received, TargetAddress
from pytest_loadtest.message import envelope, payloads
from pytest_loadtest.message.route import IN_BODY, Carrier, EnvelopePlace, Route
from pytest_loadtest.message.samples import Status
from pytest_loadtest.metrics.strays import BEGINNING
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.message.envelope import Heads
    from pytest_loadtest.message.payloads import PayloadPool

    Positions = NDArray[np.int64]


FIRST_ROW: Final = 2**33
"""Row of a rig's first message.

It reveals a driver that takes a row for a sequence or a position, or cuts it to 32 bits.
"""
FIRST_INTENDED: Final = 1_000_000
"""Intended time of the message with sequence 0, ns.

That of a later one is this plus its sequence.
"""

_COLUMNS: Final = ("row", "stream", "seq", "intended", "payload", "sent", "idle", "key", "due")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A driver to check, and a running target to check it against.

    :param driver: class of the driver, or anything that makes it from a :class:`DriverContext`.
    :param target: address of the target.
    :param settings: the profile's ``driver`` section; a single consumer of a subscription must
        receive everything with it.
    :param shared: settings with which two consumers of one subscription share its messages; None:
        ``settings`` do that.
    :param window: number of messages that ``settings`` allow one stream to have in flight; None: no
        window, or one that is not checked.
    :param partitions: partitions of each topic.
    :param ordered: messages of one stream arrive in order at a single consumer.
    :param existing: name of a topic that exists at the target independently of any run; None:
        existing topics are not checked.
    :param envelopes: the parts of a message in which the driver writes and reads envelopes, as in
        :attr:`~pytest_loadtest.kinds.kind.Client.envelopes`. Empty: it does not test services.
    :param deadline: ns that a check waits for an answer before it fails.
    """

    driver: Callable[[DriverContext], Driver]
    target: TargetAddress
    settings: Any
    shared: Any = None
    window: int | None = None
    partitions: int = 1
    ordered: bool = True
    existing: str | None = None
    envelopes: Sequence[str] = ()
    deadline: int = 30 * SECOND


class StreamAcks(NamedTuple):
    """Answers to the messages of one stream, in order of arrival: sequence, ns, Status."""

    seq: NDArray[np.int64]
    time: NDArray[np.int64]
    status: NDArray[np.int8]


@dataclass
class Rig:
    """An open driver, with everything offered to it and returned by it so far.

    :param streams: the streams that it sends.
    :param places: places of its consumers in the order in which they were opened, including
        consumers that left.
    :param bursts: every burst built. Their rows are consecutive: message ``n`` of all of them has
        the row ``FIRST_ROW + n``.
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
        """Build ``count`` messages for each stream, from sequence ``first`` on.

        Streams and payloads take turns.

        :param streams: None: all streams of the rig.
        """
        chosen = np.array(self.streams if streams is None else streams, np.int32)
        seq = np.repeat(np.arange(first, first + count, dtype=np.int64), len(chosen))
        row = FIRST_ROW + sum(map(len, self.bursts)) + np.arange(len(seq), dtype=np.int64)
        payload = (seq % len(self.pool.sizes)).astype(np.uint16)
        sent, idle = np.zeros((2, len(seq)), np.int64)
        self.bursts.append(
            Burst(
                row=row,
                stream=np.tile(chosen, count),
                seq=seq,
                intended=seq + FIRST_INTENDED,
                payload=payload,
                sent=sent,
                idle=idle,
            )
        )
        return self.bursts[-1]

    def offer(self, burst: Burst, positions: Positions | None = None) -> Positions:
        """Pass messages of a burst to the driver; return the positions of those it rejects.

        The burst gets ``sent`` and ``idle``.

        :param positions: the messages, in this order; None: all.
        :raises AssertionError: ``send`` broke a promise about what it returns or fills in.
        """
        chosen = np.arange(len(burst)) if positions is None else positions
        offered = select_messages(burst, chosen)
        rejected = self.driver.send(offered)
        _check_rejection(offered, rejected)
        burst.sent[chosen] = offered.sent
        burst.idle[chosen] = offered.idle
        # A driver that still refers to these columns now sends or answers nonsense, and fails the
        # check.
        for column in (getattr(offered, name) for name in _COLUMNS):
            if column is not None:
                column[:] = np.iinfo(column.dtype).max
        return chosen[:0] if rejected is None else chosen[rejected]

    def finish(self, burst: Burst) -> None:
        """Offer the remaining messages of a burst again until all are taken."""

        def taken() -> bool:
            left = np.flatnonzero(burst.sent == 0)
            return not len(left) or not len(self.offer(burst, left))

        self.until(taken, f"all {len(burst)} messages taken by the client")

    def send(self, count: int, first: int = 0) -> Burst:
        """Send ``count`` messages from sequence ``first`` on, on every stream.

        They are sent in as many parts as the windows require.
        """
        burst = self.burst(count, first)
        self.finish(burst)
        return burst

    def collect(self) -> None:
        """Take answers and received messages from the driver."""
        if (acks := self.driver.acks()) is not None:
            self.acks.append(acks)
        if (received := self.driver.take()) is not None:
            self.received.append(received)
            _check_bodies(received, begun=self.pool.place.carrier is Carrier.BODY)

    def has_acked(self, count: int) -> bool:
        """Return true if at least so many messages were acked."""
        return self.acked >= count

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Poll and collect until ``done``.

        :param what: a participle for the message, e.g. ``acked and received``.

        :raises AssertionError: not done before the deadline.
        """
        end = time.monotonic_ns() + self.deadline
        while not done():
            answers = f"{self.acked} answers ({self.failed} failed)"
            assert time.monotonic_ns() < end, (
                f"not {what} in time: {answers}, {self.copies} copies, {self.driver.disconnected()}"
            )
            self.driver.poll(MILLISECOND)
            self.collect()

    def attach(self, consumer: int) -> int:
        """Attach a consumer, wait until it is established, and return its place."""
        before = len(self.places)
        self.driver.attach([consumer])
        self.until(lambda: self.join() > before, f"attached consumer {consumer}")
        return self.places[-1]

    def join(self) -> int:
        """Take newly attached consumers from the driver.

        Return the number of all consumers so far, including those that left.
        """
        if (joined := self.driver.attached()) is not None:
            self._add_places(joined.place)
        return len(self.places)

    def _add_places(self, places: NDArray[np.int32]) -> None:
        expected = list(range(len(self.places), len(self.places) + len(places)))
        assert sorted(places.tolist()) == expected, (
            f"places {places.tolist()} for new consumers after {self.places}: expected {expected}"
        )
        self.places += places.tolist()

    @property
    def acked(self) -> int:
        """Number of answers so far."""
        return sum(len(acks.row) for acks in self.acks)

    @property
    def failed(self) -> int:
        """Number of answers so far that are no acknowledgement."""
        return sum(int(np.count_nonzero(acks.status != Status.ACKED)) for acks in self.acks)

    @property
    def copies(self) -> int:
        """Number of messages that all consumers received so far."""
        return sum(len(received.time) for received in self.received)

    def answers(self, stream: int) -> StreamAcks:
        """Return the answers to one stream.

        :raises AssertionError: an answer has the row of a message that was not sent.
        """
        row = _concatenated(self.acks, "row")
        offered = (row >= FIRST_ROW) & (row < FIRST_ROW + sum(map(len, self.bursts)))
        assert offered.all(), (
            f"answers to rows that were never offered: {row[~offered][:5].tolist()}"
        )
        message = row - FIRST_ROW
        pending = _concatenated(self.bursts, "sent")[message] == 0
        assert not pending.any(), (
            f"answers to rows that were never taken: {row[pending][:5].tolist()}"
        )
        own = _concatenated(self.bursts, "stream")[message] == stream
        seq = _concatenated(self.bursts, "seq")[message[own]]
        return StreamAcks(
            seq, _concatenated(self.acks, "time")[own], _concatenated(self.acks, "status")[own]
        )

    def column(self, place: int, name: str) -> NDArray[Any]:
        """Return one column of received messages for the consumer at one place.

        It is of :class:`~pytest_loadtest.drivers.base.Received`, in order of arrival.
        """
        if not self.received:
            if name == "heads":
                return np.empty((0, envelope.HEAD), np.uint8)
            return np.empty(0, np.int64)
        own: NDArray[Any] = _concatenated(self.received, name)[
            _concatenated(self.received, "consumer") == place
        ]
        return own

    def heads(self, place: int) -> Heads:
        """Return the decoded envelopes that the consumer at one place received."""
        sizes = None
        if not self.pool.place.outside:
            sizes = self.column(place, "size").astype(np.int32)
        return envelope.decode_heads(self.column(place, "heads"), sizes, self.nonce)


def _concatenated(
    parts: Sequence[Burst] | Sequence[Acks] | Sequence[Received], name: str
) -> NDArray[Any]:
    if not parts:
        return np.empty(0, np.int64)
    return np.concatenate([getattr(part, name) for part in parts])


def select_messages(burst: Burst, chosen: Positions | NDArray[np.bool_]) -> Burst:
    """Copy the messages at these positions, or where this mask is true, into a new burst."""
    columns: dict[str, Any] = {}
    for name in _COLUMNS:
        column = getattr(burst, name)
        columns[name] = None if column is None else column[chosen]
    return Burst(**columns)


def _check_rejection(offered: Burst, rejected: NDArray[np.int64] | None) -> None:
    """Check what ``send`` returned and filled in.

    See :meth:`~pytest_loadtest.drivers.base.Driver.send`.
    """
    full = np.zeros(len(offered), bool)
    if rejected is not None:
        assert rejected.dtype == np.int64, (
            f"rejected positions are {rejected.dtype}, expected int64"
        )
        assert len(rejected), (
            "an empty column of rejected positions: expected None when all are taken"
        )
        assert np.all(np.diff(rejected) > 0), (
            f"rejected positions are not ascending: {rejected.tolist()}"
        )
        assert rejected[0] >= 0 and rejected[-1] < len(offered), (
            f"rejected positions {rejected.tolist()} of {len(offered)} messages"
        )
        full[rejected] = True
    for stream in np.unique(offered.stream[full]).tolist():
        own = full[offered.stream == stream]
        assert np.all(own[1:] >= own[:-1]), (
            f"stream {stream}: a message was taken after a rejected one"
        )
    assert np.all(offered.sent[~full] > 0), "send() must stamp the messages that it takes"
    assert not np.any(offered.sent[full]) and not np.any(offered.idle[full]), (
        "send() stamped messages that it rejected"
    )


def expect_acked(r: Rig, burst: Burst, start: int) -> None:
    """Check that every message of the burst was acked once, and nothing else.

    Each was acked not before ``start`` (ns).
    """
    _check_columns(r.acks, {"row": np.int64, "time": np.int64, "status": np.int8})
    resends = [acks.resends for acks in r.acks if acks.resends is not None]
    assert all(column.dtype == np.uint8 for column in resends), (
        f"resends is {resends[0].dtype}, expected uint8"
    )
    assert not any(column.any() for column in resends), (
        "messages were sent again though no connection was lost"
    )
    assert np.all(burst.sent >= start), (
        "sent must be stamped with the given clock, for every message"
    )
    for stream in r.streams:
        answers = r.answers(stream)
        own = burst.stream == stream
        seq = burst.seq[own]
        sent = burst.sent[own]
        assert np.array_equal(np.sort(answers.seq), seq), (
            f"stream {stream}: {len(answers.seq)} acks of {len(np.unique(answers.seq))} messages,"
            f" {len(seq)} sent"
        )
        assert np.all(answers.status == Status.ACKED), (
            f"stream {stream}: not every message was acked"
        )
        times = answers.time[np.argsort(answers.seq)]
        assert np.all(times >= sent), (
            "acked before it was sent: stamp sent before the client gets the message"
        )


def expect_received(r: Rig, place: int, burst: Burst, ordered: bool) -> None:
    """Check that the consumer at this place received exactly the complete messages of the burst."""
    kinds = {
        "consumer": np.int32,
        "heads": np.uint8,
        "size": np.int32,
        "time": np.int64,
        "order": np.int64,
        "flags": np.int8,
    }
    _check_columns(r.received, kinds)
    heads = r.heads(place)
    sizes = r.column(place, "size")
    counts = np.bincount(heads.kind, minlength=3).tolist()
    assert counts[1:] == [0, 0], (
        f"consumer {place}: {counts[0]} own messages, {counts[1]} foreign, {counts[2]} corrupt"
    )
    assert not np.any(r.column(place, "flags")), (
        f"flags {np.unique(r.column(place, 'flags')).tolist()} on undamaged messages"
    )
    strange = np.setdiff1d(heads.stream, burst.stream).tolist()
    assert not strange, f"consumer {place} received messages of the streams {strange}"
    for stream in np.unique(burst.stream).tolist():
        own = heads.stream == stream
        sent = select_messages(burst, burst.stream == stream)
        seq = heads.seq[own]
        size = sizes[own]
        intended = heads.intended[own]
        assert np.array_equal(np.sort(seq), sent.seq), (
            f"stream {stream}: received {len(seq)} copies of {len(np.unique(seq))},"
            f" {len(sent)} sent"
        )
        assert not ordered or np.all(np.diff(seq) > 0), f"stream {stream}: out of order"
        payload = sent.payload[seq - sent.seq[0]]
        assert np.array_equal(size, r.pool.sizes[payload]), (
            f"stream {stream}: sizes differ from those sent"
        )
        assert np.array_equal(heads.bucket[own], r.pool.buckets[payload]), (
            f"stream {stream}: buckets differ from those sent"
        )
        # The compact envelope has no intended time, which decodes as -1.
        assert np.all((intended == seq + FIRST_INTENDED) | (intended == -1)), (
            f"stream {stream}: intended time was not carried"
        )


def _check_bodies(received: Received, *, begun: bool) -> None:
    """Check the bodies of the first and the last message that a driver has just returned.

    :param begun: they begin with the head.
    """
    if received.bodies is None:
        return
    for row in {0, len(received.size) - 1}:
        body = received.bodies(row)
        known = len(body)
        size = int(received.size[row])
        assert known in (0, size) or BEGINNING <= known <= size, (
            f"bodies({row}) has {known} bytes of {size}, expected at least {BEGINNING}"
        )
        head = received.heads[row].tobytes()[:known]
        assert not begun or body.startswith(head), f"the head of bodies({row}) is not {head!r}"


def _check_columns(parts: Sequence[Acks] | Sequence[Received], kinds: Mapping[str, type]) -> None:
    """Check that all columns of a part have the same length and the right type."""
    for part in parts:
        n = len(part.time)
        for name, kind in kinds.items():
            column: NDArray[Any] = getattr(part, name)
            assert len(column) == n and column.dtype == kind, (
                f"{name} is {column.dtype}[{len(column)}], expected {np.dtype(kind)}[{n}]"
            )
            shape = (n, envelope.HEAD) if name == "heads" else (n,)
            assert column.shape == shape, f"{name} has the shape {column.shape}, expected {shape}"


def plain_pool() -> PayloadPool:
    """Return payloads of 128 bytes."""
    return _random_pool(None, message_size=128)


def mixed_pool() -> PayloadPool:
    """Return payloads of five sizes from 26 bytes to 40 KiB, with checksums."""
    edges = ((20, 32), (36, 40), (40, 300), (1024, 4096), (16 * 1024, 64 * 1024))
    return _random_pool(edges, checksum=True)


def placed_pool(place: EnvelopePlace) -> PayloadPool:
    """Return payloads of three sizes up to 40 KiB, and of one byte if the envelope is not in it."""
    edges = [(100, 300), (1024, 4096), (16 * 1024, 64 * 1024)]
    if place.outside:
        edges.append((1, 2))
    return _random_pool(edges, place=place)


def _random_pool(
    edges: Iterable[tuple[int, int]] | None,
    *,
    message_size: int | None = None,
    checksum: bool = False,
    place: EnvelopePlace = IN_BODY,
) -> PayloadPool:
    """:param edges: of the size buckets; None: all payloads have ``message_size``."""
    buckets = None
    if edges is not None:
        buckets = [
            payloads.Bucket(name=f"{low}-{high}", low=low, high=high, weight=1)
            for low, high in edges
        ]
    return payloads.build_pool(
        buckets=buckets,
        message_size=message_size,
        randomized=True,
        random_ratio=0.5,
        seed=1,
        checksum=checksum,
        place=place,
    )


def context_of(
    subject: Subject, pool: PayloadPool, run: str | None = None, name: str | None = None
) -> DriverContext:
    """Return the context of a run with one topic, one stream and one consumer.

    :param name: existing topic; None: the run creates one.
    """
    return DriverContext(
        target=subject.target,
        settings=subject.settings,
        clock=time.monotonic_ns,
        run=run or f"kit-{secrets.token_hex(4)}",
        nonce=secrets.randbits(32),
        worker="gw0",
        topology=Topology(
            topics=1,
            partitions=subject.partitions,
            producers=1,
            subscriptions=1,
            consumers=1,
            name=name,
        ),
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
    route: Route | None = None,
) -> Iterator[Rig]:
    """Open one driver for a whole run; close it and clean up at the end.

    :param pool: payloads; None: :func:`plain_pool`.
    :param streams: number of streams over all topics, or the streams of this driver when other
        drivers send the rest.
    :param subscriptions: of each topic.
    :param consumers: of each subscription, opened at the start.
    :param run: name of the run; None: a random one.
    :param name: existing topic to use; None: the run creates its topics.
    :param joining: number of consumers of each subscription that can be attached later; these are
        its last ones.
    :param route: the topics of a service, which have no partitions; None: those of a broker alone.
    """
    context = context_of(subject, pool or plain_pool(), run, name)
    own = range(streams) if isinstance(streams, int) else streams
    all_consumers = consumers + joining
    of_each_topic = -(-own.stop // topics)
    topology = replace(
        context.topology,
        topics=topics,
        producers=of_each_topic,
        subscriptions=subscriptions,
        consumers=all_consumers,
        partitions=subject.partitions if route is None else 1,
    )
    driver = subject.driver(replace(context, topology=topology, route=route))
    try:
        driver.prepare()
        opened = Rig(driver, topology, context.pool, context.nonce, subject.deadline, own)
        opened._add_places(
            driver.open_consumers(
                [
                    index
                    for index in range(topology.all_consumers)
                    if index % all_consumers < consumers
                ]
            )
        )
        driver.open_producers(own)
        yield opened
    finally:
        driver.close()
        driver.cleanup()


class FakeClock:
    """A clock for the engine and its drivers that moves only when advanced; ns."""

    def __init__(self, now: int = 0) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, ns: int) -> None:
        """Move the clock forward. :raises ValueError: ``ns`` is negative."""
        if ns < 0:
            raise ValueError(f"time does not run backwards: ns={ns}")
        self.now += ns

    sleep = advance
