"""The section ``measurements`` of a results document or of a stage.

There is one dataclass for each object of the JSON text.

The text below a field is its description in ``results.schema.json``. Fields with a default are
missing in older results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from pytest_loadtest.metrics.catalogue import COUNTS, INBOUND, LATENCIES
from pytest_loadtest.metrics.full_windows import FullWindows  # noqa: TC001 - pydantic looks it up
from pytest_loadtest.metrics.measurements import Lost  # noqa: TC001 - pydantic looks it up
from pytest_loadtest.metrics.silent import Silent  # noqa: TC001 - pydantic looks it up
from pytest_loadtest.metrics.strays import Stray  # noqa: TC001 - pydantic looks it up
from pytest_loadtest.values.fields import Count, Number, Positive  # noqa: TC001 - as above
from pytest_loadtest.values.records import record


def only_keys(known: Collection[str]) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Return a validator that rejects mappings with other keys than these."""

    def check(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        if unknown := [key for key in mapping if key not in known]:
            raise ValueError(f"unknown keys: {', '.join(unknown)}")
        return mapping

    return check


_LATENCIES = AfterValidator(only_keys({metric.key for metric in LATENCIES.values()}))


@record
class PartLatency:
    """Latencies of one kind in a part of the run, without their histogram."""

    samples: Count
    """number of values"""
    never_came: Count
    """number of messages that were due and never came; percentiles rank over them too, as later
    than any"""
    minimum: int
    """ns, exact"""
    maximum: int | None
    """ns, exact; null where a message never came that no bound of the profile allows, or where some
    values are unknown"""
    largest: int | None = None
    """ns, exact: the largest value of the messages that came"""
    mean: Number
    """ns, exact"""
    total: int
    """ns, sum of all values"""
    negative: Count
    """values below zero, counted as 0: a clock error; then no percentile is given"""
    percentiles: Mapping[str, int | None]
    """ns, nearest rank, at most 0.05 % off; null where fewer than ten samples lie beyond it, or it
    may be among unknown values"""

    @property
    def largest_came(self) -> int:
        """The largest value of the messages that came, ns."""
        largest = self.maximum if self.largest is None else self.largest
        assert largest is not None, "older results have a maximum"
        return largest

    @property
    def clocks_disagree(self) -> bool:
        """True if no statistic is known: values are below zero by more than the clocks' error."""
        half_came = 2 * self.samples >= self.samples + self.never_came
        return self.negative > 0 and self.percentiles["p50"] is None and half_came


@record
class LatencySection(PartLatency):
    """Latencies of one kind."""

    histogram: str | None
    """HdrHistogram, compressed V2, base64; lowest value 1 ns, three significant digits; null for
    topics if there are more than 100"""


@record
class DelayedIndexSection:
    """The broker's index of delayed messages."""

    bytes: Count
    """as the broker counts them"""
    messages: Positive
    """delayed messages, each counted once for each subscription"""
    bytes_per_message: Annotated[Number, Field(json_schema_extra={"minimum": 0})]
    """bytes / messages"""


@record
class WithinHostsSection:
    """Deliveries whose producer and consumer are on one host."""

    deliveries: Count
    """their number"""
    share: Number | None
    """of the deliveries that were received; null: none was"""
    complete: bool
    """by the plan all deliveries are: latencies are read on one clock each, and have no error of a
    relation between clocks"""


@record
class OpeningSection:
    """Opening of connections before load."""

    alone: bool
    """the run has connections and no messages"""
    connections: Count
    """opened before load; all of them came up"""
    rate: Number | None
    """connections per second that were requested; null: as fast as possible"""
    achieved: Number
    """connections per second that came up"""
    took: Count
    """ns from the instant of the first until the last was up"""
    busiest: str
    """the worker that used most of a core in that time"""
    cpu: Number
    """cores that this worker used"""
    begun_late: int | None
    """ns, p99 of begun − intended, less the time in which the target left no room for one more;
    null without a rate"""
    in_time: Count | None
    """connections that came up within the requested time, which is moved by the median latency;
    null without a rate"""


@record
class SeriesSection:
    """Values of each second."""

    offered: tuple[Count, ...]
    """messages"""
    sent: tuple[Count, ...]
    """messages"""
    acked: tuple[Count, ...]
    """messages"""
    received: tuple[Count, ...]
    """copies"""
    end_to_end_p50: tuple[Number | None, ...]
    """ns"""
    end_to_end_p99: tuple[Number | None, ...]
    """ns"""
    end_to_end_max: tuple[Number | None, ...]
    """ns"""
    missing: tuple[int, ...] | None = None
    """by the second of the intended time: deliveries due of acked messages less copies that came;
    positive: lost, negative: duplicates, or copies of messages that were never acknowledged; null
    where it is unknown"""
    blocked: tuple[Count, ...] | None = None
    """ns of waiting for the target's full window, summed over the messages handed over in that
    second"""
    receive_lag_max: tuple[Number | None, ...] | None = None
    """ns, of the messages intended in that second; null where it is unknown"""


@record
class OverTimeSection:
    """End-to-end latencies by blocks of the measured phase."""

    block: Positive
    """ns, length of a block: whole seconds; the last may be shorter"""
    end_to_end: tuple[str | None, ...]
    """the messages intended in each block: HdrHistogram, compressed V2, base64, two significant
    digits, ns; null where none came"""


@record
class BreakdownEntry:
    """One topic or one size bucket."""

    name: str
    """topic or size bucket"""
    offered: Count
    """messages due"""
    sent: Count
    """messages"""
    acked: Count
    """messages"""
    received: Count
    """first copies"""
    received_in_time: Count
    """first copies within the measured phase, moved by the median latency"""
    lost: Count | None
    """deliveries due (acked × subscriptions × outputs) that did not come; null if a service
    chooses"""
    bytes_sent: Count
    """bytes"""
    end_to_end: LatencySection | None
    """from the intended time to the receipt"""
    publish: LatencySection | None
    """from the intended time to the acknowledgement"""


@record
class WorkerEntry:
    """Evidence about one worker's own process."""

    worker: str
    """name"""
    cpu: Number
    """cores used"""
    stalled: Count
    """ns that its loop woke up late, in sum"""
    longest_stall: Count
    """ns"""
    gc: Count
    """ns in garbage collection pauses"""
    latencies: Annotated[Mapping[str, PartLatency | None], _LATENCIES] = field(default_factory=dict)
    """of the messages that it sent, or took: percentiles however few they rest on"""


@record
class CustomEntry:
    """One metric of the user's own."""

    value: Number | None
    """null where there was nothing to report"""
    unit: Literal["ns", "msg/s", "number"]
    """of the value"""
    shown: str
    """the value as text"""


@record
class MeasurementsSection:
    """Everything that was measured in a run or a stage."""

    duration: Count
    """ns, measured phase as planned"""
    rate: Number
    """offered msg/s"""
    subscriptions: Count
    """per topic"""
    throughput: Number | None
    """delivered msg/s per subscription; null when nothing was received"""
    publish_rate: Number
    """msg/s handed over in time"""
    bytes_sent: Count
    """payload bytes"""
    blocked: Count
    """ns of waiting for the target's full window, summed over messages: caused by the target"""
    blocked_share: Number
    """share of the whole send delay, 0 to 1"""
    counts: Annotated[
        Mapping[str, Count | None], AfterValidator(only_keys({row.key for row in COUNTS}))
    ]
    """messages of the measured phase"""
    latencies: Annotated[Mapping[str, LatencySection | None], _LATENCIES]
    """all from the intended send time; ownSendDelay is the send delay less the time blocked; kinds
    that only some runs have are missing in others"""
    delayed_index: DelayedIndexSection | None = None
    """the broker's index of delayed messages when most were delayed, over all topics and
    subscriptions; null where it was not read, or no message was delayed"""
    opening: OpeningSection | None = None
    """how connections came up before load; null unless they were paced, or the run has no
    messages"""
    silent: Silent | None = None
    """subscriptions of topics (pairs), and streams, that had messages due and of which nothing
    arrived; null where that is unknown: nothing subscribes and acknowledgement is not applicable,
    or the messages come from others"""
    full_windows: FullWindows | None = None
    """messages that were dropped because in-flight windows were full; null where there were none"""
    clock_error: Count | None = None
    """ns, bound on the error of a latency between hosts by their clocks; null in older results"""
    within_hosts: WithinHostsSection | None = None
    """deliveries within one host; null if all workers ran on the controller's host, or the run has
    no producers or no consumers"""
    series: SeriesSection
    """one entry per second of the measured phase and its drain; null where nothing was measured"""
    over_time: OverTimeSection | None = None
    """latencies by blocks of the measured phase, at most 1000; null in a stage, and when nothing
    was received"""
    intervals: tuple[Annotated[Mapping[str, PartLatency | None], _LATENCIES], ...]
    """latencies of each ten seconds in which messages were due, for a line over time: percentiles
    however few messages they rest on"""
    topics: tuple[BreakdownEntry, ...]
    """per topic"""
    buckets: tuple[BreakdownEntry, ...]
    """per size bucket"""
    workers: tuple[WorkerEntry, ...]
    """evidence for or against generator-limited"""
    custom: Mapping[str, CustomEntry] = field(default_factory=dict)
    """what pytest_loadtest_aggregate returned, by name; empty where nothing implements the hook,
    and in stages"""
    lost: tuple[Lost, ...]
    """at most 10 000 ranges; counts.lost is exact"""
    answered: Count | None = None
    """deliveries of acked messages that came, if a service chooses which messages have an output;
    otherwise null"""
    outputs: Count = 1
    """deliveries due for each message on each subscription: above 1 only through a service"""
    strays: tuple[Stray, ...] = ()
    """the first three foreign and the first three corrupt messages of the run, but for those that
    came at the wrong subscription; empty in stages"""

    @property
    def fan_out(self) -> int:
        """The number of deliveries due for each message."""
        return self.subscriptions * self.outputs

    @property
    def others_send(self) -> bool:
        """True if the run only consumes, so that nothing is known of what should have come."""
        return self.subscriptions > 0 and self.counts["duplicates"] is None

    def applicable_count(self, key: str) -> int | None:
        """Return a count; None if it is unknown, or counts deliveries of a run without consumers.

        Older results lack some counts.
        """
        if key in INBOUND and not self.subscriptions:
            return None
        return self.counts.get(key)

    def count(self, key: str) -> int:
        """Return a count that every run has: one that is not optional in the catalogue."""
        value = self.counts[key]
        assert value is not None, key
        return value
