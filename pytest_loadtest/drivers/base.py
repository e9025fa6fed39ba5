"""The contract of a driver: bursts in, columns out; no counting and no hidden retries.

A driver adapts one client of one kind of broker. The engine paces, counts and
records. The driver moves messages, takes the timestamps that only it can take with
the clock it is given, and reports how its client is set up. All columns are numpy
arrays of one length; all times are ns of that clock.

Columns go over all streams and all consumers of the worker together, so a tick costs what its
messages cost, however many connections there are (decision 011). A client library that takes one
message at a time needs a loop inside its driver.

Threads: the engine calls a driver from one thread. Threads of the client stay inside the driver;
what they collect is handed over by ``acks`` and ``take``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable

from pytest_loadtest.message.carried import body_tokens
from pytest_loadtest.message.route import IN_BODY, EnvelopePlace, Route
from pytest_loadtest.message.token import TokenReader
from pytest_loadtest.values.records import immutable, record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_loadtest.message.payloads import PayloadPool
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.schedule.topology import Topology

Clock = Callable[[], int]


NO_ANSWER: Final = "no answer"
"""These words are in the reason why a client is not connected if the target does not answer it."""


@record
class TargetAddress:
    """The addresses of the broker under test.

    :param url: ``pulsar://``, ``mqtt://``, ``loopback://``, … URL for producers, and for consumers
        unless ``subscriber_url`` is set.
    :param subscriber_url: address for consumers where they have one
        of their own; None: they use ``url``.
    :param admin_url: address of the broker's administration; None: it has none.
    :param started: the run started this broker for itself. A feature that such a broker lacks is
        left out; on a cluster of the user it is an error.
    """

    url: str
    subscriber_url: str | None = None
    admin_url: str | None = None
    started: bool = False


@record
class DriverContext:
    """The arguments of a driver.

    :param settings: the profile's ``driver`` section (a frozen model of the driver's own type).
    :param clock: returns the time, ns; the only source of a driver's timestamps.
    :param run: name of the run, safe in topic names (lower-case letters, digits, ``-``).
    :param nonce: 32 bits in every envelope of this run.
    :param worker: name of the worker, for client ids.
    :param topology: topics, streams and consumers of the whole run; ``open_producers`` and
        ``open_consumers`` name those of this worker.
    :param pool: the payloads; a burst refers to them by index.
    :param checksum: bodies end in a checksum that the driver verifies.
    :param ordered: the run judges order, so :attr:`Received.order` must be filled.
    :param sources: source addresses of this worker's connections, all IPv4 or all IPv6: connection
        ``n`` comes from ``sources[n % len]``. Empty: the system chooses. Only clients with
        ``Client.source_addresses`` get any.
    :param broker: the profile's ``broker.settings`` if the run started the
        broker with them. A driver that changes policies at the broker leaves
        those alone that would replace one of them.
    :param route: the topics of a service under test, which replace those of the run; only for
        clients with ``Client.envelopes``.
    :param tap: consumers read the inputs of a service, next to it, and leave nothing behind.
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
    sources: tuple[str, ...] = ()
    broker: Mapping[str, str] = field(default_factory=dict)
    route: Route | None = None
    tap: bool = False

    @property
    def received_place(self) -> EnvelopePlace:
        """The place of the envelope in received messages; ``pool.place`` is that in sent ones."""
        return IN_BODY if self.route is None else self.route.received

    def token_reader(self) -> TokenReader | None:
        """Return what finds the tokens in received bodies; None: they have none."""
        return body_tokens(self.received_place)


@record
class TelemetryContext:
    """The arguments of a class that reads a broker's own counters.

    It does so while one phase runs (``DriverKind.telemetry``).

    :param broker: settings of the broker, as far as the run knows them.
    :param settings: the profile's ``driver`` section, as in :class:`DriverContext`.
    :param run: name of the run, as in :class:`DriverContext`.
    :param fresh: nothing was sent to the run's topics before this phase.
    :param kept: survives the phases of a run: values that one phase stores for the next.
    :param route: the topics of a service under test, which others use too; None: those of the run.
    :param ports: the class adds the local ports of its own connections, so that they do not count
        as connections under load.
    """

    target: TargetAddress
    broker: Mapping[str, str]
    settings: Any
    run: str
    topology: Topology
    fresh: bool
    kept: dict[str, Any]
    ports: set[int]
    route: Route | None = None


