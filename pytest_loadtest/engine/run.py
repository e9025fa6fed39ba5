"""One worker's loop: tick the streams that are due, let the driver move bytes, take what came back, say how it goes.

A phase has its start from the controller and its messages from the plan. The loop sends what is due until all is handed over or
dropped, then drains: it goes on taking answers and arrivals until the controller, which alone knows what all workers sent and got, says
that the phase has ended. Several workloads are several engines, driven together by one loop.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pytest_loadtest.engine.consume import Inbox
from pytest_loadtest.engine.consumers import Consumers
from pytest_loadtest.engine.produce import Stream
from pytest_loadtest.engine.progress import Progress
from pytest_loadtest.observe.generator import GeneratorWatch
from pytest_loadtest.pacing import NEVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.changes import Change
    from pytest_loadtest.drivers._base import Clock, Consumer, Driver, Producer
    from pytest_loadtest.engine.blocks import Block
    from pytest_loadtest.engine.recorder import Recorder
    from pytest_loadtest.payloads import PayloadPool
    from pytest_loadtest.phases import Phase
    from pytest_loadtest.topology import ConsumerSpec, ProducerSpec

TICK = 1_000_000  # ns between two looks at what is due: what a sleeping process gets from a scheduler, more or less
COLLECT = 25_000_000  # ns between two looks at what came back; drivers stamp it, so this costs no precision
PROGRESS = 500_000_000


class Control(Protocol):
    """The engine's line to whoever conducts the run."""

    def ended(self) -> bool:
        """Whether the phase has ended. Cheap: asked every tick.

        :raises BrokenRun: the run was given up.
        """

    def changes(self) -> Sequence[Change]:
        """What is to change, as far as it was not told before."""

    def report(self, progress: Progress) -> None:
        """Say how it goes."""


