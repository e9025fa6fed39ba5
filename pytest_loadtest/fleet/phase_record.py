"""One phase of one workload at the controller: what was planned, what was changed, and what the
workers report.

Pure: the :class:`~pytest_loadtest.fleet.workload_run.WorkloadRun` passes changes and reports, reads
the clocks, and writes the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.errors import NoData
from pytest_loadtest.message.streams import stream_column
from pytest_loadtest.metrics.offering import PlannedLoad, PlannedSizes, PlannedStage, PlannedStep
from pytest_loadtest.pipeline.run_file import RunStage
from pytest_loadtest.schedule.due_messages import DueMessages

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.fleet.messages import PhaseFinished
    from pytest_loadtest.message.payloads import PayloadPool
    from pytest_loadtest.message.size_mix import SizeMix
    from pytest_loadtest.plan.phases import Phase, StageSpan
    from pytest_loadtest.plan.plan import Plan
    from pytest_loadtest.schedule.changes import Aborted, Change
    from pytest_loadtest.schedule.pacing import StreamCounts


@dataclass(kw_only=True)
class PhaseRecord:
    """One phase that has begun.

    :param phase: the phase, with the sequences used before it. :param start: ns of the run's clock.
    :param pool: returns the workload's payloads, which are made on use.
    :param changes: the changes sent to the workers.
    :param ends: the number of messages that each stream has sent at the end of the phase; None
        before.
    :param marks: the ``marks`` of each worker's
        :class:`~pytest_loadtest.fleet.messages.PhaseFinished`.
    :param spans: its stages.
    """

    plan: Plan
    phase: Phase
    start: int
    pool: Callable[[], PayloadPool]
    changes: list[Change] = field(default_factory=list)
    ends: StreamCounts | None = None
    marks: Sequence[tuple[tuple[int, NDArray[np.int64]], ...]] = ()
    spans: tuple[StageSpan, ...] = ()

    @property
    def aborted(self) -> Aborted | None:
        """The reason why the profile's ``abort`` section ended the current phase; None if it did
        not.
        """
        return next((change.aborted for change in self.changes if change.aborted), None)

    def finish(
        self, reports: Sequence[PhaseFinished], spans: tuple[StageSpan, ...] = ()
    ) -> StreamCounts:
        """Take the workers' reports, and return the number of messages that each stream has sent.

        :param spans: the stages found by a watch.
        :raises NoData: the workers did not send what was planned.
        """
        ends = self._reached(self._column([report.ends for report in reports]))
        self.ends = ends
        self.spans = tuple(spans_until(self.duration, spans or self.spans))
        self.marks = [report.marks for report in reports]
        return ends

    def _column(self, parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return one column over all streams.

        :param parts: each worker's column, over its own streams.
        """
        column = np.empty(self.plan.topology.streams, np.int64)
        for assignment, part in zip(self.plan.assignments, parts, strict=True):
            column[stream_column(assignment.streams)] = part
        return column

    def _reached(self, ends: NDArray[np.int64]) -> StreamCounts:
        """Return the counts that the workers report, which must be the planned ones.

        If bytes are paced, only the workers know how many messages there are, but their order says
        which streams have them.
        """
        if self.phase.mean_size is None:
            planned = self._planned(self.duration)
        else:
            planned = self._counted(ends)
        wrong = np.flatnonzero(ends != planned.column())
        if len(wrong):
            stream = wrong[0]
            (end,) = planned.of(wrong[:1])
            raise NoData(
                f"{ends[stream]} messages of stream {stream} were sent, {end} were planned "
                "(internal error)"
            )
        return planned

    def due_messages(self) -> DueMessages:
        """Return the messages of the phase, with the changes made so far."""
        return messages_due(self.pool, self.phase, self.changes)

    def _planned(self, at: int) -> StreamCounts:
        """Return the messages that each stream has due before ``at``, if messages are paced."""
        return self.phase.after(self.due_messages().most(at))

    def _counted(self, reached: NDArray[np.int64]) -> StreamCounts:
        """Return the counts of as many messages as the workers report.

        :param reached: their number in each stream.
        """
        return self.phase.after(int(reached.sum()) - self.phase.before.total)

    def _boundary(self, at: int) -> StreamCounts:
        """Return the counts at ``at``, the instant of a change."""
        if self.phase.mean_size is None:
            return self._planned(at)
        # If bytes are paced, only the workers' marks have them.
        return self._counted(self._column([mark_at(marks, at) for marks in self.marks]))

    @property
    def duration(self) -> int:
        """The duration of the phase, ns; a change may have ended it early."""
        return min([change.at for change in self.changes if change.end] + [self.phase.duration])

    def columns(self) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Yield the first and the end sequence in every stream, of the phase and of its stages."""
        assert self.ends is not None
        yield "first", self.phase.before.column()
        yield "end", self.ends.column()
        for number, (before, after) in enumerate(self._stage_bounds()):
            yield f"first_{number}", before.column()
            yield f"end_{number}", after.column()

    def _stage_bounds(self) -> list[tuple[StreamCounts, StreamCounts]]:
        """Return the messages that each stream had sent at the begin and the end of each stage."""
        assert self.ends is not None
        if not self.spans:
            return []
        between = [self._boundary(span.start) for span in self.spans[1:]]
        return list(pairwise([self.phase.before, *between, self.ends]))

    def planned_load(self) -> PlannedLoad | None:
        """Return the load that was requested in this phase so far; None if it sends nothing."""
        phase = self.phase
        if phase.idle or not phase.steps:
            return None
        steps = tuple(PlannedStep(length=length, rate=float(rate)) for length, rate in phase.steps)
        stages = tuple(PlannedStage(name=span.name, start=span.start) for span in phase.stages)
        mixes = size_mixes(self.pool(), phase, self.changes)
        sizes = tuple(PlannedSizes(at=at, mix=mix) for at, mix in mixes)
        in_bytes = phase.mean_size is not None
        load = PlannedLoad(in_bytes=in_bytes, steps=steps, stages=stages, sizes=sizes)
        for change in self.changes:
            if change.rate is not None:
                load = load.changed(change.at, change.rate)
        return load

    def rate(self) -> float:
        """Return the offered msg/s: the planned rate, or the mean if it changed in the phase."""
        duration = self.duration
        if not self.changes and self.phase.mean_size is None and not self.phase.stages:
            return self.phase.pacer.highest
        if not duration:
            return self.plan.rate
        end = self.ends or self.phase.ends
        return (end.total - self.phase.before.total) / (duration / 1e9)

    def stages(self) -> tuple[RunStage, ...]:
        stages = []
        for span, (before, after) in zip(self.spans, self._stage_bounds(), strict=True):
            stage = RunStage(
                name=span.name,
                start=self.start + span.start,
                duration=span.duration,
                slo=dict(span.slo) or None,
                rate=(after.total - before.total) / (span.duration / 1e9),
                window=span.slo.window,
                drift="drift" in span.slo,
            )
            stages.append(stage)
        return tuple(stages)


def messages_due(
    pool: Callable[[], PayloadPool], phase: Phase, changes: Sequence[Change] = ()
) -> DueMessages:
    """Return the messages of a phase.

    :param changes: those that are not planned.
    """
    pacer = phase.pacer
    for change in changes:
        if change.rate is not None:
            pacer = pacer.changed(change.at, change.rate)
    if phase.mean_size is None:
        return DueMessages(pacer)
    return DueMessages(pacer, size_mixes(pool(), phase, changes))


def size_mixes(
    pool: PayloadPool, phase: Phase, changes: Sequence[Change]
) -> tuple[tuple[int, SizeMix], ...]:
    """Return the sizes of messages, each from an instant on, ns after the phase's start."""
    mixes = [(0, pool.mix(0))]
    for change in (*phase.changes, *changes):
        if change.distribution is not None:
            mixes.append((change.at, pool.mix(change.distribution)))
    return tuple(mixes)


def spans_until(end: int, spans: Sequence[StageSpan]) -> Iterator[StageSpan]:
    """Return the stages that began before ``end``, the last one cut off there: a change may end a
    phase early.
    """
    for span in spans:
        if span.start < end:
            yield replace(span, duration=min(span.duration, end - span.start))


def mark_at(marks: Sequence[tuple[int, NDArray[np.int64]]], at: int) -> NDArray[np.int64]:
    """Return a worker's mark at the change at ``at``, or at the next one after it; the later mark
    if two changes have one instant.
    """
    later = {when: column for when, column in marks if when >= at}
    return later[min(later)]