@record
class DrainingRun:
    """A run that has sent everything.

    A function asks its target for deliveries to come (``DriverKind.undelivered``).

    :param settings: the profile's ``driver`` section.
    :param run: name of the run, as in :class:`DriverContext`.
    """

    target: TargetAddress
    settings: Any
    run: str
    topology: Topology


class Undelivered(NamedTuple):
    """The deliveries of a run that its target had not completed yet.

    All numbers are over one run, at the time of the request.

    :param held: deliveries that the target may still hand over to a consumer.
    :param handed_over: copies handed over to the run's consumers since they were opened, taken or
        on their way. None: ``held`` includes the copies on their way, because the target keeps a
        message until its consumer has acknowledged it.
    """

    held: int
    handed_over: int | None = None


@record
class LiveRun:
    """A run in progress.

    It is for attributes that a kind adds to ``load`` in live tests (``DriverKind.fixture``).

    :param run: name of the run at the broker.
    :param rate: average msg/s over all streams together.
    """

    target: TargetAddress
    profile: Profile
    topology: Topology
    run: str
    rate: float


# Not frozen: the driver fills in two of the columns.
@dataclass(slots=True)
class Burst:
    """Messages that are due, from any of the worker's streams, in their intended order.

    The driver fills in ``sent`` and ``idle``, which are zeroed when it gets the burst.

    :param row: int64, the worker's running number of the message over all phases of a run. A row is
        offered until it is taken.
    :param stream: int32.
    :param seq: int64, number of the message in its stream.
    :param intended: int64 ns.
    :param payload: uint16, index into the pool.
    :param sent: int64 ns, when the message was handed over; stays 0 for a rejected message.
    :param idle: int64 ns. The time of the answer that emptied the window, for a message that finds
        nothing of its stream in flight; 0 for other messages, and before the first answer.
    :param key: int32, number of the message's key; None: messages have no keys.
    :param due: int64 ms since the epoch; no consumer may get the
        message earlier. 0: at once. None: 0 for all.
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


@immutable
class Acks:
    """Answers to messages sent, for any of the worker's streams, in any order.

    There is exactly one for each message.

    :param row: int64, the row that the message had in its burst.
    :param time: int64 ns, when the answer came.
    :param status: int8, :class:`~pytest_loadtest.message.samples.Status` ACKED or FAILED.
    :param resends: uint8, how often the client sent the message again after a lost connection, at
        most 255; None: all are 0.
    """

    row: NDArray[np.int64]
    time: NDArray[np.int64]
    status: NDArray[np.int8]
    resends: NDArray[np.uint8] | None = None


@immutable
class Received:
    """Copies of messages that the worker's consumers received.

    They are in order of arrival for each consumer.

    :param consumer: int32, place of the consumer (see :class:`Driver`).
    :param heads: ``(n, 32)`` uint8, the first 32 bytes of each payload, zero padded.
    :param size: int32, bytes of the payload.
    :param time: int64 ns, when the copy arrived: at the kernel if it stamps
        packets, otherwise when the client took it.
    :param order: int64, the partition or the key within which order is judged, in addition to
        consumer and stream; 0: neither.
    :param flags: int8, :class:`~pytest_loadtest.message.samples.Flag`: REDELIVERED as the broker
        marked it, CORRUPT if the checksum of the body is wrong.
    :param lag: int64 ns, from ``time`` until the client took the copy, -1
        where that is unknown; None: unknown for all.
    :param bodies: row → its body, or at least the first 64 bytes of it; empty where it is unknown.
        The engine calls it for the first few messages that it cannot read, before it calls the
        driver again. None: unknown for all.
    """

    consumer: NDArray[np.int32]
    heads: NDArray[np.uint8]
    size: NDArray[np.int32]
    time: NDArray[np.int64]
    order: NDArray[np.int64]
    flags: NDArray[np.int8]
    lag: NDArray[np.int64] | None = None
    bodies: Callable[[int], bytes] | None = None


class Joined(NamedTuple):
    """Consumers that were established.

    :param consumer: int32, index in the run.
    :param place: int32.
    """

    consumer: NDArray[np.int32]
    place: NDArray[np.int32]


class TopicNames(NamedTuple):
    """The full names of a run's topics at the target, in the order of the topics' numbers.

    :param inputs: those that producers send to.
    :param outputs: those that consumers read: other ones, and several for each topic, only with a
        route.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@record
