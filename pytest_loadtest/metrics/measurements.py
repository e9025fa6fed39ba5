"""What was observed in one run, with counts, or an explicit nothing.

None always means "not measured" or "not applicable", never zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.values.units import Duration, Rate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.clocks import HostTime
    from pytest_loadtest.metrics.expected import Opening, WorkerEvidence
    from pytest_loadtest.metrics.histogram import Histogram
    from pytest_loadtest.metrics.signed import Lateness
    from pytest_loadtest.metrics.silent import Silent
    from pytest_loadtest.metrics.time_slices import OverTime, SlicedStats


CustomValue = Duration | Rate | float | None
"""None: there is nothing to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Messages of the measured phase. Deliveries (received, lost, duplicates, out of order) are summed over subscriptions.

    offered = sent + dropped; sent = acked + failed + unknown; expected deliveries = acked × subscriptions = received_acked + lost.
    ``sent_in_time`` were handed over before the measured phase ended. ``received`` counts first copies. The client sent ``resent`` messages
    again after a lost connection; of the duplicates, ``duplicates_of_resent`` are copies of those messages.
    ``out_of_order`` is None where order is not applicable, ``foreign`` where nobody knows when such messages came: in a stage.
    ``corrupt_heads`` of the corrupt ones had a damaged head, so when they came is not known: at any time of the run, the warm-up included.
    ``out_of_due_order`` counts first copies before which their consumer had one that is due more than a tick later; None where none is
    delayed.
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
    lost: int
    duplicates: int
    out_of_order: int | None
    foreign: int | None
    corrupt: int
    resent: int = 0
    duplicates_of_resent: int = 0
    out_of_due_order: int | None = None
    corrupt_heads: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """One topic or one size bucket.

    :param latencies: as in :class:`Measurements`; the kinds that the catalogue marks ``per_topic`` or ``per_bucket``.
    """

    name: str
    offered: int = 0
    sent: int
    acked: int
    received: int
    received_in_time: int = 0
    lost: int = 0
    bytes_sent: int
    latencies: Mapping[str, Histogram] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Per second of the measured phase (and its drain), one entry a second; times in ns, NaN where nothing was measured.

    ``missing`` is what subscriptions should have of the messages intended in that second, acked × subscriptions, less the copies that came:
    above zero something is lost, below zero something came twice, or came and was never acked. None where nothing subscribes, or
    others send. ``blocked`` is ns before the target's full window, summed over the messages handed over in that second; None where
    nobody sends.
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

    @classmethod
    def padded(
        cls,
        planned: int,
        counted: Sequence[NDArray[np.int64]],
        seconds: NDArray[np.int64],
        latency: NDArray[np.float64],
        subscriptions: int,
    ) -> Series:
        """Bring the columns to one length: the planned seconds, or as long as anything happened.

        :param planned: number of seconds. :param counted: offered, sent, acked, received; ns blocked; acked and copies by the second of
            their intended time: each by second from 0.
        :param seconds: ``(k,)``, seconds that have latencies. :param latency: ``(k, 3)``, their p50, p99 and maximum in ns.
        """
        length = max(planned, int(seconds.max(initial=-1)) + 1, *map(len, counted))
        offered, sent, acked, received, blocked, kept, came = (np.pad(column, (0, length - len(column))) for column in counted)
        times = np.full((length, 3), np.nan)
        times[seconds] = latency
        return cls(
            offered=offered, sent=sent, acked=acked, received=received,
            end_to_end_p50=times[:, 0], end_to_end_p99=times[:, 1], end_to_end_max=times[:, 2],
            missing=kept * subscriptions - came if subscriptions else None, blocked=blocked,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """A backlog built while consumers stood still, then read while producers went on, as the workers' reports showed it twice a second.

    :param size_messages: deliveries that were waiting when consumers resumed, summed over subscriptions. :param size_bytes: the same in
        payload bytes. :param build: ns from the pause until the size was reached.
    :param drain: ns from the resumption until the backlog was down to what ``backlogDrainRatio`` leaves, or until
        ``backlogDrainTimeout``. :param drained: it came down that far in time. Both are None if second copies leave open when it did.
    :param left: deliveries that still waited then; None if there were second copies.
    :param allowed: that may be left of a backlog that counts as drained.
    :param drain_rate: deliveries per second during the drain; None if there were second copies.
    :param publish_during_drain: acked − intended of the messages due meanwhile; None where acknowledgement is not applicable, nothing was
        acked, or it is open when the drain ended.
    :param between: where that is open: ns from the resumption until it may have ended first, and until it had ended for certain, None if
        that was not seen while load went on. :param uncounted: copies that leave it open: second ones, damaged ones, those of another
        topic, and those of messages without acknowledgement.
    """

    size_messages: int
    size_bytes: int
    build: int
    drain: int | None
    drained: bool | None
    left: int | None
    allowed: int
    drain_rate: float | None
    publish_during_drain: Histogram | Lateness | None
    between: tuple[int, int | None] | None = None
    uncounted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A range of messages that a subscription should have got and did not: ``first..last`` inclusive."""

    topic: int
    subscription: int
    stream: int
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """Everything observed in one measured phase.

    :param duration: ns, the measured phase as planned. :param rate: offered msg/s. :param subscriptions: per topic.
    :param latencies: histograms by their attribute in the catalogue of metrics: ``publish``, ``end_to_end``, ``send_delay`` …;
        :mod:`pytest_loadtest.metrics.stats` defines each. A kind without values, or that does not apply to the run, is missing.
    :param blocked: ns, summed over messages. :param intervals: the latencies of each ten seconds, where there is more than one.
    :param over_time: end-to-end latencies by the second; None when nothing was received.
    :param windows: in which objectives must hold; None where none are asked for, or the phase is shorter than one. :param tenths: the first
        and the last of the phase; None where no drift is asked for, or the phase is shorter than ten seconds.
    :param custom: what users' own ``pytest_loadtest_aggregate`` returned, by name.
    :param broadcasts: each message went to 64 subscriptions or more, of one consumer each.
    :param clocks: the error of each other host's times; empty if all workers ran on the controller's host.
    :param opening: how connections came up that were paced, or are all that there is; None of others.
    :param delayed_index: what the broker says of its index of delayed messages; None where nobody asked it.
    :param forgotten: connections of MQTT producers that came up again at a broker which had forgotten their session; None: unknown.
    :param silent: topics and streams of which nothing arrived; None where that is unknown or not applicable.
    :param lost: ranges, at most 10 000 of them; ``counts.lost`` is exact.
    :param checksum: payloads ended in one, so that damage anywhere shows; without it only heads and sizes tell.
    :param backlog: None where none was built and its drain seen.
    """

    duration: int
    rate: float
    subscriptions: int
    counts: Counts
    bytes_sent: int
    blocked: int
    series: Series
    latencies: Mapping[str, Histogram | Lateness] = field(default_factory=dict)
    intervals: tuple[Mapping[str, Histogram], ...] = ()
    over_time: OverTime | None = None
    windows: SlicedStats | None = None
    tenths: SlicedStats | None = None
    topics: tuple[Breakdown, ...] = ()
    buckets: tuple[Breakdown, ...] = ()
    workers: tuple[WorkerEvidence, ...] = ()
    lost: tuple[Lost, ...] = field(default=())
    checksum: bool = False
    backlog: Backlog | None = None
    custom: Mapping[str, CustomValue] = field(default_factory=dict)
    broadcasts: bool = False
    opening: Opening | None = None
    clocks: tuple[HostTime, ...] = ()
    delayed_index: DelayedIndex | None = None
    forgotten: int | None = None
    silent: Silent | None = None

    @property
    def clock_error(self) -> int:
        """Bound on the error of a latency between hosts, ns; 0 if all workers ran on the controller's host.

        Intended times are the controller's, so only the clock that stamps the end of a latency has an error.
        """
        return max((one.error for one in self.clocks), default=0)

    @property
    def throughput(self) -> float:
        """Delivered msg/s, per subscription: deliveries with a copy within the measured phase, moved by the median latency."""
        deliveries = self.counts.received_in_time / max(self.subscriptions, 1)
        return deliveries / (self.duration / 1e9)

    @property
    def publish_rate(self) -> float:
        """Messages handed over in time, per second."""
        return self.counts.sent_in_time / (self.duration / 1e9)

    def never_came(self, kind: str, part: Breakdown | None = None) -> int:
        """Return the number of messages or deliveries that were due and have no latency: they are later than any bound.

        :param kind: its row in the catalogue names what can be missing, see :data:`~pytest_loadtest.metrics.catalogue.NeverCame`.
        :param part: count this bucket or topic only.
        """
        counted = self.counts if part is None else part
        match LATENCIES[kind].never_came:
            case "deliveries":
                due = counted.offered * self.subscriptions
                return due - counted.received if due else 0  # a run that only consumes takes what others sent
            case "acknowledgements":
                return counted.offered - counted.acked
            case "sends":
                return counted.offered - counted.sent
            case "completions":
                return counted.offered - (self.latencies[kind].n if kind in self.latencies else 0)
        return 0


# What a broker says of the memory that its index of delayed messages takes.


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedIndex:
    """The look at which most messages were delayed, over all topics and subscriptions of the run.

    :param bytes: of the index, as the broker counts them. :param messages: in it; a message counts once for each subscription.
    """

    bytes: int
    messages: int

    @property
    def bytes_per_message(self) -> float:
        """Of one message and subscription."""
        return self.bytes / self.messages
