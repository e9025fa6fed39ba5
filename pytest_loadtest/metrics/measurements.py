"""The measurements of one run.

None always means "not measured" or "not applicable", never zero.

The controller assembles them after the load; the verdict, reports and the body of a test read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.values.fields import Count  # noqa: TC001 - results documents look it up
from pytest_loadtest.values.records import record
from pytest_loadtest.values.units import Duration, Rate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.clocks import HostTime, WithinHosts
    from pytest_loadtest.metrics.expected import Opening, WorkerEvidence
    from pytest_loadtest.metrics.full_windows import FullWindows
    from pytest_loadtest.metrics.histogram import Histogram
    from pytest_loadtest.metrics.offering import OfferedWindow
    from pytest_loadtest.metrics.signed import Lateness
    from pytest_loadtest.metrics.silent import Silent
    from pytest_loadtest.metrics.strays import Stray
    from pytest_loadtest.metrics.time_slices import OverTime, SlicedStats


CustomValue = Duration | Rate | float | None
"""The value of a user's own metric; None: no value."""


@record
class Counts:
    """Messages of the measured phase.

    Deliveries (received, lost, duplicates, out of order) are summed over subscriptions.

    offered = sent + dropped; sent = acked + failed + unknown; expected deliveries = acked × fan-out
    = received_acked + lost. ``sent_in_time`` messages were sent before the measured phase ended.
    ``received`` counts first copies; through a service with several outputs for each message, as
    many copies of it as are due. ``lost`` is None if the service chooses which messages have an
    output. If others send, ``received`` has all that came, and what an envelope would show is None:
    lost, duplicates, foreign, corrupt. The client sent ``resent`` messages again after a
    lost connection; ``duplicates_of_resent`` duplicates are copies of those messages.
    ``out_of_order`` is None if order is not applicable; ``foreign`` is None in a stage, because the
    time of foreign messages is unknown. ``corrupt_heads`` of the corrupt messages had a damaged
    head, so their time is unknown too: any time of the run, warm-up included. ``out_of_due_order``
    counts first copies that came after one due more than a tick later at the same consumer; None
    without delays.
    """

    offered: int
    sent: int
    sent_in_time: int
    acked: int
    failed: int
    dropped: int
    unknown: int
    received: int
    received_in_time: int
    lost: int | None
    duplicates: int | None
    out_of_order: int | None
    foreign: int | None
    corrupt: int | None
    resent: int = 0
    duplicates_of_resent: int = 0
    out_of_due_order: int | None = None
    corrupt_heads: int | None = 0


@record
class Breakdown:
    """One topic or one size bucket.

    :param in_time_without_own: see :class:`Measurements`; 0 for a topic.
    :param latencies: as in :class:`Measurements`; the kinds that the catalogue marks ``per_topic``
        or ``per_bucket``.
    """

    name: str
    offered: int = 0
    sent: int
    acked: int
    received: int
    received_in_time: int = 0
    in_time_without_own: int = 0
    lost: int | None = 0
    bytes_sent: int
    latencies: Mapping[str, Histogram] = field(default_factory=dict)