class DriverFacts:
    """The setup of the client, for plan and report.

    :param client: name of the client.
    :param version: its version.
    :param applied: settings in force, by their names in the profile.
    :param not_applied: settings not in force → the reason.
    :param losses: connections lost during the run so far; None: unknown.
    :param forgotten: connections of producers that were restored after the broker had forgotten
        their session, so that unanswered messages were sent as new ones; None: unknown.
    :param incidents: what happened to connections and sessions although the run went on, by its
        text → how often: lost connections and rejected attempts and messages by their reasons,
        sessions that the broker had forgotten.
    :param stamps: the clock that stamps arrivals and answers: ``kernel`` or ``client``;
        ``client and kernel`` if workers differ.
    :param unstamped: number of reads without a usable stamp of the kernel, which have the client's
        time; None: the kernel stamps nothing.
    :param late_stamps: number of copies that may have arrived more than a millisecond before their
        stamp, as the engine counts them; None likewise.
    """

    client: str
    version: str
    applied: Mapping[str, str] = field(default_factory=dict)
    not_applied: Mapping[str, str] = field(default_factory=dict)
    losses: int | None = None
    forgotten: int | None = None
    incidents: Mapping[str, int] = field(default_factory=dict)
    stamps: str = "client"
    unstamped: int | None = None
    late_stamps: int | None = None


def add_worker_counts(facts: DriverFacts, workers: Iterable[DriverFacts | None]) -> DriverFacts:
    """Return the facts with the sums of the workers' counts, and all their clocks.

    A count that no worker knows is None.
    """
    # None and not 0: an unknown count must not look like "nothing was lost".
    reports = [report for report in workers if report is not None]
    losses = [report.losses for report in reports if report.losses is not None]
    forgotten = [report.forgotten for report in reports if report.forgotten is not None]
    unstamped = [report.unstamped for report in reports if report.unstamped is not None]
    late = [report.late_stamps for report in reports if report.late_stamps is not None]
    incidents = sum((Counter(report.incidents) for report in reports), Counter[str]())
    # The hosts of a fleet may have different kernels.
    stamps = " and ".join(sorted({report.stamps for report in reports})) or facts.stamps
    return replace(
        facts,
        losses=_sum_of_known(losses),
        forgotten=_sum_of_known(forgotten),
        stamps=stamps,
        incidents=dict(incidents.most_common()),
        unstamped=_sum_of_known(unstamped),
        late_stamps=_sum_of_known(late),
    )


def _sum_of_known(counts: Sequence[int]) -> int | None:
    return sum(counts) if counts else None


