"""What a run was asked to do and what its workers counted themselves: the two sides that samples are measured against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.metrics.time_slices import INTERVAL, Boundaries, Spans, tenths, windows
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.message.due import Delays
    from pytest_loadtest.metrics.catalogue import Metric
    from pytest_loadtest.metrics.clocks import HostTime
    from pytest_loadtest.metrics.histogram import Histogram


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What was asked for: the plan's side of the accounting.

    :param start: ns, intended time of the first measured message. :param duration: ns. :param rate: offered msg/s.
    :param topics: number of topics. :param subscriptions: per topic; 0 when nothing consumes. :param ordered: whether order is judged.
    :param publish_acks: whether an acknowledgement means that the target has the message.
    :param buckets: names of the size buckets.
    :param broadcasts: each message goes to 64 subscriptions or more, of one consumer each: samples are broadcast rows, and how long a
        message takes to reach all is measured.
    :param delays: when messages are due that a consumer is to get later than they leave; None: they are due when they are intended.
    :param window: ns, whole seconds: each window of the phase is measured apart; None: none is. :param drift: its first and last tenth are.
    :ivar spans: ``windows`` and ``tenths``, if they are measured and the phase has room for them. :ivar slice_cut: the phase cut at those;
        None without any. :ivar cut: the phase cut at its intervals too, for latencies.
    :param stream_topics: int64 ``(P,)``, topic of each stream.
    :param first: int64 ``(P,)``, first measured sequence of each stream. :param end: int64 ``(P,)``, one past the last.
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
    spans: Mapping[str, Spans] = field(init=False, repr=False, compare=False)
    slice_cut: Boundaries | None = field(init=False, repr=False, compare=False)
    cut: Boundaries | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Where the phase is cut: made once, and travels to Spark's workers as it is."""
        found = {
            "windows": None if self.window is None else windows(self.duration, self.window),
            "tenths": tenths(self.duration) if self.drift else None,
        }
        spans = {name: one for name, one in found.items() if one is not None}
        edges = [one.start // SECOND for one in spans.values()]
        edges += [spans["tenths"].end[:1] // SECOND] if "tenths" in spans else []  # where nothing else need begin
        object.__setattr__(self, "spans", spans)
        object.__setattr__(self, "slice_cut", Boundaries(*edges) if spans else None)
        object.__setattr__(self, "cut", Boundaries(*edges, self.interval_spans.start // SECOND) if spans or self.intervals else None)

    def slices(self, metric: Metric) -> bool:
        """Return whether the latencies of this metric are counted for each piece of the cut phase."""
        return self.cut is not None and (metric.per_interval or (metric.per_window and bool(self.spans)))

    def lateness(self, copies: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
        """received − due of each of these copies, ns. :param copies: int64 ``stream``, ``seq``, ``intended``, ``received``."""
        due = copies["intended"] if self.delays is None else self.delays.due(copies["stream"], copies["seq"], copies["intended"])
        late: NDArray[np.int64] = copies["received"] - due
        return late

    @property
    def intervals(self) -> int:
        """Time slices of ten seconds in the measured phase; a single one is the whole and not told apart, so it counts as none."""
        number = -(-self.duration // INTERVAL)
        return number if number > 1 else 0

    @property
    def interval_spans(self) -> Spans:
        """Where they lie."""
        start = np.arange(self.intervals) * INTERVAL
        return Spans(start, np.append(start[1:], self.duration)[: self.intervals])

    def seconds(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Whole seconds since the start, from 0."""
        whole: NDArray[np.int64] = np.maximum((times - self.start) // SECOND, 0)
        return whole

    def topic_names(self) -> tuple[str, ...]:
        """How topics are called in a breakdown: by index."""
        return tuple(f"topic {i}" for i in range(self.topics))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the workers counted themselves: foreign messages (None: unknown, as in a stage), damaged heads, and how they fared.

    :param latencies: how long connections took to come up (``connect``), and subscriptions to be confirmed (``subscribe``).
    :param opening: of connections that were paced, or are all that there is; None of others.
    :param clocks: the error of each other host's times; empty if all workers ran on the controller's host.
    """

    foreign: int | None = 0
    corrupt: int = 0
    workers: tuple[WorkerEvidence, ...] = ()
    latencies: Mapping[str, Histogram] = field(default_factory=dict)
    opening: Opening | None = None
    clocks: tuple[HostTime, ...] = ()


# How the workers' own processes fared while they measured, in all and by the second.


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEvidence:
    """How one worker's own process fared while it measured: the evidence for *generator-limited*.

    :param cpu: its CPU time over wall time; 1.0 is one core.
    :param stalled: ns that its loop woke up late, summed over wake-ups later than 50 ms. :param longest_stall: ns.
    :param gc: ns in garbage collection pauses.
    :param seconds: int64 ``(k, 4)``, in each second of the phase: ns of CPU time, ns stalled, the longest stall that touched it, ns of GC.
    """

    worker: str
    cpu: float
    stalled: int
    longest_stall: int
    gc: int
    seconds: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 4), np.int64), compare=False, repr=False)

    def during(self, start: int, duration: int, phase: int) -> WorkerEvidence:
        """The same of one stretch of the phase, of whose first and last second it takes its share.

        :param start: ns after the phase's start. :param duration: ns. :param phase: ns, its length: the last second may be short.
        """
        edges = np.minimum(np.arange(len(self.seconds) + 1) * SECOND, phase)
        overlap = np.minimum(edges[1:], start + duration) - np.maximum(edges[:-1], start)
        share = np.maximum(overlap, 0) / np.maximum(np.diff(edges), 1)
        cpu, stalled, _, gc = (float((column * share).sum()) for column in self.seconds.T)
        longest = int(self.seconds[share > 0, 2].max(initial=0))
        return replace(
            self, cpu=cpu / max(duration, 1), stalled=round(stalled), longest_stall=longest, gc=round(gc), seconds=self.seconds[:0]
        )


# How the connections of a run came up before its load, where they were paced or are all that there is.


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Of all workers together.

    :param alone: the run has connections and no messages. :param connections: that were opened; all of them came up.
    :param rate: asked, per second; None: as fast as they came. :param took: ns from the instant of the first until the last was up.
    :param busiest: the worker that used most of a core meanwhile. :param cpu: cores, how much that was.
    :param begun_late: ns, p99 of begun − intended, less the time in which the target left no room for one more; None without a rate.
    :param in_time: connections that came up while they were asked for, a span that is moved by the median latency; None without a rate.
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
        """Connections per second. An even train of ``n`` lasts ``n / rate``, at whatever moment of its last interval the last one comes."""
        planned = 0.0 if self.rate is None else self.connections / self.rate
        return self.connections / max(self.took / 1e9, planned)
