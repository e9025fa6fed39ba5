"""What every driver is: bursts in, bursts out, nothing counted and nothing retried quietly.

A driver adapts one client of one kind of broker. The engine paces, counts and records; the driver moves messages, stamps the
instants that only it can see with the clock it is given, and says how the client was set up. All columns are numpy arrays of
one length; times are ns of that clock.

Threads: the engine calls a driver, its producers and its consumers from one thread. Whatever threads the client runs stay
inside the driver, which hands over what they collected when asked (``acks``, ``take``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pytest_loadtest.topology import ConsumerSpec as ConsumerSpec
from pytest_loadtest.topology import ProducerSpec as ProducerSpec
from pytest_loadtest.topology import TopicSpec as TopicSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_loadtest.payloads import PayloadPool

Clock = Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAddress:
    """Where the broker under test listens: ``pulsar://``, ``mqtt://``, ``loopback://`` URL; admin URL where there is one."""

    url: str
    admin_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverContext:
    """What a driver is made from.

    :param settings: the profile's ``driver`` section (a frozen model; the driver knows its type).
    :param run: the run's name, safe in topic names (lower-case letters, digits, ``-``).
    :param nonce: 32 bits in every envelope of this run.
    :param worker: name of the worker, for client ids.
    :param topics: every topic of the run.
    :param subscriptions: of each topic.
    :param checksum: whether the body ends in a checksum to be verified.
    :param ordered: whether order is judged, so that partition (or key) columns are wanted.
    """

    target: TargetAddress
    settings: Any
    clock: Clock
    run: str
    nonce: int
    worker: str
    topics: tuple[TopicSpec, ...]
    pool: PayloadPool
    checksum: bool = False
    ordered: bool = True
    subscriptions: int = 1


@dataclass(slots=True)
class Burst:
    """Messages due in one tick for one producer. ``sent`` is filled by the driver, as far as it accepts."""

    seq: NDArray[np.int64]
    intended: NDArray[np.int64]
    payload: NDArray[np.uint16]
    sent: NDArray[np.int64]
    key: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.seq)


@dataclass(frozen=True, slots=True)
class Acks:
    """Answers to messages sent: sequence, instant, :class:`~pytest_loadtest.samples.Status` (ACKED or FAILED)."""

    seq: NDArray[np.int64]
    time: NDArray[np.int64]
    status: NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Received:
    """Copies that one consumer got, in arrival order.

    :param heads: ``(n, 32)`` uint8, the first 32 bytes of each payload, zero padded.
    :param size: int32, payload bytes.
    :param time: int64, ns.
    :param order: int64, what order is judged within besides the stream: the partition, or the key; 0 where there is neither.
    :param flags: int8, :class:`~pytest_loadtest.samples.Flag` REDELIVERED and CORRUPT (body checksum) as the driver saw them.
    """

    heads: NDArray[np.uint8]
    size: NDArray[np.int32]
    time: NDArray[np.int64]
    order: NDArray[np.int64]
    flags: NDArray[np.int8]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFacts:
    """How the client was set up, for plan and report: settings applied, settings not applied with the reason."""

    client: str
    version: str
    applied: Mapping[str, str] = field(default_factory=dict)
    not_applied: Mapping[str, str] = field(default_factory=dict)


class Producer(Protocol):
    """Sends the messages of one stream."""

    def send(self, burst: Burst) -> int:
        """Hand over the longest prefix that the client's window takes now and return its length; never block.

        Fills ``burst.sent[:n]``. With ``blockIfQueueFull`` off, everything is taken and what the client refuses comes back as
        FAILED in :meth:`acks`.

        :raises TargetError: the target is gone for good.
        """

    def acks(self) -> Acks | None:
        """What was answered since the last call, or None."""

    @property
    def in_flight(self) -> int:
        """Messages handed over and not answered."""

    @property
    def idle_since(self) -> int:
        """The instant of the answer that emptied the window; meaningful only while :attr:`in_flight` is 0."""


class Consumer(Protocol):
    """Receives from one subscription, acknowledging what it takes."""

    def take(self) -> Received | None:
        """What arrived since the last call, or None. Goes on after :meth:`Driver.detach` and :meth:`Driver.close`, until all is taken."""

    def pause(self) -> None:
        """Take no more messages and acknowledge none, until :meth:`resume`; never block.

        What the client fetched ahead stays with it, within the bound that it has for that. What was taken before can still be had from
        :meth:`take`.
        """

    def resume(self) -> None:
        """Go on. What had arrived meanwhile is stamped as it is handed over now: nobody saw it before."""


class Driver(Protocol):
    """One worker's adapter to one target. Constructed as ``DriverClass(context)``; touches nothing before it is told to."""

    def facts(self) -> DriverFacts:
        """Settings applied and not applied. Needs no connection."""

    def prepare(self) -> None:
        """Create what the run needs at the target (namespace, topics). Called once per run, on the lead, before any connects.

        A topic with a name of its own is looked up and not created.

        :raises TargetError: the target cannot be reached or refuses, or lacks an existing topic.
        """

    def open_consumers(self, specs: Sequence[ConsumerSpec]) -> list[Consumer]:
        """Connect and subscribe; returns when every subscription is established."""

    def open_producers(self, specs: Sequence[ProducerSpec]) -> list[Producer]:
        """Connect; returns when every producer may send."""

    def attach(self, specs: Sequence[ConsumerSpec]) -> None:
        """Begin to open more consumers while messages flow; never block. See :meth:`attached`.

        :raises UsageError: there can be no such consumers.
        """

    def attached(self) -> list[tuple[ConsumerSpec, Consumer]]:
        """Consumers of :meth:`attach` whose subscription was established since the last call. Asked between two calls of :meth:`poll`.

        :raises TargetError: one cannot be opened.
        """

    def detach(self, consumers: Sequence[Consumer]) -> None:
        """Begin to close these consumers while messages flow; never block. Nothing is lost by it: what they have not acknowledged goes to
        the others of their subscription, and what they have is in ``take``, which the caller goes on asking.

        A paused consumer may take what the broker would give to no other.
        """

    def poll(self, timeout_ns: int) -> None:
        """Give the client its chance to do I/O, or wait; return after at most ``timeout_ns``.

        :raises TargetError: the target is gone for good.
        """

    def disconnected(self) -> str | None:
        """Names what is not connected just now ("producer of stream 3"), or None when all is well."""

    def close(self) -> None:
        """Disconnect everything; safe to call twice, and after an error. Never hangs on a dead target."""

    def cleanup(self) -> None:
        """Delete what :meth:`prepare` and the run left at the target (namespace, sessions, retained state), and nothing that was there
        before. Lead only, once, after every driver of the run was closed.
        """
