"""The plan of a run and its workers' own counts: the two sides with which samples are compared.

The controller reads both from the run's folder after the load, and gives the plan to Spark's
workers. A worker's process makes its own evidence at the end of a phase.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.metrics.clocks import HostTime, WithinHosts
from pytest_loadtest.metrics.time_slices import INTERVAL, Boundaries, Spans, tenths, windows
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.message.due import Delays
    from pytest_loadtest.metrics.catalogue import Metric
    from pytest_loadtest.metrics.histogram import Histogram
    from pytest_loadtest.metrics.offering import PlannedLoad, PlannedWindow
    from pytest_loadtest.metrics.pauses import Pauses
    from pytest_loadtest.metrics.strays import Stray


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The plan of a run, or of a stage.

    :param start: ns, intended time of the first measured message.
    :param duration: ns.
    :param rate: offered msg/s.
    :param topics: number of topics.
    :param subscriptions: per topic; 0 without consumers.
    :param outputs: the deliveries due for each message on each subscription: above 1 only through a
        service.
    :param selective: the service chooses which messages have an output: none is known to be lost.
    :param tapped: messages are also recorded on their way to a service.
    :param ordered: order is judged.
    :param publish_acks: an acknowledgement means that the target has the message.
    :param buckets: names of the size buckets.
    :param broadcasts: each message goes to 64 subscriptions or more, of one consumer each: samples
        are broadcast rows, and completion and spread are measured.
    :param delays: the due times of delayed messages; None: messages are due at their intended
        times.
    :param window: length of a window, ns, whole seconds; None: no windows are measured.
    :param drift: tenths are measured.
    :param bounds_gaps: an objective bounds ``deliveryGap``.
    :param bounds_throughput: an objective of the profile bounds ``throughput``.
    :param stream_hosts: int64 ``(P,)``, number of the host of each stream's producer; the column
        ``host`` of received rows has that of the consumer. None if all workers ran on the
        controller's host.
    :param workers: names of the workers, whose numbers the column ``worker`` of rows has; empty:
        nothing is measured by worker.
    :param pauses: those of each worker, by its number; empty: unknown.
    :param stream_workers: int64 ``(P,)``, number of the worker of each stream's producer, -1 for
        none; None without pauses.
    :param within_hosts: ``complete`` of :class:`~pytest_loadtest.metrics.clocks.WithinHosts`.
    :ivar spans: ``windows`` and ``tenths``, if they are measured and the phase has room for them.
    :ivar slice_cut: the phase cut at those; None without any.
    :ivar cut: the phase cut at its intervals too, for latencies.
    :param planned: the requested load, with which the offered one is compared; None if it is
        unknown, and for a stage.
    :ivar planned_windows: its windows; empty without it.
    :param stream_topics: int64 ``(P,)``, topic of each stream.
    :param first: int64 ``(P,)``, first measured sequence of each stream.
    :param end: int64 ``(P,)``, one past the last.
    """

    start: int
    duration: int
    rate: float
    topics: int
    subscriptions: int
    ordered: bool
    publish_acks: bool
    buckets: tuple[str, ...]
    stream_topics: NDArray[np.int64]
    first: NDArray[np.int64]
    end: NDArray[np.int64]
    broadcasts: bool = False
    delays: Delays | None = None
    window: int | None = None
    drift: bool = False
    bounds_gaps: bool = False
    bounds_throughput: bool = False
    stream_hosts: NDArray[np.int64] | None = None
    within_hosts: bool = False
    workers: tuple[str, ...] = ()
    pauses: tuple[Pauses, ...] = ()
    stream_workers: NDArray[np.int64] | None = None
    planned: PlannedLoad | None = None
    outputs: int = 1
    selective: bool = False
    tapped: bool = False
    planned_windows: tuple[PlannedWindow, ...] = field(init=False, repr=False, compare=False)
    spans: Mapping[str, Spans] = field(init=False, repr=False, compare=False)
    slice_cut: Boundaries | None = field(init=False, repr=False, compare=False)
    cut: Boundaries | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the cuts of the phase once; they are pickled for Spark's workers."""
        spans = {}
        edges = []
        if self.window is not None and (parts := windows(self.duration, self.window)):
            spans["windows"] = parts
            edges.append(parts.start // SECOND)
        if self.drift and (parts := tenths(self.duration)):
            spans["tenths"] = parts
            # The first tenth's end is a cut of its own: unlike a window's end, no other part begins
            # there.
            edges += [parts.start // SECOND, parts.end[:1] // SECOND]
        slice_cut = Boundaries(*edges) if spans else None
        cut = None
        if spans or self.intervals:
            cut = Boundaries(*edges, self.interval_spans.start // SECOND)
        planned_windows = self.planned.windows(self.duration) if self.planned else ()

        # The dataclass is frozen, and these fields are derived from the others.
        object.__setattr__(self, "planned_windows", tuple(planned_windows))
        object.__setattr__(self, "spans", spans)
        object.__setattr__(self, "slice_cut", slice_cut)
        object.__setattr__(self, "cut", cut)

    @property
    def fan_out(self) -> int:
        """The number of deliveries due for each message, over all subscriptions."""
        return self.subscriptions * self.outputs

    @property
    def known_fan_out(self) -> int:
        """The number of these deliveries; 0 if it is unknown because a service chooses."""
        return 0 if self.selective else self.fan_out

    def slices(self, metric: Metric) -> bool:
        """Return whether the latencies of a metric are counted for each piece of the phase."""
        if self.cut is None:
            return False
        return metric.per_interval or (metric.per_window and bool(self.spans))

    def within_host(self, copies: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Return a mask of the copies whose producer and consumer are on one host.

        :param copies: ``stream`` and ``host``.
        """
        assert self.stream_hosts is not None
        # The sender's host follows from the plan, so samples need no column for it.
        mask: NDArray[np.bool_] = self.stream_hosts[copies["stream"]] == copies["host"]
        return mask

    def count_within_hosts(self, count: Callable[[], int]) -> WithinHosts | None:
        """Return the deliveries within one host; None if all workers ran on the controller's host.

        :param count: counts them.
        """
        if self.stream_hosts is None:
            return None
        return WithinHosts(deliveries=count(), complete=self.within_hosts)

    def lateness(self, copies: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
        """Return received − due of each copy, ns; at least 0 for a message that is not delayed.

        :param copies: int64 ``stream``, ``seq``, ``intended``, ``received``.
        """
        intended = copies["intended"]
        late: NDArray[np.int64] = copies["received"] - intended
        if self.delays is None:
            return late
        due = self.delays.due(copies["stream"], copies["seq"], intended)
        # What is not delayed can be early only by the clock of its sender: the target waits for
        # nothing.
        return np.where(due == intended, np.maximum(late, 0), copies["received"] - due)

    @property
    def explains_gaps(self) -> bool:
        """True if delivery gaps are measured without the generator's own delays, too.

        Each run has some pauses of milliseconds, and the second measurement costs as much as the
        first: without a bound, it is made only after a stall.
        """
        return self._explains(is_bounded=self.bounds_gaps)

    @property
    def explains_throughput(self) -> bool:
        """True if deliveries in time are counted without the generator's own delays, too: as for
        gaps, since each profile has a bound of 95%.
        """
        return self._explains(is_bounded=self.bounds_throughput)

    def _explains(self, *, is_bounded: bool) -> bool:
        if is_bounded:
            return bool(self.pauses)
        return any(pauses.stalled for pauses in self.pauses)

    @property
    def intervals(self) -> int:
        """The number of ten-second intervals in the measured phase; 0 if it would be one, which is
        the whole phase.
        """
        number = -(-self.duration // INTERVAL)
        return number if number > 1 else 0

    @property
    def interval_spans(self) -> Spans:
        """The intervals."""
        start = np.arange(self.intervals) * INTERVAL
        return Spans(start, np.append(start[1:], self.duration)[: self.intervals])

    def seconds(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return whole seconds since the start, at least 0."""
        # Times before the start, as by an error of a clock, belong to the first second.
        return np.maximum((times - self.start) // SECOND, 0)

    def topic_names(self) -> tuple[str, ...]:
        """Return the names of topics in a breakdown."""
        return tuple(f"topic {i}" for i in range(self.topics))


@record
class Recorded:
    """The workers' own counts and evidence.

    :param clocks: the error of each other host's times; empty if all workers ran on the
        controller's host.
    :param foreign: messages of other runs; None: unknown, as in a stage.
    :param corrupt: damaged heads.
    :param latencies: the times until connections were up (``connect``), subscriptions confirmed
        (``subscribe``) and lost connections established again (``reconnect``).
    :param opening: the opening of connections, if it was paced or the run has nothing else.
    :param strays: the first foreign and corrupt messages.
    """

    foreign: int | None = 0
    corrupt: int = 0
    workers: tuple[WorkerEvidence, ...] = ()
    latencies: Mapping[str, Histogram] = field(default_factory=dict)
    opening: Opening | None = None
    clocks: tuple[HostTime, ...] = ()
    strays: tuple[Stray, ...] = ()


@record
class WorkerEvidence:
    """Load of one worker's process in the measured phase: the evidence for *generator-limited*.

    :param cpu: CPU time over wall time; 1.0 is one core.
    :param stalled: ns by which its loop woke up late, summed over wake-ups later than 50 ms.
    :param longest_stall: ns.
    :param gc: ns in garbage collection pauses.
    :param latencies: the kinds that the catalogue marks ``per_worker``, of the messages that it
        sent, or took.
    :param seconds: int64 ``(k, 4)``, in each second of the phase: ns of CPU time, ns stalled, the
        longest stall that touched it, ns of GC.
    """

    worker: str
    cpu: float
    stalled: int
    longest_stall: int
    gc: int
    latencies: Mapping[str, Histogram] = field(default_factory=dict)
    seconds: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros((0, 4), np.int64), compare=False, repr=False
    )

    def during(self, start: int, duration: int, phase: int) -> WorkerEvidence:
        """Return the evidence of one time slice; its first and last second count in proportion.

        :param start: ns after the phase's start.
        :param duration: ns.
        :param phase: the phase's length, ns: its last second may be short.
        """
        # Sums are divided in proportion to the part of each second in the slice. The longest stall
        # is not: it counts in full if its second touches the slice.
        # Of a phase of 2.5 s the slice from 0.5 s to 2.5 s has the shares [0.5, 1, 1].
        edges = np.minimum(np.arange(len(self.seconds) + 1) * SECOND, phase)
        overlap = np.minimum(edges[1:], start + duration) - np.maximum(edges[:-1], start)
        share = np.maximum(overlap, 0) / np.maximum(np.diff(edges), 1)
        cpu, stalled, _, gc = (float((column * share).sum()) for column in self.seconds.T)
        longest = int(self.seconds[share > 0, 2].max(initial=0))
        return replace(
            self,
            cpu=cpu / max(duration, 1),
            stalled=round(stalled),
            longest_stall=longest,
            gc=round(gc),
            seconds=self.seconds[:0],
        )


def with_latencies(
    workers: Sequence[WorkerEvidence], latencies: Mapping[str, Mapping[str, Histogram]]
) -> tuple[WorkerEvidence, ...]:
    """Return the evidence with the latencies of each worker.

    :param latencies: by worker and kind.
    """
    return tuple(replace(worker, latencies=latencies.get(worker.worker, {})) for worker in workers)


@record
class Opening:
    """The opening of all workers' connections before the load.

    :param alone: the run has connections and no messages.
    :param connections: their number; all of them came up.
    :param rate: requested connections per second; None: as fast as possible.
    :param took: ns from the first one's due time until the last was up.
    :param busiest: the worker that used most CPU for it.
    :param cpu: the cores that it used.
    :param begun_late: ns, p99 of begun − intended, less the time in which the target had no room
        for another; None without a rate.
    :param in_time: connections that came up in the planned time, shifted by the median latency;
        None without a rate.
    """

    alone: bool
    connections: int
    rate: float | None
    took: int
    busiest: str
    cpu: float
    begun_late: int | None
    in_time: int | None

    @property
    def achieved(self) -> float:
        """Connections per second, at most the requested rate."""
        # n evenly paced connections fill n intervals; the last one comes up before its interval
        # ends.
        planned = 0.0 if self.rate is None else self.connections / self.rate
        return self.connections / max(self.took / 1e9, planned)