@record
class Series:
    """Columns with one entry for each second of the measured phase and its drain; times in ns, NaN
    if nothing was measured.

    ``missing`` is acked × fan-out less all copies, of the messages intended in that second.
    Above zero, deliveries are lost; below zero, messages came twice, or came without being
    acknowledged. None without subscriptions, or if others send. ``blocked`` is the time before the
    target's full window, summed over the messages sent, or dropped, in that second; None if the run
    sends nothing. ``receive_lag_max`` is None if it is unknown in every second.
    """

    offered: NDArray[np.int64]
    sent: NDArray[np.int64]
    acked: NDArray[np.int64]
    received: NDArray[np.int64]
    end_to_end_p50: NDArray[np.float64]
    end_to_end_p99: NDArray[np.float64]
    end_to_end_max: NDArray[np.float64]
    missing: NDArray[np.int64] | None = None
    blocked: NDArray[np.int64] | None = None
    receive_lag_max: NDArray[np.float64] | None = None

    @classmethod
    def padded(
        cls,
        planned: int,
        counted: Sequence[NDArray[np.int64]],
        seconds: NDArray[np.int64],
        latency: NDArray[np.float64],
        fan_out: int,
    ) -> Series:
        """Pad all columns to one length: the planned seconds, or more if there are later counts.

        :param planned: number of seconds.
        :param counted: columns by second from 0: offered, sent, acked, received; ns blocked; acked
            and copies by the second of their intended time.
        :param seconds: ``(k,)``, seconds with latencies.
        :param latency: ``(k, 4)``, their p50, p99 and maximum, and the largest receive lag, ns;
            NaN: unknown.
        """
        # Columns can be longer than the plan: messages arrive during the drain.
        length = max(planned, int(seconds.max(initial=-1)) + 1, *map(len, counted))
        columns = [np.pad(column, (0, length - len(column))) for column in counted]
        offered, sent, acked, received, blocked, acked_by_intended, copies_by_intended = columns
        missing = None
        if fan_out:
            missing = acked_by_intended * fan_out - copies_by_intended
        # A second without latencies is NaN and not 0, which would be the best value.
        times = np.full((length, 4), np.nan)
        times[seconds] = latency
        lag = None if np.isnan(times[:, 3]).all() else times[:, 3]
        return cls(
            offered=offered,
            sent=sent,
            acked=acked,
            received=received,
            end_to_end_p50=times[:, 0],
            end_to_end_p99=times[:, 1],
            end_to_end_max=times[:, 2],
            missing=missing,
            blocked=blocked,
            receive_lag_max=lag,
        )


@record
class Backlog:
    """A backlog that was built while consumers were paused and then read while producers continued,
    by the workers' reports twice a second.

    :param size_messages: deliveries waiting when consumers resumed, summed over subscriptions.
    :param size_bytes: their payload bytes.
    :param build: ns from the pause until the size was reached.
    :param drain: ns from the resumption until only the share ``backlogDrainRatio`` was left; inf if
        the drain was given up and the backlog was not smaller than at the resumption; None if it
        was given up while the backlog was shrinking: it is longer than ``waited``.
    :param drained: that share was reached in time. Both are None if second copies or lost messages
        make the end of the drain uncertain.
    :param waited: ns from the resumption until the drain was given up, after
        ``backlogDrainTimeout``; None if it was not.
    :param left: deliveries still waiting then; None with second copies or tolerated losses.
    :param allowed: deliveries that may be left of a backlog that counts as drained.
    :param drain_rate: deliveries per second during the drain; None with second copies, or if the
        end of the drain is uncertain.
    :param publish_during_drain: acked − intended of the messages due during the drain; None if
        acknowledgement is not applicable, nothing was acked, or the end of the drain is uncertain.
    :param between: the earliest and the latest possible end of an uncertain drain, ns from the
        resumption; the latter is None if it was not seen during the load.
    :param uncounted: copies that make it uncertain: second ones, damaged ones, those of another
        topic, and those of messages without acknowledgement.
    :param lost: deliveries that make it uncertain: they never came, and a bound on loss allows it.
    """

    size_messages: int
    size_bytes: int
    build: int
    drain: float | None
    drained: bool | None
    left: int | None
    allowed: int
    drain_rate: float | None
    publish_during_drain: Histogram | Lateness | None
    between: tuple[int, int | None] | None = None
    uncounted: int = 0
    lost: int = 0
    waited: int | None = None


@record
class Lost:
    """A range of lost messages."""

    topic: Count
    """index"""
    subscription: Count
    """index within the topic"""
    stream: Count
    """producer"""
    first: Count
    """sequence"""
    last: Count
    """sequence, inclusive"""


HEADS_AND_SIZES: Final = "heads and sizes"
ENVELOPES: Final = "envelopes"
UNCHECKED: Final = {
    HEADS_AND_SIZES: "no checksum",
    ENVELOPES: "the service makes the bodies",
}
"""Parts that are checked → why no others are."""