class Engine:
    """Drives one worker's producers and consumers of one workload through the phases of a run.

    :param bounds: latencies in ns that the controller wants to know about while load runs: how many copies took longer.
    """

    def __init__(
        self, driver: Driver, producers: Sequence[tuple[ProducerSpec, Producer]], consumers: Sequence[tuple[ConsumerSpec, Consumer]], *,
        pool: PayloadPool, clock: Clock, nonce: int, seed: int, key_distributor: str, max_send_delay: int, ordered: bool,
        bounds: Sequence[int] = (), more: Sequence[ConsumerSpec] = (), per_subscription: int = 1,
    ) -> None:  # fmt: skip
        self.watch = GeneratorWatch(clock)
        self.inbox = Inbox(nonce=nonce, ordered=ordered, bounds=bounds)
        self.consumers = Consumers(driver, self.inbox, consumers, more, per_subscription)
        self.driver, self._clock, self._pool = driver, clock, pool
        self._recorder: Recorder | None = None
        self._watching = False
        self._streams = [
            Stream(spec, producer, pool, key_distributor=key_distributor, seed=seed, max_send_delay=max_send_delay, retire=self._retire)
            for spec, producer in producers
        ]  # fmt: skip

    def _retire(self, stream: Stream, block: Block) -> None:
        if self._recorder is not None and block.size:
            self._recorder.sent(stream.spec, block)

    def begin(self, phase: Phase, start: int, control: Control, recorder: Recorder | None) -> None:
        """A phase begins, its messages due from ``start`` (ns of the clock) on. :param recorder: None where no samples are kept."""
        self._phase, self._start, self._control, self._recorder = phase, start, control, recorder
        self._changes: list[Change] = sorted(phase.changes, key=lambda change: change.at)
        rate = phase.pacer.highest / (phase.mean_size or 1) / phase.pacer.streams
        for stream in self._streams:
            stream.begin(phase, start, _block_size(rate))
        self.inbox.begin(phase, start)
        for change in phase.changes:  # what the plan knows is worked into the schedule now; what consumers do has its moment
            self._reschedule(change)
        self.consumers.pause(paused=phase.paused)
        self._watching, self._end = False, start + phase.duration
        self._collect_at = self._report_at = start
        self._line_up()

    def step(self, wanted: int, now: int) -> int | None:
        """Do what is due. :param wanted: when it should have been called. :returns: when to call it next; None when the phase is over.

        :raises BrokenRun: what the control or the driver raised; samples gathered so far stay with the recorder.
        """
        if self._control.ended():
            self._finish()
            return None
        self._watch_over(wanted, now)
        self._take_changes(now)
        due, streams = self._due, self._streams
        ready = []
        while due[0][0] <= now:
            ready.append(heappop(due)[1])
        for i in ready:  # once each: one whose target takes nothing is due again at once
            streams[i].tick(now, now - self._start)
            heappush(due, (self._next(i), i))
        if now >= self._collect_at:
            self._collect(now)
            self._collect_at = now + COLLECT
        if now >= self._report_at:
            self._control.report(self._progress(now - self._start))
            # what ends a drain is waited for by all: say it soon
            self._report_at = now + (PROGRESS if self._sending() else COLLECT)
        changes = self._start + self._changes[0].at if self._changes else NEVER
        return min(due[0][0], self._collect_at, changes)

    def _line_up(self) -> None:
        """Streams by when there is something to do next; behind them one that never has."""
        self._due = [(self._next(i), i) for i in range(len(self._streams))] + [(NEVER, len(self._streams))]
        heapify(self._due)

    def _next(self, i: int) -> int:
        stream = self._streams[i]
        return NEVER if stream.finished else self._start + stream.next_offset()

    @property
    def ends(self) -> dict[int, int]:
        """One past the last sequence of the phase, by stream."""
        return {stream.spec.stream: stream.end_seq for stream in self._streams}

    @property
    def marks(self) -> dict[int, tuple[tuple[int, int], ...]]:
        """By stream, the first sequence from each change on: ``(ns after the start, sequence)``."""
        return {stream.spec.stream: tuple(stream.marks) for stream in self._streams}

    # --- changes

    def _take_changes(self, now: int) -> None:
        for change in self._control.changes():
            self._reschedule(change)
            self._changes = sorted([*self._changes, change], key=lambda one: one.at)
            self._line_up()
        while self._changes and self._changes[0].at <= now - self._start:
            change = self._changes.pop(0)
            if change.paused is not None:
                self.consumers.pause(paused=change.paused)
            if change.consumers is not None:
                self.consumers.limit(change.consumers)

    def _reschedule(self, change: Change) -> None:
        """What the change means for messages that are not due yet, worked in as soon as it is known."""
        pacer = table = None
        if change.rate is not None:
            pacer = self.inbox.pacer.changed(change.at, change.rate)
            self.inbox.repace(pacer, self._start)
        if change.distribution is not None:
            table = self._pool.table(change.distribution)
        if change.end:
            self._end = self._start + change.at
            self.inbox.arrivals.duration = change.at
        for stream in self._streams:
            stream.change(change, pacer, table)

    # --- evidence, collecting, telling

    def _watch_over(self, wanted: int, now: int) -> None:
        """The evidence is about the phase itself: neither the wait for its start nor its drain belongs to it."""
        if self._watching:
            self.watch.woke(wanted, now)
            if now >= self._end:
                self.watch.stop()
                self._watching = False
        elif self._start <= now < self._end:
            self.watch.start()
            self._watching = True

    def _collect(self, now: int) -> None:
        for stream in self._streams:
            stream.collect()
        self.consumers.welcome()
        rows = self.inbox.collect()
        if self._recorder is not None:
            for columns in rows:
                self._recorder.received(columns)
            self._recorder.flush_if_due(now)

    def _sending(self) -> bool:
        """Whether the phase still goes on here; where nobody in the run sends, others do until it ends."""
        if not self._phase.first:
            return self._clock() < self._end
        return any(not stream.finished for stream in self._streams)

    def _progress(self, elapsed: int) -> Progress:
        counts = [stream.counts for stream in self._streams]
        return Progress(
            phase=self._phase.name, elapsed=elapsed, sending=self._sending(),
            offered=sum(stream.offered(elapsed) for stream in self._streams),
            sent=sum(c.sent for c in counts), acked=sum(c.acked for c in counts), failed=sum(c.failed for c in counts),
            dropped=sum(c.dropped for c in counts), received=self.inbox.counts.received, repeats=self.inbox.repeats,
            in_flight=sum(stream.producer.in_flight for stream in self._streams), send_delay_p99=self._send_delay(),
            blocked=any(stream.blocked for stream in self._streams), over=tuple(self.inbox.counts.over),
        )  # fmt: skip

    def _send_delay(self) -> int | None:
        delays = [sent - intended - blocked for stream in self._streams for sent, intended, blocked in stream.delays]
        for stream in self._streams:
            stream.delays.clear()
        if not delays:
            return None
        together = np.concatenate(delays)
        rank = min(len(together) - 1, len(together) * 99 // 100)
        return int(np.partition(together, rank)[rank])

    def _finish(self) -> None:
        self.watch.stop()
        self._collect(self._clock())
        for stream in self._streams:
            stream.end()


def drive(engines: Sequence[Engine], clock: Clock) -> None:
    """Take engines that have begun a phase to its end, all in one loop.

    :raises BrokenRun: what a control or a driver raised.
    """
    active, wanted = list(engines), clock()
    while active:
        now = clock()
        steps = [(engine, engine.step(wanted, now)) for engine in active]
        active = [engine for engine, due in steps if due is not None]
        if not active:
            return
        now = clock()
        wanted = max(min(due for _, due in steps if due is not None), now + TICK)
        for engine in active:
            engine.driver.poll((wanted - now) // len(active))


def _block_size(rate: float) -> int:
    """Messages a block: about half a second of one stream, so that many slow streams stay small and few fast ones efficient."""
    return 1 << min(max(int(rate / 2).bit_length(), 6), 13)
