"""One worker's loop: send what is due, let the driver move bytes, take what came back, say how it goes.

A phase has its start from the controller and its messages from the plan. The loop sends what is due until all is handed over or
dropped, then drains: it goes on taking answers and arrivals until the controller, which alone knows what all workers sent and got, says
that the phase has ended. Several workloads are several engines, driven together by one loop.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from pytest_loadtest.engine.generator import GeneratorWatch
from pytest_loadtest.engine.progress import Progress, TimelyCounts
from pytest_loadtest.engine.receive import Consumers, Inbox
from pytest_loadtest.engine.send import Sender
from pytest_loadtest.schedule.pacing import NEVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.drivers.base import Clock, Driver
    from pytest_loadtest.engine.blocks import Block
    from pytest_loadtest.engine.recorder import Recorder
    from pytest_loadtest.engine.send import Setup
    from pytest_loadtest.plan.phases import Phase
    from pytest_loadtest.schedule.changes import Change

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
    """Drives one worker's producers and consumers of one workload through the phases of a run."""

    def __init__(self, setup: Setup) -> None:
        self._clock, self._pool, self.driver = setup.clock, setup.pool, setup.driver
        self.watch = GeneratorWatch(setup.clock)
        self.inbox = Inbox(setup.driver, setup.pool, nonce=setup.nonce, ordered=setup.ordered, bounds=setup.bounds)
        self.inbox.prompt = TimelyCounts(setup.prompt, setup.kept)
        self.consumers = Consumers(setup.driver, self.inbox, setup.opened, setup.later, max(setup.topology.consumers, 1))
        self.sender = Sender(setup, self._retire)
        self._delays = setup.delays
        self._recorder: Recorder | None = None
        self._watching = False

    def _retire(self, block: Block) -> None:
        if self._recorder is not None:
            self._recorder.sent(block)

    def begin(self, phase: Phase, start: int, control: Control, recorder: Recorder | None, wall: int = 0) -> None:
        """A phase begins, its messages due from ``start`` (ns of the clock) on.

        :param recorder: None where no samples are kept. :param wall: wall clock less the engine's, ns: delayed messages go by it.
        """
        delays = None if self._delays is None else replace(self._delays, start=start, wall=wall)
        self._phase, self._start, self._control, self._recorder = phase, start, control, recorder
        self._changes: list[Change] = sorted(phase.changes, key=lambda change: change.at)
        self.sender.begin(phase, start, delays)
        self.inbox.begin(phase, start, delays)
        for change in phase.changes:  # what the plan knows is worked into the schedule now; what consumers do has its moment
            self._reschedule(change)
        self.consumers.pause(paused=phase.paused)
        self._watching, self._end = False, start + phase.duration
        self._send_at = self._collect_at = self._report_at = start

    def step(self, wanted: int, now: int) -> int | None:
        """Do what is due. :param wanted: when it should have been called. :returns: when to call it next; None when the phase is over.

        :raises BrokenRun: what the control or the driver raised; samples gathered so far stay with the recorder.
        """
        if self._control.ended():
            self._finish()
            return None
        self._watch_over(wanted, now)
        self._take_changes(now)
        if now >= self._send_at:
            self.sender.tick(now)
            self._send_at = self.sender.next_at()
        if now >= self._collect_at:
            self._collect(now)
            self._collect_at = now + COLLECT
        if now >= self._report_at:
            self._control.report(self._progress(now - self._start))
            # what ends a phase or its drain is waited for by all: say it soon
            self._report_at = min(now + PROGRESS, self._end) if now < self._end else now + COLLECT
        changes = self._start + self._changes[0].at if self._changes else NEVER
        return min(self._send_at, self._collect_at, changes)

    # --- changes

    def _take_changes(self, now: int) -> None:
        for change in self._control.changes():
            self._reschedule(change)
            self._changes = sorted([*self._changes, change], key=lambda one: one.at)
            self._send_at = self._start
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
        self.sender.change(change, pacer, table)

    # --- evidence, collecting, telling

    def _watch_over(self, wanted: int, now: int) -> None:
        """The evidence is about the phase itself: neither the wait for its start nor its drain belongs to it."""
        if self._watching:
            self.watch.woke(wanted, now)
            if now >= self._end:
                self.watch.stop()
                self._watching = False
        elif self._start <= now < self._end:
            self.watch.start(self._start)
            self._watching = True

    def _collect(self, now: int) -> None:
        self.sender.collect()
        self.consumers.welcome()
        columns = self.inbox.collect()
        if self._recorder is not None:
            if columns is not None:
                self._recorder.received(columns)
            self._recorder.flush_if_due(now)

    def _sending(self) -> bool:
        """Whether the phase still goes on here. It lasts as long as it was asked to, also while nothing is due: the rate may be 0."""
        return self._clock() < self._end or not self.sender.finished

    def _progress(self, elapsed: int) -> Progress:
        sender, counts = self.sender, self.sender.counts
        return Progress(
            phase=self._phase.name, elapsed=elapsed, sending=self._sending(), offered=sender.offered(elapsed), sent=counts.sent,
            acked=counts.acked, failed=counts.failed, dropped=counts.dropped, received=self.inbox.counts.received,
            repeats=self.inbox.repeats, in_flight=counts.in_flight, send_delay_p99=sender.own_delay_p99(), blocked=sender.blocked,
            beyond_bounds=tuple(self.inbox.counts.beyond_bounds), prompt=self.inbox.prompt.told(elapsed),
            redelivered=self.inbox.counts.redelivered, resent=counts.resent,
        )  # fmt: skip

    def _finish(self) -> None:
        self.watch.stop()
        self._collect(self._clock())
        self.sender.end()


def drive(engines: Sequence[Engine], clock: Clock, idle: Sequence[Driver] = ()) -> None:
    """Take engines that have begun a phase to its end, all in one loop.

    :param idle: drivers of workloads without a phase now. Their connections are served, as are those of an engine that is done first:
        a broker hangs up on a client that is silent for longer than its keep-alive.
    :raises BrokenRun: what a control or a driver raised.
    """
    active, wanted, others, serve_at = list(engines), clock(), list(idle), 0
    while active:
        now = clock()
        steps = [(engine, engine.step(wanted, now)) for engine in active]
        active = [engine for engine, due in steps if due is not None]
        others += [engine.driver for engine, due in steps if due is None]
        if now >= serve_at:
            serve_at = now + COLLECT
            for driver in others:
                driver.poll(0)
        if not active:
            return
        now = clock()
        wanted = max(min(due for _, due in steps if due is not None), now + TICK)
        for engine in active:
            engine.driver.poll((wanted - now) // len(active))
