"""The needs of the aggregation after the load: time, memory and disk, on the controller's host.

Every number that Spark returns belongs to the whole run, or to a topic, a size bucket, a worker, a
second, an interval of ten seconds, a window or a stage. Latencies by second, interval and window
are collected in pieces. The others are collected at once, because they are few, except those of
many topics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pytest_loadtest.metrics.sizes import PACKED_BYTES, SECOND_BUCKETS, TASK_ROWS, filled
from pytest_loadtest.metrics.time_slices import INTERVAL
from pytest_loadtest.values.quantities import SECOND, format_size
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from pytest_loadtest.plan.phases import StageSpan
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.schedule.topology import Topology

RETURNED_AT_ONCE: Final = 1 << 30
"""Bytes that Spark returns in one action, unless ``spark.driver.maxResultSize`` is set."""
_MIB: Final = 1 << 20

# CPU of Spark's workers for a row, sent or received, s: measured 1.0 to 1.3 µs with the pieces of
# ten seconds that every run has, 1.7 with windows of a second (decision 021).
_ROW = 1.3e-6
_ROW_OF_WINDOWS = 1.7e-6
# Of the smallest run, s: Spark compiles its plans.
_LEAST_SECONDS = 5.0
# Of a topic in the controller. Measured with 100 000 topics: 31 s and 430 MB, mostly for its two
# histograms and its entry in the report.
_TOPIC_SECONDS = 3.1e-4
_TOPIC_BYTES = 4300
# For each HDR bucket of a topic's histograms, in the tables and in the measurements.
_BUCKET_BYTES = 56
# Of an objective in a window: judged, and its entry in the finding. Measured with 8 640 windows of
# 10 000 messages: 124 µs.
_WINDOW_SECONDS = 1.5e-4
_WINDOW_BYTES = 400
# Of a kind of latencies in an interval of ten seconds, in the report. Measured with ten windows of
# 10 000 messages, which are added up: 2.5 ms and 820 bytes, of the report and its text.
_INTERVAL_SECONDS = 2.5e-3
_INTERVAL_BYTES = 1000
# The controller before it aggregates; tables in the making, of which it has 96 MiB packed at a
# time. Measured with an hour of windows of a second at 10 000 msg/s, some 80 MiB by estimate: a
# peak of 0.46 GiB in all.
_CONTROLLER = 250 * _MIB
_IN_MAKING = 400 * _MIB
# Spark's Java process, whose heap is at most 2 GiB (``spark.driver.memory``), and a Python worker
# of its: of a small run, and what is added by a row until a task has all that it may hold. Measured
# with 0.8 million rows: 0.50 and 0.35 GiB; with 72 million: 1.18 and 0.58 GiB.
_JAVA = 500 * _MIB
_JAVA_ROW = 40
_JAVA_MOST = 1400 * _MIB
_WORKER = 350 * _MIB
_WORKER_ROW = 20
_WORKER_MOST = 250 * _MIB
# Copies of the packed tables on disk: shuffled, kept by Spark until they are collected, and kept by
# the controller.
_COPIES = 3


@record
class Aggregation:
    """The needs of one workload's aggregation.

    :param parallel: CPU time of Spark's workers, which share the machine's cores, s.
    :param serial: of the controller, s.
    :param controller: peak memory of the controller, bytes. :param java: of Spark's Java process.
    :param worker: of each Python worker.
    :param tasks: into which the samples are cut; a worker has one at a time.
    :param disk: bytes, for the time of the aggregation.
    :param at_once: packed bytes of the tables that are collected at once.
    """

    parallel: float
    serial: float
    controller: int
    java: int
    worker: int
    tasks: int
    disk: int
    at_once: int

    def duration(self, cores: float) -> int:
        """Return the time that it takes, ns."""
        return round((self.parallel / cores + self.serial) * SECOND)

    def workers(self, cores: float) -> int:
        """Return the number of Python workers at a time."""
        return max(min(round(cores), self.tasks), 1)

    def memory(self, cores: float, *, spark_here: bool) -> int:
        """Return the peak memory on the controller's host."""
        if not spark_here:
            return self.controller
        return self.controller + self.java + self.worker * self.workers(cores)