class Driver(Protocol):
    """One worker's adapter to one target, made as ``DriverClass(context)``.

    Making it connects to nothing.

    *Places.* Each established consumer has a place: 0 for the first one that this driver
    established, then 1, and so on. A place is never used again: a consumer that leaves and returns
    gets a new one. A detached place still delivers what it received.
    """

    def facts(self) -> DriverFacts:
        """Return the settings applied and not applied. Needs no connection."""

    def prepare(self) -> None:
        """Create what the run needs at the target (namespace, topics).

        Called once per run, on the lead worker, before any connects.

        A topic named by the profile must exist: look it up and do not create it.

        :raises TargetError: the target cannot be reached, rejects the
            client, or lacks an existing topic.
        """

    def open_consumers(self, consumers: Sequence[int]) -> NDArray[np.int32]:
        """Connect and subscribe; return when every subscription is established.

        :param consumers: indexes in the run. :returns: the place of
            each, in the order of ``consumers``.
        :raises TargetError: a consumer cannot be opened.
        """

    def open_producers(self, streams: Sequence[int]) -> None:
        """Connect one producer for each stream; return when all may send. Called once.

        :raises TargetError: a producer cannot be opened.
        """

    def attach(self, consumers: Sequence[int]) -> None:
        """Start to open more consumers while messages flow, without blocking.

        :meth:`attached` returns them.

        :raises UsageError: the run cannot have these consumers.
        """

    def attached(self) -> Joined | None:
        """Return the consumers of :meth:`attach` established since the last call, or None.

        Called between two calls of :meth:`poll`.

        :raises TargetError: a consumer cannot be opened.
        """

    def detach(self, places: Sequence[int]) -> None:
        """Start to close these consumers while messages flow.

        It does not block, and no message is lost. Messages that they have not acknowledged go to
        the other consumers of their subscription; messages that they have received are returned by
        :meth:`take`. A paused consumer may first take messages that the broker would give to no
        other.
        """

    def pause(self, places: Sequence[int]) -> None:
        """Stop these consumers from taking and acknowledging messages.

        It does not block, and lasts until :meth:`resume`. Messages that the client fetched ahead
        stay with it, within its limit for that. Messages taken before are still returned by
        :meth:`take`.
        """

    def resume(self, places: Sequence[int]) -> None:
        """Let these consumers take messages again.

        Messages fetched during the pause get the time at which they are handed over now:
        the application could not see them earlier.
        """

    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        """Hand over every message that fits into its stream's window now, without blocking.

        Fill in ``burst.sent`` and ``burst.idle`` of the messages taken. Keep no reference to a
        column of the burst: columns are overwritten afterwards.

        :returns: positions in the burst of the rejected messages, ascending int64; None if all are
            taken. If a message is rejected, so are all later ones of its stream. They are offered
            again later. With ``blockIfQueueFull: false`` every message is taken, and :meth:`acks`
            returns FAILED for those that the client rejects.
        :raises TargetError: the target is lost for good.
        """

    def acks(self) -> Acks | None:
        """Return the answers that came since the last call, or None."""

    def take(self) -> Received | None:
        """Return what all consumers received since the last call, or None.

        Works after :meth:`detach` and :meth:`close`, until nothing is left.
        """

    def poll(self, timeout_ns: int) -> None:
        """Let the client do I/O, or wait.

        Return after ``timeout_ns`` at the latest, and as soon as a stream with rejected messages
        may have room.

        :raises TargetError: the target is lost for good.
        """

    def opening_times(self) -> Mapping[str, NDArray[np.int64]]:
        """Return the durations of everything opened so far, ns, one value for each.

        It is empty if the client does not report them.

        ``connect``: from the first packet to the broker's welcome.
        ``subscribe``: from the request to its confirmation.

        With paced connections (:class:`PacedConnections`) ``connect`` starts at the instant at
        which the connection was due; ``dial`` is the delay from there to the actual start, less the
        time in which the target had no room for another connection; and ``up`` is not a duration
        but the time of each welcome. A reconnect does not count again.

        ``reconnect``: from the loss of a connection until it was
        established again, with its subscription.

        ``connect_with_own`` has those of ``connect`` that the client itself lengthened, by
        beginning late or by stalls of its loop, and ``connect_without_own`` the same less that
        time; likewise for ``subscribe`` and ``reconnect``. A client that does not know it leaves
        these out, and a miss is then the target's (decision 049).
        """

    def disconnected(self) -> str | None:
        """Return what is not connected now ("producer of stream 3").

        The reason is in parentheses if it is known. None if everything is connected. The reason has
        the words :data:`NO_ANSWER` if the target is silent, as one that hangs, and not if it
        rejects clients or is gone.
        """

    def close(self) -> None:
        """Disconnect everything.

        Safe to call twice and after an error; never hangs on a dead target.
        """

    def cleanup(self) -> None:
        """Delete what :meth:`prepare` and the run created at the target, and nothing else.

        That is a namespace, sessions, retained messages. It is called once, on the lead worker,
        after every driver of the run was closed.
        """


@runtime_checkable
class NamedTopics(Protocol):
    """An additional method of drivers whose topics have names at the target.

    The fixture ``load_target`` has them.
    """

    def topic_names(self) -> TopicNames:
        """Return the names of the run's topics."""


# A protocol of its own, because a driver with one connection for
# each worker has no connections to pace.
class PacedConnections(Protocol):
    """An additional method of drivers with one connection for each client.

    Each connection starts at a given instant.
    """

    def pace(self, due: NDArray[np.int64], idle: Callable[[], None]) -> None:
        """Start the next connections at these instants.

        They are those of the next :meth:`Driver.open_consumers` or :meth:`Driver.open_producers`.

        :param due: ns, ascending, one for each connection in the order of that call.
        :param idle: called repeatedly while the connections are opened, so that other drivers of
            the worker can keep their connections alive. An exception that it raises ends the wait.
        """