def checked_parts(*, checksum: bool, routed: bool) -> str | None:
    """Return the parts of messages whose damage is detected; None: all of each message.

    :param checksum: payloads end in a checksum.
    :param routed: a service makes the messages received.
    """
    if checksum:
        return None
    return ENVELOPES if routed else HEADS_AND_SIZES


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """All measurements of one measured phase.

    :param duration: of the measured phase as planned, ns.
    :param rate: offered msg/s.
    :param subscriptions: per topic.
    :param outputs: the deliveries due for each message on each subscription.
    :param answered: deliveries of acknowledged messages that came, by subscription, if a service
        chooses which messages have an output; otherwise None. A broadcast has their sum.
    :param tapped: the run has a tap on the input of a service.
    :param latencies: histograms by their attribute in the catalogue of metrics: ``publish``,
        ``end_to_end``, ``send_delay`` …; :mod:`pytest_loadtest.metrics.stats` defines each. A kind
        without values, or that does not apply to the run, is missing.
    :param blocked: ns, summed over messages, sent or dropped.
    :param full_windows: the messages that were dropped because of full windows; None if there are
        none.
    :param in_time_without_own: deliveries that would have been in time if each copy had come
        earlier by the part that the generator's own delays explain; 0 if it is not counted.
    :param own_late: messages sent after the phase because of the generator's own send delay alone.
    :param intervals: the latencies of each ten seconds, where there is more than one.
    :param over_time: end-to-end latencies by blocks of seconds; None if nothing was received.
    :param windows: the windows for objectives; None without such objectives, or if the phase is
        shorter than one.
    :param tenths: the first and the last tenth; None without objectives on drift, or if the phase
        is shorter than ten seconds.
    :param custom: the metrics that users' own ``pytest_loadtest_aggregate`` returned, by name.
    :param broadcasts: each message went to 64 subscriptions or more, of one consumer each.
    :param clocks: the error of each other host's times; empty if all workers ran on the
        controller's host.
    :param within_hosts: the deliveries within one host; None if all workers ran on the controller's
        host, or there can be no deliveries.
    :param opening: the opening of connections, if it was paced or the run has nothing else.
    :param delayed_index: size of the broker's index of delayed messages; None if the broker was not
        asked.
    :param forgotten: reconnections of MQTT producers to a broker that had forgotten their session;
        None: unknown.
    :param silent: topics and streams of which nothing arrived; None if unknown or not applicable.
    :param unheard: subscriptions that got nothing of a topic with messages due, by whatever reason:
        those of ``silent``, and those for which a service may have chosen nothing.
    :param lost: ranges of lost messages, at most 10 000; ``counts.lost`` is exact.
    :param pauses_known: the pauses of all workers are recorded, so latencies are also counted
        without the generator's own delays, under the names of
        :func:`~pytest_loadtest.metrics.catalogue.without_own`.
    :param checked: the parts of messages whose damage is detected, as of :func:`checked_parts`.
    :param backlog: None unless a backlog was built and its drain seen.
    :param offering: the planned and the offered load; empty if the plan is unknown, and for a
        stage.
    :param strays: the first foreign and corrupt messages.
    """

    duration: int
    rate: float
    subscriptions: int
    counts: Counts
    bytes_sent: int
    blocked: int
    series: Series
    own_late: int = 0
    in_time_without_own: int = 0
    full_windows: FullWindows | None = None
    latencies: Mapping[str, Histogram | Lateness] = field(default_factory=dict)
    intervals: Sequence[Mapping[str, Histogram]] = ()
    over_time: OverTime | None = None
    windows: SlicedStats | None = None
    tenths: SlicedStats | None = None
    topics: tuple[Breakdown, ...] = ()
    buckets: tuple[Breakdown, ...] = ()
    workers: tuple[WorkerEvidence, ...] = ()
    lost: tuple[Lost, ...] = field(default=())
    checked: str | None = HEADS_AND_SIZES
    backlog: Backlog | None = None
    custom: Mapping[str, CustomValue] = field(default_factory=dict)
    broadcasts: bool = False
    opening: Opening | None = None
    clocks: tuple[HostTime, ...] = ()
    within_hosts: WithinHosts | None = None
    delayed_index: DelayedIndex | None = None
    forgotten: int | None = None
    silent: Silent | None = None
    unheard: int = 0
    pauses_known: bool = False
    offering: tuple[OfferedWindow, ...] = ()
    outputs: int = 1
    answered: tuple[int, ...] | None = None
    tapped: bool = False
    strays: tuple[Stray, ...] = ()

    @property
    def fan_out(self) -> int:
        """The number of deliveries due for each message, over all subscriptions; 0 without
        consumers.
        """
        return self.subscriptions * self.outputs

    @property
    def selective(self) -> bool:
        """True if a service chooses which messages have an output."""
        return self.answered is not None

    @property
    def clock_error(self) -> int:
        """Bound on the error of a latency between hosts, ns; 0 if all workers ran on the
        controller's host, or no latency is between hosts.

        Intended times are the controller's, so only the clock that stamps the end of a latency has
        an error.
        """
        return self.clock_error_of(1)

    def clock_error_of(self, clocks: int) -> int:
        """Return the bound for a latency whose ends are stamped by so many hosts' clocks, ns."""
        if self.one_clock:
            return 0
        errors = sorted(clock.error for clock in self.clocks)
        return sum(errors[-clocks:])

    @property
    def one_clock(self) -> bool:
        """True if there are several hosts, and both ends of each latency were read on the clock of
        one of them.
        """
        return self.within_hosts is not None and self.within_hosts.complete

    @property
    def uneven_hosts(self) -> tuple[str, ...]:
        """The hosts whose clocks were set while load ran, so that latencies are unknown: also those
        that are read on one such clock.
        """
        return tuple(clock.host for clock in self.clocks if not clock.holds)

    @property
    def throughput(self) -> float:
        """Delivered msg/s, per subscription: deliveries with a copy within the measured phase,
        shifted by the median latency. Of several outputs for a message each is a part of it.
        """
        # Every subscription receives all messages, so the sum over subscriptions is divided by
        # their number (decision 004), and that over outputs likewise.
        deliveries = self.counts.received_in_time / max(self.fan_out, 1)
        return deliveries / (self.duration / 1e9)

    @property
    def publish_rate(self) -> float:
        """Messages sent in time, per second."""
        return self.counts.sent_in_time / (self.duration / 1e9)

    def never_came(self, kind: str, part: Breakdown | None = None) -> int:
        """Return the number of messages or deliveries that were due and have no latency: they are
        later than any bound.

        :param kind: its row in the catalogue names what can be missing, see
            :data:`~pytest_loadtest.metrics.catalogue.NeverCame`.
        :param part: count this bucket or topic only.
        """
        counted = self.counts if part is None else part
        # The catalogue says which messages can be missing, so that numpy, Spark, windows and
        # reports agree.
        match LATENCIES[kind].never_came:
            case "deliveries":
                due = 0 if self.selective else counted.offered * self.fan_out
                # A run that only consumes receives the messages of others, of which none was due.
                return due - counted.received if due else 0
            case "acknowledgements":
                return counted.offered - counted.acked
            case "sends":
                return counted.offered - counted.sent
            case "completions":
                # No count has the messages that every subscription received; their number is that
                # of the latencies.
                complete = self.latencies[kind].n if kind in self.latencies else 0
                return counted.offered - complete
            case "subscriptions":
                return self.unheard
        return 0

    def unstamped(self, kind: str, part: Breakdown | None = None) -> int:
        """Return the number of deliveries whose receive lag is unknown although that of others is
        known; 0 for other kinds.
        """
        if kind != "receive_lag":
            return 0
        lag = (part or self).latencies.get(kind)
        if lag is None:
            return 0
        return (part or self.counts).received - lag.n

    @property
    def own_drops(self) -> int:
        """Number of messages that were dropped although no full window caused most of their delay:
        the generator's doing.
        """
        if self.full_windows is None:
            return self.counts.dropped
        return self.counts.dropped - self.full_windows.dropped


@record
class DelayedIndex:
    """The broker's index of delayed messages when it was largest, over all topics and subscriptions
    of the run.

    :param bytes: its size, as the broker counts it.
    :param messages: its entries; a message counts once for each subscription.
    """

    bytes: int
    messages: int

    @property
    def bytes_per_message(self) -> float:
        """Bytes for one message and subscription."""
        return self.bytes / self.messages