def aggregation_of(
    profile: Profile,
    topology: Topology,
    messages: float,
    duration: int,
    stages: Sequence[StageSpan],
) -> Aggregation:
    """Estimate the needs.

    :param messages: of the measured phase, whose length is ``duration``, ns.
    """
    deliveries = messages * topology.fan_out
    rows = messages * (1 + topology.reads)
    # Parts of the run with windows of their own: window, duration and messages.
    parts = [(profile.slo.window, duration, messages)]
    for stage in stages:
        parts.append((stage.slo.window, stage.duration, stage.rate * stage.duration / SECOND))

    # Latencies of sent messages are two send delays and, with acknowledgements, one more; those of
    # received ones are end-to-end and receive lag.
    sent_kinds = 2 + profile.publish_acks
    received_kinds = 2 if topology.subscriptions else 0
    cells = filled(duration / SECOND, deliveries, SECOND_BUCKETS)
    judged = 0.0
    row = _ROW
    for window, length, due in parts:
        pieces = length / min(window or INTERVAL, INTERVAL)
        cells += sent_kinds * filled(pieces, due)
        cells += received_kinds * filled(pieces, due * topology.fan_out)
        if window:
            judged += length / window * len(profile.objectives)
            row = _ROW_OF_WINDOWS

    packed = cells * PACKED_BYTES
    intervals = duration / INTERVAL * 4
    acknowledged = messages if profile.publish_acks else 0
    of_topics = filled(topology.topics, acknowledged) + filled(topology.topics, deliveries)
    serial = (
        _LEAST_SECONDS
        + topology.topics * _TOPIC_SECONDS
        + judged * _WINDOW_SECONDS
        + intervals * _INTERVAL_SECONDS
    )
    controller = (
        _CONTROLLER
        + min(packed * 4, _IN_MAKING)
        + topology.topics * _TOPIC_BYTES
        + of_topics * _BUCKET_BYTES
        + judged * _WINDOW_BYTES
        + intervals * _INTERVAL_BYTES
    )
    return Aggregation(
        # Copies are read once more to compare them with what the tap has received.
        parallel=rows * row * (1 + bool(stages) + topology.tapped),
        serial=serial,
        controller=int(controller),
        java=_JAVA + int(min(rows * _JAVA_ROW, _JAVA_MOST)),
        worker=_WORKER + int(min(rows * _WORKER_ROW, _WORKER_MOST)),
        tasks=math.ceil(rows / TASK_ROWS),
        disk=int(packed * _COPIES),
        at_once=int(of_topics * PACKED_BYTES),
    )


def aggregation_reasons(
    needs: Sequence[Aggregation], cores: float, memory: int, *, spark_here: bool
) -> Iterator[str]:
    """Yield the reasons why the controller's host cannot aggregate workloads, one after another.

    :param cores: and :param memory: of this host. :param spark_here: Spark runs on it.
    """
    needed = max(need.memory(cores, spark_here=spark_here) for need in needs)
    if needed > memory:
        remedy = "write fewer topics, a longer window in slo, or a shorter testDuration"
        if spark_here:
            remedy += ", or let Spark run elsewhere (--load-spark-master, --load-spark-remote)"
        yield (
            f"the aggregation after the load needs {format_size(needed)},"
            f" this machine has {format_size(memory)}: {remedy}"
        )
    at_once = max(need.at_once for need in needs)
    if at_once > RETURNED_AT_ONCE:
        yield (
            f"the histograms of all topics are {format_size(at_once)},"
            f" Spark returns at most {format_size(RETURNED_AT_ONCE)} at once:"
            " write fewer topics or a shorter testDuration"
        )
