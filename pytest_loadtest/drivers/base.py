"""What every driver is: bursts in, columns out, nothing counted and nothing retried quietly.

A driver adapts one client of one kind of broker. The engine paces, counts and records; the driver moves messages, stamps the
instants that only it can see with the clock it is given, and says how the client was set up. All columns are numpy arrays of
one length; times are ns of that clock.

Columns go over all streams and all consumers of the worker together: a tick costs what its messages cost, however many connections there
are. A client library that takes one message at a time is looped over inside its driver.

Threads: the engine calls a driver from one thread. Whatever threads the client runs stay inside the driver, which hands over what
they collected when asked (``acks``, ``take``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_loadtest.message.payloads import PayloadPool
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.schedule.topology import Topology

Clock = Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAddress:
    """Where the broker under test listens: ``pulsar://``, ``mqtt://``, ``loopback://`` URL; admin URL where there is one.

    :param subscriber_url: where consumers connect; None: to ``url``, as producers do.
    :param started: the run started it, for itself: what it cannot have is left out, where on a cluster of the user's it is an error.
    """

    url: str
    subscriber_url: str | None = None
    admin_url: str | None = None
    started: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverContext:
    """What a driver is made from.

    :param settings: the profile's ``driver`` section (a frozen model; the driver knows its type).
    :param run: the run's name, safe in topic names (lower-case letters, digits, ``-``).
    :param nonce: 32 bits in every envelope of this run.
    :param worker: name of the worker, for client ids.
    :param topology: of the whole run; which streams and consumers are this worker's is told when they are opened.
    :param checksum: whether the body ends in a checksum to be verified.
    :param ordered: whether order is judged, so that partition (or key) columns are wanted.
    """

    target: TargetAddress
    settings: Any
    clock: Clock
    run: str
    nonce: int
    worker: str
    topology: Topology
    pool: PayloadPool
    checksum: bool = False
    ordered: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryContext:
    """What is asked of a broker while one phase runs: how it fares, and what it counts of the run.

    :param broker: the settings of the broker that the run knows. :param settings: of the driver, as in :class:`DriverContext`; so ``run``.
    :param fresh: nothing was sent to its topics before. :param kept: what is kept of the phase before, for whoever keeps something for the
        next one. :param ports: gets our own ports of connections that carry no load.
    """

    target: TargetAddress
    broker: Mapping[str, str]
    settings: Any
    run: str
    topology: Topology
    fresh: bool
    kept: dict[str, Any]
    ports: set[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """A run that goes on, for what a kind adds to ``load`` in live tests (``DriverKind.fixture``).

    :param run: its name at the broker. :param rate: msg/s, all streams together, on the average.
    """

    target: TargetAddress
    profile: Profile
    topology: Topology
    run: str
    rate: float


@dataclass(slots=True)
class Burst:
    """Messages to be sent now, of any of the worker's streams, in the order in which they are intended to leave.

    ``sent`` and ``idle`` come zeroed and are the driver's to fill.

    :param row: int64, the worker's own running number of the message, over all phases of a run. Each row is offered until it is taken.
    :param stream: int32. :param seq: int64, number in its stream. :param intended: int64 ns. :param payload: uint16, index into the pool.
    :param sent: int64 ns, when the message was handed over; stays 0 where it is refused.
    :param idle: int64 ns: where a message finds its stream's window empty, the instant of the answer that had emptied it; otherwise 0.
    :param key: int32, number of the message's key; None where messages have none.
    :param due: int64 ms since the epoch, before which no consumer is to get it; 0: at once. None: so are all of them.
    """

    row: NDArray[np.int64]
    stream: NDArray[np.int32]
    seq: NDArray[np.int64]
    intended: NDArray[np.int64]
    payload: NDArray[np.uint16]
    sent: NDArray[np.int64]
    idle: NDArray[np.int64]
    key: NDArray[np.int32] | None = None
    due: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, slots=True)
class Acks:
    """Answers to messages sent, of any of the worker's streams, in any order; one answer a message.

    :param row: int64, as the burst had it. :param time: int64 ns, when the answer came.
    :param status: int8, :class:`~pytest_loadtest.message.samples.Status` ACKED or FAILED.
    :param resends: uint8, how often the client sent it again after a lost connection, 255 at most; None: it sent none of them again.
    """

    row: NDArray[np.int64]
    time: NDArray[np.int64]
    status: NDArray[np.int8]
    resends: NDArray[np.uint8] | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """Copies that the worker's consumers got; those of one consumer in arrival order.

    :param consumer: int32, the place of the consumer: see :class:`Driver`.
    :param heads: ``(n, 32)`` uint8, the first 32 bytes of each payload, zero padded.
    :param size: int32, payload bytes.
    :param time: int64, ns.
    :param order: int64, what order is judged within besides consumer and stream: the partition, or the key; 0 where there is neither.
    :param flags: int8, :class:`~pytest_loadtest.message.samples.Flag` REDELIVERED and CORRUPT (body checksum) as the driver saw them.
    """

    consumer: NDArray[np.int32]
    heads: NDArray[np.uint8]
    size: NDArray[np.int32]
    time: NDArray[np.int64]
    order: NDArray[np.int64]
    flags: NDArray[np.int8]


class Joined(NamedTuple):
    """Consumers that are established now. :param consumer: int32, index in the run. :param place: int32."""

    consumer: NDArray[np.int32]
    place: NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFacts:
    """How the client was set up, for plan and report: settings applied, settings not applied with the reason.

    :param losses: connections that were lost in mid-run so far. :param forgotten: connections of producers that came up again at a broker
        which had forgotten their session, so that what was not answered was sent as new. None where the client does not tell.
    """

    client: str
    version: str
    applied: Mapping[str, str] = field(default_factory=dict)
    not_applied: Mapping[str, str] = field(default_factory=dict)
    losses: int | None = None
    forgotten: int | None = None


def add_worker_counts(facts: DriverFacts, workers: Iterable[DriverFacts | None]) -> DriverFacts:
    """The facts with the workers' counts added up; a count that no worker knows is None."""
    known = [one for one in workers if one is not None]
    losses = [one.losses for one in known if one.losses is not None]
    forgotten = [one.forgotten for one in known if one.forgotten is not None]
    return replace(facts, losses=sum(losses) if losses else None, forgotten=sum(forgotten) if forgotten else None)


class Driver(Protocol):
    """One worker's adapter to one target. Constructed as ``DriverClass(context)``; touches nothing before it is told to.

    *Places.* An established consumer has a place: 0 for the first one that this driver established, then 1, and so on. A place is never
    used again: a consumer that left and comes again gets a new one. A detached place still delivers what it had.
    """

    def facts(self) -> DriverFacts:
        """Settings applied and not applied. Needs no connection."""

    def prepare(self) -> None:
        """Create what the run needs at the target (namespace, topics). Called once per run, on the lead, before any connects.

        A topic with a name of its own is looked up and not created.

        :raises TargetError: the target cannot be reached or refuses, or lacks an existing topic.
        """

    def open_consumers(self, consumers: Sequence[int]) -> NDArray[np.int32]:
        """Connect and subscribe; returns when every subscription is established.

        :param consumers: indexes in the run. :returns: the place of each of them, in the order asked.
        """

    def open_producers(self, streams: Sequence[int]) -> None:
        """Connect one producer for each of the streams; returns when every one may send. Called once."""

    def attach(self, consumers: Sequence[int]) -> None:
        """Begin to open more consumers while messages flow; never block. See :meth:`attached`.

        :raises UsageError: there can be no such consumers.
        """

    def attached(self) -> Joined | None:
        """Consumers of :meth:`attach` whose subscription was established since the last call, or None. Asked between two calls of
        :meth:`poll`.

        :raises TargetError: one cannot be opened.
        """

    def detach(self, places: Sequence[int]) -> None:
        """Begin to close these consumers while messages flow; never block. Nothing is lost by it: what they have not acknowledged goes to
        the others of their subscription, and what they have is in :meth:`take`.

        A paused consumer may take what the broker would give to no other.
        """

    def pause(self, places: Sequence[int]) -> None:
        """These consumers take no more messages and acknowledge none, until :meth:`resume`; never block.

        What the client fetched ahead stays with it, within the bound that it has for that. What was taken before can still be had from
        :meth:`take`.
        """

    def resume(self, places: Sequence[int]) -> None:
        """Go on. What had arrived meanwhile is stamped as it is handed over now: nobody saw it before."""

    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        """Hand over every message whose stream's window takes it now; never block.

        Fills ``burst.sent`` and ``burst.idle`` of those that are taken, and keeps none of the burst's columns: they change later.

        :returns: the positions in the burst of those that are not taken, ascending int64; None when all are taken. What is refused is, of
            each stream, all from some message on. It is offered again later. With ``blockIfQueueFull`` off everything is taken, and what
            the client refuses comes back as FAILED in :meth:`acks`.
        :raises TargetError: the target is gone for good.
        """

    def acks(self) -> Acks | None:
        """What was answered since the last call, or None."""

    def take(self) -> Received | None:
        """What all consumers got since the last call, or None. Goes on after :meth:`detach` and :meth:`close`, until all is taken."""

    def poll(self, timeout_ns: int) -> None:
        """Give the client its chance to do I/O, or wait; return after at most ``timeout_ns``, and as soon as a stream that was refused
        may find room.

        :raises TargetError: the target is gone for good.
        """

    def opening_times(self) -> Mapping[str, NDArray[np.int64]]:
        """How long what was opened so far took, ns, one number for each: ``connect``, from the first packet until the broker's welcome, and
        ``subscribe``, from the request until it was confirmed. Empty where the client does not tell.

        Where connections were paced (:class:`PacedConnections`), ``connect`` is from the instant at which each was to be begun, and
        ``dial`` is how much later than that it was, less the time in which the target left no room for one more; what comes again counts
        no second time. ``up`` is no length but when each welcome came.
        """

    def disconnected(self) -> str | None:
        """Names what is not connected just now ("producer of stream 3"), or None when all is well."""

    def close(self) -> None:
        """Disconnect everything; safe to call twice, and after an error. Never hangs on a dead target."""

    def cleanup(self) -> None:
        """Delete what :meth:`prepare` and the run left at the target (namespace, sessions, retained state), and nothing that was there
        before. Lead only, once, after every driver of the run was closed.
        """


class PacedConnections(Protocol):
    """What a driver has besides whose clients connect each for itself: their connections are begun when they are told to."""

    def pace(self, due: NDArray[np.int64], idle: Callable[[], None]) -> None:
        """The connections that the next call of :meth:`Driver.open_consumers` or :meth:`Driver.open_producers` opens are begun at these
        instants, ns, in the order asked; ascending.

        :param idle: called again and again meanwhile, for it may take long: other drivers of the worker have connections to keep. What it
            raises ends the wait.
        """
